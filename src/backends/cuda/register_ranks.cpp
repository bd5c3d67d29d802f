// Entries of the ops by which ranks exchange data, for a world of several ranks.
#include "backends/cuda/communicator.h"
#include "backends/cuda/register.h"
#include "ops/args/collectives.h"

namespace reprise::cuda {

void register_ranks(KernelRegistry& kernels, const RankKernels& table, const std::shared_ptr<Communicator>& ranks) {
  Entries entries(kernels);
  const auto bind = [ranks](const OpCall&, LaunchArgs& args) {
    args.constant = static_cast<const Exchange*>(ranks.get());
    args.way = ranks->size();
  };
  // Parts of all ranks, as they come. Many rows need no more than all parts: shares of them, and of the sums, which
  // begin at a multiple of 16 bytes.
  const Scratch gathered = scratch<AllGatherArgs>([](const AllGatherArgs& a, const LiveSizes& bound, int) {
    return static_cast<size_t>(a.even ? a.rows.value(bound) * a.of : 0);
  });
  const Scratch parts = [size = ranks->size()](const LaunchArgs& args, const LiveSizes& bound, int) {
    const auto& a = args.as<AllReduceArgs>();
    return static_cast<size_t>(size * a.rows.value(bound) * a.width) * size_of(a.type) + 16;
  };
  entries.add("all_gather", table.all_gather, {.scratch = gathered, .bind = bind});
  entries.add("gather_owned", table.gather_owned, {.bind = bind});
  entries.add("gather_groups", table.gather_groups, {.bind = bind});
  entries.add("all_reduce", table.all_reduce, {.scratch = parts, .bind = bind});
  entries.add("local_ids", table.local_ids);
  entries.add("own_groups", table.own_groups);
  entries.add("own_slots", table.own_slots);
  entries.add("own_cu_seqlens", table.own_cu_seqlens);
  entries.add("argmax_pairs", table.argmax_pairs);
  entries.add("merge_argmax", table.merge_argmax);
}

}  // namespace reprise::cuda
