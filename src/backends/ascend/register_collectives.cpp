// Entries of the ops by which ranks exchange data: functions of HCCL, which captures record as they do operators.
#include "backends/ascend/entries.h"
#include "ops/args/collectives.h"

namespace reprise::ascend {
namespace {

// Even parts are gathered one rank after the other, then moved into their columns; a single row lies right at once.
// Uneven ones are added as integers: every number is some rank's, and zero on all others, so any order gives its bits.
Status all_gather(const AllGatherArgs& a, Launch& l) {
  const auto& ranks = *static_cast<const Communicator*>(l.constant());
  const int64_t rows = l.size(a.rows), element = static_cast<int64_t>(size_of(a.type));
  const int64_t mine = a.width / element, all = a.of / element, first = a.first / element;
  if (a.even) {
    void* parts = rows == 1 ? a.out.data : l.scratch(static_cast<size_t>(rows * a.of));
    RETURN_IF_ERROR(l.enqueue([&](aclrtStream s) { return ranks.all_gather(a.x, parts, rows * a.width, s); }));
    if (rows == 1) return Status::ok();
    return l.run(l.ops().copy, l.tensor(a.out, a.type, {rows, ranks.size(), mine}),
                 l.view(parts, a.type, {rows, ranks.size(), mine}, {mine, rows * mine, 1}, 0, rows * all));
  }
  RETURN_IF_ERROR(l.run(l.ops().zero, l.tensor(a.out, a.type, {rows, all})));
  RETURN_IF_ERROR(l.run(l.ops().copy, l.view(a.out, a.type, {rows, mine}, {all, 1}, first, rows * all),
                        l.tensor(a.x, a.type, {rows, mine})));
  return l.enqueue([&](aclrtStream s) { return ranks.merge(a.out.data, rows * all, a.type, s); });
}

}  // namespace

void register_collectives(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  if (!context->communicator()) return;
  add(kernels, context,
      {.op = "all_gather",
       .kernel = kernel<all_gather>,
       .bind = [context](const OpCall&, LaunchArgs& args) { args.constant = context->communicator(); },
       .accepts = want_constant_rows});
}

}  // namespace reprise::ascend
