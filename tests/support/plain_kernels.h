// Kernels for the null device that compute: plain fp32 loops for the ops of a dense decoder, with keys and values in
// caches of their own and attention's lengths read on the host. They stand in for an accelerator whose vendor brings
// the operators: whatever the engine does for such a device can be checked by numbers. For tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/null/null_device.h"
#include "ops/args/attention.h"
#include "ops/args/elements.h"
#include "ops/args/entry.h"
#include "ops/args/norms.h"
#include "ops/args/products.h"
#include "ops/args/rotation.h"
#include "ops/core.h"
#include "ops/draw_rule.h"
#include "ops/logit_edit.h"

namespace reprise::testing_support {

namespace plain {

inline void embedding(const IndexSelectArgs& a, const LiveSizes& live) {
  const float* table = a.x;
  const int32_t* ids = a.index;
  float* out = a.out;
  for (int64_t t = 0; t < a.rows.value(live); ++t) std::copy_n(table + ids[t] * a.width, a.width, out + t * a.width);
}

inline void linear(const LinearArgs& a, const LiveSizes& live) {
  const float *x = a.x, *weight = a.weight, *bias = a.bias;
  float* out = a.out;
  const int64_t k = a.shape.depth, n = a.shape.columns;
  for (int64_t t = 0; t < a.shape.rows.value(live); ++t)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += x[t * k + i] * weight[j * k + i];
      out[t * n + j] = sum + (bias ? bias[j] : 0);
    }
}

inline void rms_norm(const RmsNormArgs& a, const LiveSizes& live) {
  const float *weight = a.weight, *bias = a.bias;
  const int64_t n = a.width;
  for (int64_t r = 0; r < a.rows.value(live); ++r) {
    const float* x = static_cast<const float*>(a.x) + r * n;
    float *out = static_cast<float*>(a.out) + r * n, sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
    const float scale = 1 / std::sqrt(sum / static_cast<float>(n) + static_cast<float>(a.eps));
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i] + (bias ? bias[i] : 0);
  }
}

inline void rope_table(const RopeTableArgs& a, const LiveSizes& live) {
  const int32_t* positions = a.positions;
  float* table = a.table;
  const int64_t half = a.dim / 2;
  for (int64_t t = 0; t < a.tokens.value(live); ++t)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = positions[t] * a.inv_freq[i];
      table[t * 2 * half + i] = static_cast<float>(std::cos(angle) * a.scale);
      table[t * 2 * half + half + i] = static_cast<float>(std::sin(angle) * a.scale);
    }
}

inline void rope(const RopeArgs& a, const LiveSizes& live) {
  const int64_t d = a.size, half = a.rotated / 2;
  for (int64_t t = 0; t < a.tokens.value(live); ++t)
    for (int64_t h = 0; h < a.heads; ++h) {
      const float* x = static_cast<const float*>(a.x) + (t * a.heads + h) * d;
      const float* table = static_cast<const float*>(a.table) + t * 2 * half;
      float* y = static_cast<float*>(a.out) + (t * a.heads + h) * d;
      for (int64_t i = 0; i < half; ++i) {
        y[i] = x[i] * table[i] - x[i + half] * table[half + i];
        y[i + half] = x[i + half] * table[i] + x[i] * table[half + i];
      }
      std::copy(x + 2 * half, x + d, y + 2 * half);
    }
}

template <typename Function>
void binary(const BinaryArgs& args, const LiveSizes& live, Function f) {
  const float *a = args.a, *b = args.b;
  float* out = args.out;
  for (int64_t i = 0; i < args.rows.value(live) * args.width; ++i) out[i] = f(a[i], b[i]);
}
inline void add(const BinaryArgs& a, const LiveSizes& live) {
  binary(a, live, [](float x, float y) { return x + y; });
}
inline void mul(const BinaryArgs& a, const LiveSizes& live) {
  binary(a, live, [](float x, float y) { return x * y; });
}
inline void silu(const UnaryArgs& a, const LiveSizes& live) {
  const float* x = a.x;
  float* out = a.out;
  for (int64_t i = 0; i < a.rows.value(live) * a.width; ++i) out[i] = x[i] / (1 + std::exp(-x[i]));
}

inline void slice(const SliceArgs& a, const LiveSizes& live) {
  const float* x = a.x;
  float* out = a.out;
  for (int64_t r = 0; r < a.rows.value(live); ++r) std::copy_n(x + r * a.width + a.begin, a.size, out + r * a.size);
}

inline void argmax(const UnaryArgs& a, const LiveSizes& live) {
  int32_t* out = a.out;
  for (int64_t r = 0; r < a.rows.value(live); ++r) {
    const float* x = static_cast<const float*>(a.x) + r * a.width;
    out[r] = static_cast<int32_t>(std::max_element(x, x + a.width) - x);
  }
}

// Every slot must exist: the process ends here on a negative one.
inline void row_write(const RowWriteArgs& a, const LiveSizes& live) {
  const float* rows = a.rows;
  const int32_t* slots = a.slots;
  float* cache = a.cache;
  for (int64_t t = 0; t < a.tokens.value(live); ++t) {
    CHECK(slots[t] >= 0, "row_write: slot {} of row {}", slots[t], t);
    std::copy_n(rows + t * a.width, a.width, cache + slots[t] * a.width);
  }
}

// One row of the step: the keys [first, last] of its sequence, whose row of the page table is given.
inline void attend_row(const PagedAttentionRowsArgs& a, int64_t t, int64_t first, int64_t last, const int32_t* pages) {
  const float *keys = a.keys, *values = a.values;
  const int64_t d = a.size, width = a.kv_heads * d, group = a.heads / a.kv_heads;
  const auto row = [&](int64_t key) { return (pages[key / kPageTokens] * kPageTokens + key % kPageTokens) * width; };
  for (int64_t head = 0; head < a.heads; ++head) {
    const float* q = static_cast<const float*>(a.q) + (t * a.heads + head) * d;
    float* y = static_cast<float*>(a.out) + (t * a.heads + head) * d;
    const int64_t column = head / group * d;
    float best = -std::numeric_limits<float>::infinity(), total = 0;
    std::vector<float> score;
    for (int64_t key = first; key <= last; ++key) {
      float s = 0;
      for (int64_t i = 0; i < d; ++i) s += q[i] * keys[row(key) + column + i];
      score.push_back(s * static_cast<float>(a.scale));
      best = std::max(best, score.back());
    }
    std::fill_n(y, d, 0.0f);
    const float* sinks = a.sinks;
    if (sinks) best = std::max(best, sinks[head]), total = std::exp(sinks[head] - best);
    for (float& s : score) total += s = std::exp(s - best);
    for (int64_t key = first; key <= last; ++key)
      for (int64_t i = 0; i < d; ++i)
        y[i] += score[static_cast<size_t>(key - first)] / total * values[row(key) + column + i];
  }
}

// On the host: lengths, first rows.
inline void paged_attention_rows(const LaunchArgs& args, const LiveSizes& live) {
  const auto& a = args.as<PagedAttentionRowsArgs>();
  const auto *lens = static_cast<const int32_t*>(args.host[0]), *starts = static_cast<const int32_t*>(args.host[1]);
  for (int64_t r = 0; r < a.sequences.value(live); ++r)
    for (int64_t t = starts[r]; t < starts[r + 1]; ++t) {
      const int64_t last = lens[r] - (starts[r + 1] - t);
      const int64_t first = a.window > 0 ? std::max<int64_t>(0, last - a.window + 1) : 0;
      attend_row(a, t, first, last, static_cast<const int32_t*>(a.page_table) + r * a.columns.value(live));
    }
}

inline void sample(const SampleArgs& a, const LiveSizes& live) {
  const int64_t n = a.columns, most = kMostTopTokens;
  int32_t *tokens = a.token, *top_tokens = a.top_tokens;
  float *logprobs = a.logprob, *top_logprobs = a.top_logprobs;
  std::vector<draw::Candidate> scratch(static_cast<size_t>(n));
  for (int64_t r = 0; r < a.rows.value(live); ++r) {
    const Draw d = draw::of_row(a.draws, r);
    const float* row = static_cast<const float*>(a.logits) + r * n;
    const float* from = d.edited > 0 ? static_cast<const float*>(a.edited) + (d.edited - 1) * n : row;
    const int32_t token = tokens[r] = draw::token(from, n, d, scratch.data());
    std::fill_n(top_tokens + r * most, most, -1);
    if (d.logprobs < 0 || token < 0) continue;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(row[i]));
    const auto logprob = [&](int64_t i) { return static_cast<float>(row[i] - std::log(sum)); };
    std::vector<int32_t> ids(static_cast<size_t>(n));
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t x, int32_t y) { return row[x] > row[y]; });
    logprobs[r] = logprob(token);
    for (int64_t i = 0; i < std::min<int64_t>(d.logprobs, most); ++i) {
      top_tokens[r * most + i] = ids[static_cast<size_t>(i)];
      top_logprobs[r * most + i] = logprob(ids[static_cast<size_t>(i)]);
    }
  }
}

inline void mask_logits(const MaskLogitsArgs& a, const LiveSizes& live) {
  const int64_t n = a.columns;
  for (int64_t r = 0; r < a.rows.value(live); ++r) {
    const LogitEdit e = edit::of_row(a.edits, r);
    const float* from = static_cast<const float*>(a.logits) + e.row * n;
    float* to = static_cast<float*>(a.out) + r * n;
    const auto* mask = static_cast<const uint32_t*>(a.words) + e.mask;
    for (int64_t i = 0; i < n; ++i) to[i] = e.mask < 0 || edit::allows(mask, i) ? from[i] : edit::forbidden(from[i]);
    edit::apply_lists(to, 0, n, e, a.words);
  }
}

template <class A>
void enter(void (*body)(const A&, const LiveSizes&), const LaunchArgs& args, const LiveSizes& live) {
  body(args.as<A>(), live);
}
// A body void(const Args&, const LiveSizes&) as a NullKernel.
template <auto kBody>
void kernel(const LaunchArgs& args, const LiveSizes& live) {
  enter(kBody, args, live);
}

}  // namespace plain

inline void register_plain_kernels(KernelRegistry& kernels) {
  const auto put = [&](const char* op, null::NullKernel kernel, std::vector<int> host = {}) {
    KernelEntry e;
    e.name = fmt::format("plain.{}", op);
    e.op = op;
    e.device = DeviceKind::Null;
    e.accepts = [](const OpCall& c) {
      for (const auto& types : {c.in, c.out})
        for (const TensorType& t : types)
          if (is_float(t.dtype) && t.dtype != DType::F32) return error(Code::Unsupported, "floats other than f32");
      return Status::ok();
    };
    e.bind = op_args(op).bind;
    e.part[0] = null::opaque(kernel);
    e.host_operands = std::move(host);
    kernels.add(std::move(e));
  };
  using plain::kernel;
  put("embedding", kernel<plain::embedding>);
  put("linear", kernel<plain::linear>);
  put("rms_norm", kernel<plain::rms_norm>);
  put("rope_table", kernel<plain::rope_table>);
  put("rope", kernel<plain::rope>);
  put("add", kernel<plain::add>);
  put("mul", kernel<plain::mul>);
  put("silu", kernel<plain::silu>);
  put("index_select", kernel<plain::embedding>);
  put("slice", kernel<plain::slice>);
  put("argmax", kernel<plain::argmax>);
  put("sample", kernel<plain::sample>);
  put("mask_logits", kernel<plain::mask_logits>);
  put("row_write", kernel<plain::row_write>);
  put("paged_attention_rows", plain::paged_attention_rows, {4, 5});
}

}  // namespace reprise::testing_support
