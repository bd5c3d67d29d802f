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
    RETURN_IF_ERROR(l.collective([&](aclrtStream s) { return ranks.all_gather(a.x, parts, rows * a.width, s); }));
    if (rows == 1) return Status::ok();
    return l.run(l.ops().copy, l.tensor(a.out, a.type, {rows, ranks.size(), mine}),
                 l.view(parts, a.type, {rows, ranks.size(), mine}, {mine, rows * mine, 1}, 0, rows * all));
  }
  RETURN_IF_ERROR(l.run(l.ops().zero, l.tensor(a.out, a.type, {rows, all})));
  RETURN_IF_ERROR(l.run(l.ops().copy, l.view(a.out, a.type, {rows, mine}, {all, 1}, first, rows * all),
                        l.tensor(a.x, a.type, {rows, mine})));
  return l.collective([&](aclrtStream s) { return ranks.merge(a.out.data, rows * all, a.type, s); });
}

// The parts of all ranks are gathered and added here, in the order of ranks. HcclAllReduce would add them in an order
// that follows from the number of bytes, so a row's bits would depend on the batch. Sums of more than two numbers are
// made in fp32; that of two is aclnnAdd's own, which widens what it adds and rounds once.
Status all_reduce(const AllReduceArgs& a, Launch& l) {
  const auto& ranks = *static_cast<const Communicator*>(l.constant());
  const int64_t rows = l.size(a.rows), count = rows * a.width, size = ranks.size();
  const int64_t element = static_cast<int64_t>(size_of(a.type));
  auto* parts = static_cast<uint8_t*>(l.scratch(static_cast<size_t>(size * count * element)));
  RETURN_IF_ERROR(l.collective([&](aclrtStream s) { return ranks.all_gather(a.x, parts, count * element, s); }));
  const auto add = [&](const void* x, const void* y, DType type, const void* sum) {
    return l.run(l.ops().add, l.tensor(x, type, {rows, a.width}), l.tensor(y, type, {rows, a.width}), l.number(1),
                 l.tensor(sum, type, {rows, a.width}));
  };
  if (size == 2 && !a.bias) return add(parts, parts + count * element, a.type, a.out.data);
  const bool wide = a.type != DType::F32;
  const int64_t bytes = count * 4;
  auto* numbers = parts;
  if (wide) {
    numbers = static_cast<uint8_t*>(l.scratch(static_cast<size_t>(size * bytes)));
    RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(parts, a.type, {size, count}), acl_type(DType::F32),
                          l.tensor(numbers, DType::F32, {size, count})));
  }
  // No sum lies where one of its numbers does.
  uint8_t* sums[] = {static_cast<uint8_t*>(l.scratch(static_cast<size_t>(bytes))),
                     static_cast<uint8_t*>(l.scratch(static_cast<size_t>(bytes)))};
  const uint8_t* sum = numbers;
  int turn = 0;
  const auto next = [&](bool last) -> const void* {
    return last && !wide ? a.out.data : static_cast<const void*>(sums[turn++ % 2]);
  };
  for (int64_t r = 1; r < size; ++r) {
    const void* to = next(r + 1 == size && !a.bias);
    RETURN_IF_ERROR(add(sum, numbers + r * bytes, DType::F32, to));
    sum = static_cast<const uint8_t*>(to);
  }
  if (a.bias) {
    const void* bias = a.bias.data;
    if (wide) {
      void* widened = l.scratch(static_cast<size_t>(a.width * 4));
      RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(bias, a.type, {a.width}), acl_type(DType::F32),
                            l.tensor(widened, DType::F32, {a.width})));
      bias = widened;
    }
    const void* to = next(true);
    RETURN_IF_ERROR(l.run(l.ops().add, l.tensor(sum, DType::F32, {rows, a.width}),
                          l.tensor(bias, DType::F32, {a.width}), l.number(1),
                          l.tensor(to, DType::F32, {rows, a.width})));
    sum = static_cast<const uint8_t*>(to);
  }
  if (!wide) return Status::ok();
  return l.run(l.ops().cast, l.tensor(sum, DType::F32, {rows, a.width}), acl_type(a.type),
               l.tensor(a.out, a.type, {rows, a.width}));
}

}  // namespace

void register_collectives(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  if (!context->communicator()) return;
  add(kernels, context,
      {.op = "all_gather",
       .kernel = kernel<all_gather>,
       .bind = [context](const OpCall&, LaunchArgs& args) { args.constant = context->communicator(); },
       .accepts = want_constant_rows});
  add(kernels, context,
      {.op = "all_reduce", .kernel = kernel<all_reduce>, .bind = [context](const OpCall&, LaunchArgs& args) {
         args.constant = context->communicator();
       }});
}

}  // namespace reprise::ascend
