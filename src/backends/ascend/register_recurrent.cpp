// Entries of the ops of layers with a state for each sequence: the causal convolution and the gated delta rule.
//
// The convolution is made of operators for single numbers: CANN has one of its own for the 950 alone
// (ops-transformer 57781440, mamba/causal_conv1d/README.md).
//
// As many rows as sequences are steps of one row each (engine/phases.h); otherwise borders are read on the device, so
// that prompts are captured, too. Rows of no sequence write the scratch slot, and nothing reads what they hold.
#include "backends/ascend/delta_rule.h"
#include "ops/args/recurrent.h"

namespace reprise::ascend {
namespace {

struct Convolution {
  int64_t rows, sequences, columns, taps, back;
  DType type;
  const void *x, *weight, *bias;
  void* out;
  States states;
  Borders borders;
};

// f32 [taps, columns]
Result<const void*> taps_in_floats(const Convolution& s, Launch& l) {
  void* wide = words(s.taps * s.columns, l);
  RETURN_IF_ERROR(l.run(l.ops().cast, l.view(s.weight, s.type, {s.taps, s.columns}, {1, s.taps}, 0, s.columns * s.taps),
                        ACL_FLOAT, l.tensor(wide, DType::F32, {s.taps, s.columns})));
  return wide;
}

// silu(sums + bias), rounded.
Status finish_convolution(const Convolution& s, void* sums, Launch& l) {
  const auto all = [&] { return l.tensor(sums, DType::F32, {s.rows, s.columns}); };
  if (s.bias) {
    void* wide = words(s.columns, l);
    RETURN_IF_ERROR(
        l.run(l.ops().cast, l.tensor(s.bias, s.type, {s.columns}), ACL_FLOAT, l.tensor(wide, DType::F32, {s.columns})));
    RETURN_IF_ERROR(l.run(l.ops().add, all(), l.tensor(wide, DType::F32, {s.columns}), l.number(1), all()));
  }
  RETURN_IF_ERROR(l.run(l.ops().silu, all(), all()));
  return l.run(l.ops().cast, all(), acl_type(s.type), l.tensor(s.out, s.type, {s.rows, s.columns}));
}

// One row of each sequence: it stands behind the rows of its state, [R, taps, columns].
Status convolve_steps(const Convolution& s, Launch& l) {
  const int64_t r = s.sequences, c = s.columns, each = s.taps * c, all = r * each, back = s.back * c;
  ASSIGN_OR_RETURN(const void* taps, taps_in_floats(s, l));
  void *windows = words(all, l), *products = words(all, l), *sums = words(r * c, l);
  const auto part = [&](int64_t size, int64_t from) {
    return l.view(windows, DType::F32, {r, size}, {each, 1}, from, all);
  };
  RETURN_IF_ERROR(
      l.run(l.ops().index_select, s.states.pool(l), 0, l.tensor(s.states.read, DType::I32, {r}), part(back, 0)));
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(s.x, s.type, {r, c}), ACL_FLOAT, part(c, back)));
  aclTensor* product = l.tensor(products, DType::F32, {r, s.taps, c});
  RETURN_IF_ERROR(l.run(l.ops().mul, l.tensor(windows, DType::F32, {r, s.taps, c}),
                        l.tensor(taps, DType::F32, {s.taps, c}), product));
  constexpr int64_t over_taps[] = {1};
  RETURN_IF_ERROR(
      l.run(l.ops().sum, product, l.integers(over_taps), false, ACL_FLOAT, l.tensor(sums, DType::F32, {r, c})));
  RETURN_IF_ERROR(
      l.run(l.ops().scatter_nd, s.states.pool(l), l.tensor(s.states.write, DType::I32, {r, 1}), part(back, c)));
  return finish_convolution(s, sums, l);
}

// Any number of rows: all sequences in one matrix, the rows of its state before those of each. A row of the step lies
// as many rows further on as states stand before it.
Status convolve_prompts(const Convolution& s, Launch& l) {
  const RecurrentConstants constants(l.constant());
  const int64_t t = s.rows, r = s.sequences, c = s.columns, kept = r * s.back, all = t + kept;
  ASSIGN_OR_RETURN(const void* taps, taps_in_floats(s, l));
  ASSIGN_OR_RETURN(const void* borders, borders_in_floats(s.borders, l));
  // Where the rows of states are before the step, and those that make the states behind it.
  const auto rows_of_states = [&](int64_t border) -> Result<const void*> {
    void* rows = words(kept, l);
    RETURN_IF_ERROR(l.run(l.ops().add, l.tensor(const_behind(borders, border, DType::F32), DType::F32, {r, 1}),
                          l.tensor(constants.numbers(), DType::F32, {r, s.back}), l.number(1),
                          l.tensor(rows, DType::F32, {r, s.back})));
    return whole_numbers(rows, kept, l);
  };
  ASSIGN_OR_RETURN(const void* before, rows_of_states(0));
  ASSIGN_OR_RETURN(const void* behind_step, rows_of_states(1));
  ASSIGN_OR_RETURN(const void* counts, begun(s.borders, false, constants, l));
  void* places = words(t, l);
  RETURN_IF_ERROR(l.run(l.ops().muls, l.tensor(counts, DType::F32, {t}), l.number(static_cast<float>(s.back)),
                        l.tensor(places, DType::F32, {t})));
  RETURN_IF_ERROR(l.run(l.ops().add, l.tensor(places, DType::F32, {t}), l.tensor(constants.numbers(), DType::F32, {t}),
                        l.number(1), l.tensor(places, DType::F32, {t})));
  ASSIGN_OR_RETURN(const void* rows, whole_numbers(places, t, l));

  void *matrix = words(all * c, l), *sums = words(all * c, l), *other = words(all * c, l);
  const auto rows_from = [&](void* data, int64_t from, int64_t n) {
    return l.tensor(const_behind(data, from * c, DType::F32), DType::F32, {n, c});
  };
  void* kept_rows = words(kept * c, l);
  RETURN_IF_ERROR(l.run(l.ops().index_select, s.states.pool(l), 0, l.tensor(s.states.read, DType::I32, {r}),
                        l.tensor(kept_rows, DType::F32, {r, s.back * c})));
  RETURN_IF_ERROR(l.run(l.ops().scatter_nd, rows_from(matrix, 0, all), l.tensor(before, DType::I32, {kept, 1}),
                        rows_from(kept_rows, 0, kept)));
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(s.x, s.type, {t, c}), ACL_FLOAT, rows_from(other, 0, t)));
  RETURN_IF_ERROR(
      l.run(l.ops().scatter_nd, rows_from(matrix, 0, all), l.tensor(rows, DType::I32, {t, 1}), rows_from(other, 0, t)));
  const int64_t n = all - s.back;
  aclTensor* sum = rows_from(sums, s.back, n);
  for (int64_t j = 0; j < s.taps; ++j) {
    aclTensor* product = j == 0 ? sum : rows_from(other, 0, n);
    RETURN_IF_ERROR(l.run(l.ops().mul, rows_from(matrix, j, n),
                          l.tensor(const_behind(taps, j * c, DType::F32), DType::F32, {1, c}), product));
    if (j > 0) RETURN_IF_ERROR(l.run(l.ops().add, sum, product, l.number(1), sum));
  }
  RETURN_IF_ERROR(l.run(l.ops().index_select, rows_from(matrix, 0, all), 0, l.tensor(behind_step, DType::I32, {kept}),
                        rows_from(kept_rows, 0, kept)));
  RETURN_IF_ERROR(l.run(l.ops().scatter_nd, s.states.pool(l), l.tensor(s.states.write, DType::I32, {r, 1}),
                        l.tensor(kept_rows, DType::F32, {r, s.back * c})));
  RETURN_IF_ERROR(
      l.run(l.ops().index_select, rows_from(sums, 0, all), 0, l.tensor(rows, DType::I32, {t}), rows_from(other, 0, t)));
  return finish_convolution(s, other, l);
}

template <typename Args>
Status causal_conv(const Args& a, Launch& l) {
  const void* bias = nullptr;
  if constexpr (requires { a.bias; }) bias = a.bias.data;
  const int64_t t = l.size(a.tokens), r = l.size(a.sequences), back = a.taps - 1;
  RETURN_IF_ERROR(want_few_rows(t, r * back));
  const Convolution s{t,
                      r,
                      a.columns,
                      a.taps,
                      back,
                      type_of_rows(l),
                      a.x,
                      a.weight,
                      bias,
                      a.out,
                      {a.state, slots_of(l), back * a.columns, r, a.state_read, a.state_write},
                      {t, r, a.cu_seqlens}};
  return t == r ? convolve_steps(s, l) : convolve_prompts(s, l);
}

// Unit queries and keys, values, sigmoid(b), and g = -exp(a_log) softplus(a + dt_bias).
Result<RuleRows> prepare_rule(const GatedDeltaArgs& a, const DeltaRule& s, Launch& l) {
  const RecurrentConstants constants(l.constant());
  const int64_t t = s.rows, h = s.heads, width = 2 * s.key_heads * s.key + h * s.value;
  const auto bytes = [&](int64_t n) { return l.scratch(static_cast<size_t>(n) * size_of(s.type)); };
  void *q = bytes(t * s.key_heads * s.key), *k = bytes(t * s.key_heads * s.key), *v = bytes(t * h * s.value),
       *beta = bytes(t * h), *rstd = words(t * s.key_heads, l);
  const auto part = [&](int64_t heads, int64_t size, int64_t from) {
    return l.view(a.qkv, s.type, {t, heads, size}, {width, size, 1}, from, t * width);
  };
  // x / sqrt(sum of squares + 1e-6) by the norm, which divides by their mean.
  const double eps = 1e-6 / static_cast<double>(s.key);
  for (const auto& [to, from] : {std::pair{q, int64_t{0}}, std::pair{k, s.key_heads * s.key}})
    RETURN_IF_ERROR(
        l.run(l.ops().rms_norm, part(s.key_heads, s.key, from), l.tensor(constants.unit_scale(), DType::F32, {s.key}),
              eps, l.tensor(to, s.type, {t, s.key_heads, s.key}), l.tensor(rstd, DType::F32, {t, s.key_heads, 1})));
  RETURN_IF_ERROR(l.run(l.ops().cast, part(h, s.value, 2 * s.key_heads * s.key), acl_type(s.type),
                        l.tensor(v, s.type, {t, h, s.value})));
  RETURN_IF_ERROR(l.run(l.ops().sigmoid, l.tensor(a.b, s.type, {t, h}), l.tensor(beta, s.type, {t, h})));
  void *steps = words(t * h, l), *fade = words(h, l);
  const auto all = [&] { return l.tensor(steps, DType::F32, {t, h}); };
  const auto each = [&](const void* data) { return l.tensor(data, DType::F32, {h}); };
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.a, s.type, {t, h}), ACL_FLOAT, all()));
  RETURN_IF_ERROR(l.run(l.ops().add, all(), each(a.dt_bias), l.number(1), all()));
  RETURN_IF_ERROR(l.run(l.ops().softplus, all(), l.number(1), l.number(20), all()));
  RETURN_IF_ERROR(l.run(l.ops().exp, each(a.a_log), each(fade)));
  RETURN_IF_ERROR(l.run(l.ops().muls, each(fade), l.number(-1), each(fade)));
  RETURN_IF_ERROR(l.run(l.ops().mul, all(), each(fade), all()));
  return RuleRows{q, k, v, beta, steps};
}

Status gated_delta(const GatedDeltaArgs& a, Launch& l) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(a.key));
  ASSIGN_OR_RETURN(const DeltaRule s, delta_rule_of(a, a.key_heads, scale, l));
  ASSIGN_OR_RETURN(const RuleRows rows, prepare_rule(a, s, l));
  return s.run(rows, a.out, l);
}

template <size_t kFirst>
Status accepts_conv(const OpCall& c) {
  if (const int64_t taps = c.in[2].shape[2].factor; taps < 2)
    return error(Code::Unsupported, "takes convolutions over 2 or more rows, not {}", taps);
  return accepts_states(c, kFirst);
}

}  // namespace

void register_recurrent(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto bind_conv = [context](const OpCall& c, LaunchArgs& args) {
    args.constant = RecurrentConstants::make(*context, 0);
    args.way = way_of_states(c);
  };
  const auto bind_delta = [context](const OpCall& c, LaunchArgs& args) {
    const int64_t values = c.in[0].shape[1].factor * c.in[0].shape[3].factor;
    const int64_t key = (c.in[1].shape[1].factor - values) / (2 * c.attrs->integer("key_heads"));
    args.constant = RecurrentConstants::make(*context, key);
    args.way = way_of_states(c);
  };
  add(kernels, context, {"causal_conv", kernel<causal_conv<CausalConvArgs>>, bind_conv, accepts_conv<3>});
  add(kernels, context, {"causal_conv_biased", kernel<causal_conv<CausalConvBiasedArgs>>, bind_conv, accepts_conv<4>});
  add(kernels, context, {"gated_delta", kernel<gated_delta>, bind_delta, accepts_rule});
}

}  // namespace reprise::ascend
