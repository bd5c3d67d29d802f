// Attention for tests: a batch of requests with its answer in double, pages of it, and one call of the fused operator.
//
// Plain values; the arrays of a call belong to the test.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "sim/ops/bench.h"

namespace sim_test {

inline constexpr int64_t kFar = 2147483647;

// One batch of requests, heads side by side: query [request][token][head][width], keys and values likewise.
struct Problem {
  Dims lengths, kv_lengths;
  int64_t heads = 4, kv_heads = 2, width = 16, value_width = 16, rope = 0;
  bool causal = false;  // the last query token sees the last key
  int64_t window = 0;   // and as many keys with its own
  std::vector<double> sinks;
  std::vector<std::vector<double>> q, k, v, q_rope, k_rope;

  void fill(aclDataType dtype, unsigned seed) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      q.push_back(kept(dtype, numbers(lengths[i] * heads * width, seed++)));
      k.push_back(kept(dtype, numbers(kv_lengths[i] * kv_heads * width, seed++)));
      v.push_back(kept(dtype, numbers(kv_lengths[i] * kv_heads * value_width, seed++)));
      q_rope.push_back(kept(dtype, numbers(lengths[i] * heads * rope, seed++)));
      k_rope.push_back(kept(dtype, numbers(kv_lengths[i] * kv_heads * rope, seed++)));
    }
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(width + rope)); }

  std::vector<double> row(size_t r, int64_t token, int64_t head) const {
    std::vector<double> out(static_cast<size_t>(value_width)), scores;
    const int64_t group = head / (heads / kv_heads);
    const int64_t end = causal ? kv_lengths[r] - lengths[r] + token + 1 : kv_lengths[r];
    const int64_t begin = window > 0 ? std::max<int64_t>(0, end - window) : 0;
    double highest = -1e300, sum = 0;
    for (int64_t j = begin; j < end; ++j) {
      double dot = 0;
      for (int64_t d = 0; d < width; ++d) {
        dot += q[r][(token * heads + head) * width + d] * k[r][(j * kv_heads + group) * width + d];
      }
      for (int64_t d = 0; d < rope; ++d) {
        dot += q_rope[r][(token * heads + head) * rope + d] * k_rope[r][(j * kv_heads + group) * rope + d];
      }
      scores.push_back(dot * scale());
      highest = std::max(highest, scores.back());
    }
    for (double& score : scores) sum += score = std::exp(score - highest);
    if (!sinks.empty()) sum += std::exp(sinks[static_cast<size_t>(head)] - highest);
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t d = 0; d < value_width; ++d) {
        out[d] += scores[static_cast<size_t>(j - begin)] / sum * v[r][(j * kv_heads + group) * value_width + d];
      }
    }
    return out;
  }
  std::vector<double> want() const {
    std::vector<double> all;
    for (size_t r = 0; r < lengths.size(); ++r) {
      for (int64_t token = 0; token < lengths[r]; ++token) {
        for (int64_t head = 0; head < heads; ++head) {
          const auto one = row(r, token, head);
          all.insert(all.end(), one.begin(), one.end());
        }
      }
    }
    return all;
  }
};

inline std::vector<double> join(const std::vector<std::vector<double>>& parts) {
  std::vector<double> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

inline Dims ends(const Dims& lengths) {
  Dims all;
  int64_t sum = 0;
  for (const int64_t length : lengths) all.push_back(sum += length);
  return all;
}

// [a][b][c][d] becomes [a][c][b][d].
inline std::vector<double> swapped(const std::vector<double>& x, int64_t a, int64_t b, int64_t c, int64_t d) {
  std::vector<double> y(x.size());
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = 0; j < b; ++j) {
      for (int64_t k = 0; k < c; ++k) {
        for (int64_t l = 0; l < d; ++l) y[((i * c + k) * b + j) * d + l] = x[((i * b + j) * c + k) * d + l];
      }
    }
  }
  return y;
}

enum class Pool { Rows, HeadMajor, Fractal };

// Pages in a scattered order; what no request fills stays NaN.
struct Paged {
  std::unique_ptr<Array> pool, table;
};
inline Paged paged(aclDataType dtype, const Problem& p, const std::vector<std::vector<double>>& rows, int64_t width,
                   int64_t page, Pool kind, int64_t room) {
  const auto requests = static_cast<int64_t>(p.kv_lengths.size()), blocks = requests * room + 1;
  std::vector<double> all(static_cast<size_t>(blocks * page * p.kv_heads * width), std::nan("")), ids;
  for (int64_t r = 0; r < requests; ++r) {
    for (int64_t i = 0; i < room; ++i) ids.push_back(static_cast<double>((r * room + i) * 7 % blocks));
    for (int64_t j = 0; j < p.kv_lengths[r]; ++j) {
      const auto id = static_cast<int64_t>(ids[r * room + j / page]), at = j % page;
      for (int64_t h = 0; h < p.kv_heads; ++h) {
        for (int64_t d = 0; d < width; ++d) {
          const int64_t place = kind == Pool::Rows ? ((id * page + at) * p.kv_heads + h) * width + d
                                : kind == Pool::HeadMajor
                                    ? ((id * p.kv_heads + h) * page + at) * width + d
                                    : (((id * p.kv_heads + h) * (width / 16) + d / 16) * page + at) * 16 + d % 16;
          all[place] = rows[r][(j * p.kv_heads + h) * width + d];
        }
      }
    }
  }
  for (int64_t r = 0; r < requests; ++r) {  // nobody may look behind a request's pages
    for (int64_t i = (p.kv_lengths[r] + page - 1) / page; i < room; ++i) ids[r * room + i] = -77;
  }
  const Dims shape = kind == Pool::Rows        ? Dims{blocks, page, p.kv_heads * width}
                     : kind == Pool::HeadMajor ? Dims{blocks, p.kv_heads, page, width}
                                               : Dims{blocks, p.kv_heads, width / 16, page, 16};
  return {std::make_unique<Array>(dtype, shape, all), std::make_unique<Array>(kInt32, Dims{requests, room}, ids)};
}

inline std::unique_ptr<Array> shared_mask() {
  auto mask = std::make_unique<Array>(kBool, Dims{2048, 2048});
  for (int64_t i = 0; i < 2048; ++i) {
    for (int64_t j = 0; j < 2048; ++j) mask->memory()[i * 2048 + j] = j > i;
  }
  return mask;
}

struct Call {
  Array *query, *key, *value, *out;
  Array *mask = nullptr, *table = nullptr, *q_rope = nullptr, *k_rope = nullptr, *lse = nullptr, *sinks = nullptr;
  Dims lengths, kv_lengths;
  const char* layout = "TND";
  int64_t sparse = 0, precise = 0, page = 0, before = kFar, after = kFar;
};

inline aclTensor* or_null(Array* array) { return array ? array->get() : nullptr; }

// Runs FusedInferAttentionScoreV3, or with sinks V4 (or only phase 1 of it).
inline aclnnStatus fused(const Problem& p, const Call& c, bool phase1_only = false) {
  const aclTensor *keys[] = {*c.key}, *values[] = {*c.value};
  aclTensorList *key = aclCreateTensorList(keys, 1), *value = aclCreateTensorList(values, 1);
  c.key->release();
  c.value->release();
  const Ints lengths(c.lengths), kv_lengths(c.kv_lengths);
  Array none(kFloat, {0});
  std::string layout = c.layout;
  const aclIntArray* q_lengths = c.lengths.empty() ? nullptr : static_cast<const aclIntArray*>(lengths);
  const aclIntArray* k_lengths = c.kv_lengths.empty() ? nullptr : static_cast<const aclIntArray*>(kv_lengths);
  const Phase1 phase1 = [&](uint64_t* size, aclOpExecutor** executor) {
    if (c.sinks)
      return aclnnFusedInferAttentionScoreV4GetWorkspaceSize(
          *c.query, key, value, nullptr, or_null(c.mask), q_lengths, k_lengths, nullptr, nullptr, nullptr, nullptr,
          nullptr, nullptr, nullptr, or_null(c.table), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
          nullptr, nullptr, or_null(c.q_rope), or_null(c.k_rope), nullptr, nullptr, *c.sinks, p.heads, p.scale(),
          c.before, c.after, layout.data(), p.kv_heads, c.sparse, c.precise, c.page, 0, c.lse != nullptr, 0, 0, 0,
          *c.out, c.lse ? c.lse->get() : none.get(), size, executor);
    return aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
        *c.query, key, value, nullptr, or_null(c.mask), q_lengths, k_lengths, nullptr, nullptr, nullptr, nullptr,
        nullptr, nullptr, nullptr, or_null(c.table), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
        nullptr, nullptr, or_null(c.q_rope), or_null(c.k_rope), nullptr, p.heads, p.scale(), c.before, c.after,
        layout.data(), p.kv_heads, c.sparse, c.precise, c.page, 0, c.lse != nullptr, 0, 0, *c.out,
        c.lse ? c.lse->get() : none.get(), size, executor);
  };
  const auto phase2 = c.sinks ? aclnnFusedInferAttentionScoreV4 : aclnnFusedInferAttentionScoreV3;
  const aclnnStatus status = phase1_only ? refused(phase1) : run(phase1, phase2);
  aclDestroyTensorList(key);
  aclDestroyTensorList(value);
  return status;
}

}  // namespace sim_test
