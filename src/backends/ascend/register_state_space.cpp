// Entries of Mamba-2: the state-space step and the norm behind it.
//
// CANN has no operator for the step (the kernels in experimental/mamba of ops-transformer are for PyTorch, and for
// prompts alone), but it is the delta rule without what that takes back: S = a S + b (v - a S k) k^T. With values
// larger and b smaller by the same power of two, v - a S k is v in fp32, and S = a S + b v k^T is left. Queries, keys
// and values are multiplied by powers of two, which loses nothing; the step s is b, rounded as the rows are.
#include "backends/ascend/delta_rule.h"
#include "ops/args/recurrent.h"

namespace reprise::ascend {
namespace {

// B and C are made smaller, as the operator's document wants keys and queries between -1 and 1; queries and values
// make up for it. The rest of what values are larger by is in b.
constexpr float kSmaller = 0x1p-10F, kLarger = 0x1p10F, kWeight = 0x1p-40F, kValues = 0x1p50F;

// s: softplus(dt + dt_bias) between the limits, f32 [T, H].
Result<void*> steps_of(const StateSpaceArgs& a, const DeltaRule& s, Launch& l) {
  const int64_t t = s.rows, h = s.heads;
  void* steps = words(t * h, l);
  const auto all = [&] { return l.tensor(steps, DType::F32, {t, h}); };
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.dt, s.type, {t, h}), ACL_FLOAT, all()));
  RETURN_IF_ERROR(l.run(l.ops().add, all(), l.tensor(a.dt_bias, DType::F32, {h}), l.number(1), all()));
  RETURN_IF_ERROR(l.run(l.ops().softplus, all(), l.number(1), l.number(20), all()));
  if (a.least_step > 0)
    RETURN_IF_ERROR(l.run(l.ops().clamp_min, all(), l.number(static_cast<float>(a.least_step)), all()));
  if (a.most_step > 0) {
    RETURN_IF_ERROR(l.run(l.ops().muls, all(), l.number(-1), all()));
    RETURN_IF_ERROR(l.run(l.ops().clamp_min, all(), l.number(-static_cast<float>(a.most_step)), all()));
    RETURN_IF_ERROR(l.run(l.ops().muls, all(), l.number(-1), all()));
  }
  return steps;
}

Result<RuleRows> prepare_step(const StateSpaceArgs& a, const DeltaRule& s, Launch& l) {
  const int64_t t = s.rows, h = s.heads, inner = h * s.value, keys = s.key_heads * s.key, width = inner + 2 * keys;
  const auto bytes = [&](int64_t n) { return l.scratch(static_cast<size_t>(n) * size_of(s.type)); };
  void *q = bytes(t * keys), *k = bytes(t * keys), *v = bytes(t * inner), *beta = bytes(t * h);
  const auto times = [&](int64_t from, int64_t n, float by, void* to) {
    return l.run(l.ops().muls, l.view(a.xbc, s.type, {t, n}, {width, 1}, from, t * width), l.number(by),
                 l.tensor(to, s.type, {t, n}));
  };
  RETURN_IF_ERROR(times(0, inner, kValues, v));
  RETURN_IF_ERROR(times(inner, keys, kSmaller, k));
  RETURN_IF_ERROR(times(inner + keys, keys, kSmaller, q));
  ASSIGN_OR_RETURN(void* steps, steps_of(a, s, l));
  void *weights = words(t * h, l), *fade = words(h, l);
  const auto all = [&](const void* data) { return l.tensor(data, DType::F32, {t, h}); };
  RETURN_IF_ERROR(l.run(l.ops().muls, all(steps), l.number(kWeight), all(weights)));
  RETURN_IF_ERROR(l.run(l.ops().cast, all(weights), acl_type(s.type), l.tensor(beta, s.type, {t, h})));
  RETURN_IF_ERROR(l.run(l.ops().exp, l.tensor(a.a_log, DType::F32, {h}), l.tensor(fade, DType::F32, {h})));
  RETURN_IF_ERROR(l.run(l.ops().muls, l.tensor(fade, DType::F32, {h}), l.number(-1), l.tensor(fade, DType::F32, {h})));
  RETURN_IF_ERROR(l.run(l.ops().mul, all(steps), l.tensor(fade, DType::F32, {h}), all(steps)));
  return RuleRows{q, k, v, beta, steps};
}

// y + d x
Status add_skipped(const StateSpaceArgs& a, const DeltaRule& s, const void* y, Launch& l) {
  const int64_t t = s.rows, h = s.heads, inner = h * s.value, width = inner + 2 * s.key_heads * s.key;
  void *wide = words(t * inner, l), *skipped = words(t * inner, l);
  const auto heads = [&](const void* data) { return l.tensor(data, DType::F32, {t, h, s.value}); };
  RETURN_IF_ERROR(l.run(l.ops().cast, l.view(a.xbc, s.type, {t, inner}, {width, 1}, 0, t * width), ACL_FLOAT,
                        l.tensor(skipped, DType::F32, {t, inner})));
  RETURN_IF_ERROR(l.run(l.ops().mul, heads(skipped), l.tensor(a.d, DType::F32, {h, 1}), heads(skipped)));
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(y, s.type, {t, h, s.value}), ACL_FLOAT, heads(wide)));
  RETURN_IF_ERROR(l.run(l.ops().add, heads(wide), heads(skipped), l.number(1), heads(wide)));
  return l.run(l.ops().cast, heads(wide), acl_type(s.type), l.tensor(a.out, s.type, {t, h, s.value}));
}

Status state_space(const StateSpaceArgs& a, Launch& l) {
  ASSIGN_OR_RETURN(const DeltaRule s, delta_rule_of(a, a.groups, kLarger, l));
  ASSIGN_OR_RETURN(const RuleRows rows, prepare_step(a, s, l));
  void* y = l.scratch(static_cast<size_t>(s.rows * s.heads * s.value) * size_of(s.type));
  RETURN_IF_ERROR(s.run(rows, y, l));
  return add_skipped(a, s, y, l);
}

// v / sqrt(mean of v^2 over its group + eps) * weight with v = x silu(gate), in fp32.
Status gated_norm(const GatedNormArgs& a, Launch& l) {
  const int64_t r = l.size(a.rows), w = a.width, of_group = w / a.groups, groups = r * a.groups;
  const auto type = static_cast<DType>(l.way());
  void *x = words(r * w, l), *gate = words(r * w, l), *weight = words(w, l), *rstd = words(groups, l);
  const auto rows = [&](const void* data) { return l.tensor(data, DType::F32, {r, w}); };
  const auto parts = [&](const void* data) { return l.tensor(data, DType::F32, {groups, of_group}); };
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.x, type, {r, w}), ACL_FLOAT, rows(x)));
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.gate, type, {r, w}), ACL_FLOAT, rows(gate)));
  RETURN_IF_ERROR(l.run(l.ops().silu, rows(gate), rows(gate)));
  RETURN_IF_ERROR(l.run(l.ops().mul, rows(x), rows(gate), rows(x)));
  RETURN_IF_ERROR(l.run(l.ops().rms_norm, parts(x), l.tensor(l.constant(), DType::F32, {of_group}), a.eps, parts(gate),
                        l.tensor(rstd, DType::F32, {groups, 1})));
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.weight, type, {w}), ACL_FLOAT, l.tensor(weight, DType::F32, {w})));
  RETURN_IF_ERROR(l.run(l.ops().mul, rows(gate), l.tensor(weight, DType::F32, {w}), rows(gate)));
  return l.run(l.ops().cast, rows(gate), acl_type(type), l.tensor(a.out, type, {r, w}));
}

Status accepts_gated_norm(const OpCall& c) {
  if (const int64_t width = c.in[0].shape[1].factor; width > Context::kRows)
    return error(Code::Unsupported, "rows of {} numbers, at most {}", width, Context::kRows);
  return want_constant_rows(c);
}

}  // namespace

void register_state_space(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto bind_space = [context](const OpCall& c, LaunchArgs& args) {
    args.constant = RecurrentConstants::make(*context, 0);
    args.way = way_of_states(c);
  };
  const auto bind_norm = [context](const OpCall& c, LaunchArgs& args) {
    args.constant = context->ones();
    args.way = static_cast<int64_t>(c.in[0].dtype);
  };
  add(kernels, context, {"state_space", kernel<state_space>, bind_space, accepts_rule});
  add(kernels, context, {"rms_norm_gated", kernel<gated_norm>, bind_norm, accepts_gated_norm});
}

}  // namespace reprise::ascend
