#include "backends/ascend/entries.h"

namespace reprise::ascend {
namespace {

// Sizes at which an operator is asked whether it takes a call: small, and not 1, which some treat apart.
LiveSizes probe_sizes() {
  LiveSizes live;
  live.value.fill(2);
  live.value[0] = 1;
  return live;
}

}  // namespace

int64_t row_size(const Shape& s, int first) {
  int64_t n = 1;
  for (int i = first; i < s.rank(); ++i) n *= s[i].factor;
  return n;
}

Status want_constant_rows(const OpCall& c) {
  for (const TensorType& t : c.in)
    for (int i = 1; i < t.shape.rank(); ++i)
      if (!t.shape[i].is_constant())
        return error(Code::Unsupported, "size {} of an operand of {} is not a constant", i, describe(c));
  return Status::ok();
}

void add(KernelRegistry& kernels, const std::shared_ptr<Context>& context, Entry entry) {
  auto bind = [op = &op_args(entry.op), own = std::move(entry.bind)](const OpCall& c, LaunchArgs& args) {
    op->bind(c, args);
    if (own) own(c, args);
  };
  // Operands that the call has lie nowhere; those that it leaves out are null.
  auto bind_probe = [bind](const OpCall& c, LaunchArgs& args) {
    for (size_t i = 0; i < c.in.size(); ++i) args.ptr[i] = Launch::nowhere();
    bind(c, args);
  };
  const AscendKernel kernel = entry.kernel;
  KernelEntry e;
  e.name = fmt::format("ascend.{}{}", entry.op, entry.variant);
  e.op = entry.op;
  e.device = DeviceKind::Ascend;
  e.score = entry.score;
  e.exact = entry.exact;
  e.announced = entry.announced;
  e.host_operands = entry.host_operands;
  e.param_layouts = entry.param_layouts;
  e.bind = bind;
  e.accepts = [context, bind_probe, kernel, accepts = std::move(entry.accepts)](const OpCall& c) -> Status {
    if (accepts) RETURN_IF_ERROR(accepts(c));
    RETURN_IF_ERROR(context->attach());
    LaunchArgs args;
    bind_probe(c, args);
    RETURN_IF_ERROR(context->take_constant_error());
    Launch probe(context->library(), context->operators(), Launch::Probe::Call);
    const Status asked = kernel(args, probe_sizes(), probe);
    return asked.is_ok() ? asked : error(Code::Unsupported, "{}", asked.message());
  };
  e.workspace = [context, bind_probe, kernel](const OpCall& c, const LiveSizes& bound, int) -> Result<size_t> {
    RETURN_IF_ERROR(context->attach());
    LaunchArgs args;
    bind_probe(c, args);
    Launch probe(context->library(), context->operators(), Launch::Probe::Bounds);
    const Status asked = kernel(args, bound, probe);
    if (!asked.is_ok()) return error(Code::Unsupported, "at its largest sizes: {}", asked.message());
    return probe.used();
  };
  e.starts = [context, bind_probe, kernel, patched = !entry.host_operands.empty()](const OpCall& c) -> Result<int> {
    RETURN_IF_ERROR(context->attach());
    LaunchArgs args;
    bind_probe(c, args);
    RETURN_IF_ERROR(context->take_constant_error());
    LiveSizes least;
    least.value.fill(1);
    Launch probe(context->library(), context->operators(), Launch::Probe::Call);
    if (patched) probe.set_group(Launch::Group::Record);  // one form, where a probe asks for all
    RETURN_IF_ERROR(kernel(args, least, probe));
    return probe.started();
  };
  e.part[0] = opaque(kernel);
  kernels.add(std::move(e));
}

void register_ascend(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  register_dense(kernels, context);
  register_rotation(kernels, context);
  register_heads(kernels, context);
  register_attention(kernels, context);
  register_encoder(kernels, context);
  register_functions(kernels, context);
  register_recurrent(kernels, context);
  register_state_space(kernels, context);
  register_latent(kernels, context);
  register_experts(kernels, context);
  register_quantised(kernels, context);
  register_quantised_experts(kernels, context);
  register_expert_ranks(kernels, context);
  register_dispatch(kernels, context);
  register_collectives(kernels, context);
}

}  // namespace reprise::ascend
