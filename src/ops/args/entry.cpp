#include "ops/args/entry.h"

namespace reprise {

KernelEntry entry_of(const EntryPlan& plan) {
  const OpArgs& args = op_args(plan.op);
  KernelEntry e;
  e.name = fmt::format("{}.{}", device_kind_name(plan.device), plan.op);
  if (!plan.variant.empty()) e.name += fmt::format(".{}", plan.variant);
  if (plan.types) e.name += fmt::format(".{}", entry_types_name(*plan.types));
  e.op = plan.op;
  e.device = plan.device;
  e.score = 100;
  e.accepts = [&args, types = plan.types, also = plan.accepts](const OpCall& c) -> Status {
    RETURN_IF_ERROR(types ? accepts_types(args, *types, c) : args.accepts ? args.accepts(c) : Status::ok());
    return also ? also(c) : Status::ok();
  };
  e.bind = [&args, also = plan.bind](const OpCall& c, LaunchArgs& to) {
    args.bind(c, to);
    if (also) also(c, to);
  };
  if (plan.scratch)
    e.workspace = [bind = e.bind, scratch = plan.scratch](const OpCall& c, const LiveSizes& bound,
                                                          int threads) -> Result<size_t> {
      LaunchArgs to;
      bind(c, to);
      return scratch(to, bound, threads);
    };
  return e;
}

}  // namespace reprise
