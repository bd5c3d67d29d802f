#include "engine/dtype_choice.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/log.h"
#include "engine/programs.h"

namespace reprise::engine {

std::string_view dtype_flag(DType d) {
  switch (d) {
    case DType::F32: return "float32";
    case DType::F16: return "float16";
    case DType::BF16: return "bfloat16";
    case DType::I8: return "int8";
    default: return dtype_name(d);
  }
}

namespace {

// Ops of a graph that change states of sequences and have no kernel at all on the device.
std::set<std::string_view> state_ops_without_kernels(const Graph& graph, const Platform& platform) {
  std::set<std::string_view> names;
  const DeviceKind device = platform.device->info().kind;
  const auto writes = [](const OperandSchema& o) { return o.name == models::kStateWriteInput; };
  for (const Node* n = graph.first(); n; n = n->next)
    if (std::any_of(n->op->operands.begin(), n->op->operands.end(), writes) &&
        std::none_of(platform.kernels->entries().begin(), platform.kernels->entries().end(),
                     [&](const auto& e) { return e->device == device && e->op == n->op->name; }))
      names.insert(n->op->name);
  return names;
}

// When no dtype helps: one line, where the layers are those that keep states, or where a kernel's reason is the head
// size: then with the sizes that there are kernels for. The reason is asked for because a device that fails (no memory
// for a constant) may refuse one shape and take others.
Status explain_head_size(const DtypeInputs& in, const models::TraceOptions& trace, const Status& why) {
  const auto graph = models::trace_model(in.spec, in.config, trace, *in.platform.ops);
  if (const auto missing =
          graph.is_ok() ? state_ops_without_kernels(*graph, in.platform) : std::set<std::string_view>();
      !missing.empty()) {
    log::debug("{}", why.message());
    return error(Code::Unsupported,
                 "{}: layers of {} keep a state for each sequence, and {} has no kernels for them ({}); run it with "
                 "`device` cpu or cuda",
                 in.config.fields.source, in.config.fields.architecture,
                 device_kind_name(in.platform.device->info().kind), fmt::join(missing, ", "));
  }
  if (why.message().find("head size") == std::string::npos) return why;
  const int64_t asked = in.config.fields.head_dim;
  std::vector<int64_t> fine;
  for (const int64_t size : {32, 64, 80, 96, 128, 192, 256}) {
    models::ModelConfig other = in.config;
    other.fields.head_dim = size;
    other.rope_divisors.clear();
    if (ProgramBuilder(in.spec, other, in.platform, in.graph).try_decode(trace).is_ok()) fine.push_back(size);
  }
  if (fine.empty() || in.config.fields.latent || std::find(fine.begin(), fine.end(), asked) != fine.end()) return why;
  log::debug("{}", why.message());
  return error(Code::Unsupported, "{}: head_dim {}: {} has no attention kernels for heads of this size; it has for {}",
               in.config.fields.source, asked, device_kind_name(in.platform.device->info().kind),
               fmt::join(fine, ", "));
}

}  // namespace

Result<models::TraceOptions> other_dtypes(const DtypeInputs& in, const models::TraceOptions& trace, bool any_dtype,
                                          bool any_kv_dtype, const Status& why) {
  const ProgramBuilder builder(in.spec, in.config, in.platform, in.graph);
  if (builder.try_decode(trace).is_ok()) return why;
  const std::string_view device = device_kind_name(in.platform.device->info().kind);
  std::vector<models::TraceOptions> found;
  std::vector<std::string_view> names;
  const auto look = [&](bool keep_cache) {
    for (const DType d : {DType::BF16, DType::F16, DType::F32}) {
      models::TraceOptions other = trace;
      other.dtype = d;
      if (!keep_cache) other.kv_dtype = d;
      if (!builder.try_decode(other).is_ok()) continue;
      found.push_back(other);
      names.push_back(dtype_flag(d));
    }
  };
  look(!any_kv_dtype);
  if (found.empty() && !any_kv_dtype) {
    look(false);
    if (found.empty()) return explain_head_size(in, trace, why);
    return error(Code::Unsupported,
                 "`kv_cache_dtype` {}: {} has no kernels for this model's cache in it; allowed: auto",
                 dtype_flag(trace.kv_dtype), device);
  }
  if (found.empty()) return explain_head_size(in, trace, why);
  log::debug("{}", why.message());
  if (!any_dtype)
    return error(Code::Unsupported, "`dtype` {}: {} has no kernels for this model in it; allowed: auto, {}",
                 dtype_flag(trace.dtype), device, fmt::join(names, ", "));
  log::notice("`dtype` auto: {} has no kernels for this model in {}; effective: {}", device, dtype_flag(trace.dtype),
              names.front());
  return found.front();
}

}  // namespace reprise::engine
