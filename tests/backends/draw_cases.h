// Cases for the ops that draw tokens and change logits, for the tests of all devices.
#pragma once

#include "backends/op_runner.h"
#include "ops/draw.h"
#include "ops/logit_edit.h"

namespace reprise::cpu {

constexpr int64_t kMost = kMostTopTokens;

inline TestTensor draws_of(const std::vector<Draw>& draws) {
  TestTensor t = zero_tensor(DType::I32, {static_cast<int64_t>(draws.size()), kDrawWords});
  std::memcpy(t.bytes.data(), draws.data(), t.bytes.size());
  return t;
}

// Rows of logits as models give them: a normal cloud, and a few tokens far above it.
inline TestTensor logits_of(int64_t rows, int64_t n, uint32_t seed) {
  TestTensor t = zero_tensor(DType::F32, {rows, n});
  std::mt19937 gen(seed);
  std::normal_distribution<double> cloud(0, 2);
  for (int64_t i = 0; i < t.size(); ++i) t.set(i, cloud(gen));
  for (int64_t r = 0; r < rows; ++r)
    for (int i = 0; i < 5; ++i) t.set(r * n + static_cast<int64_t>(gen() % static_cast<uint64_t>(n)), 6 + 1.5 * i);
  return t;
}

inline std::vector<Draw> draws_for(int64_t rows, uint64_t seed) {
  std::vector<Draw> out;
  for (int64_t r = 0; r < rows; ++r) {
    Draw d{.scale = 0.3f + 0.25f * static_cast<float>(r % 7), .seed = seed, .position = r};
    if (r % 8 == 1) d.scale = 0;
    if (r % 8 == 2) d.top_k = 1 + static_cast<int32_t>(r * 3);
    if (r % 8 == 3) d.top_p = 0.9f;
    if (r % 8 == 4) d.min_p = 0.05f;
    if (r % 8 == 5) d.top_k = 50, d.top_p = 0.7f, d.min_p = 0.01f;
    if (r % 8 == 6) d.top_p = 0.999f, d.scale = 0.05f;
    if (r % 8 == 7) d.top_k = 1 << 30;
    d.logprobs = static_cast<int32_t>(r % 3 == 0 ? -1 : r % 21);
    out.push_back(d);
  }
  return out;
}

// Changes of one row in the plainest form.
struct EditCase {
  int32_t row = 0;
  std::vector<bool> allowed;  // empty: all
  std::vector<TokenBias> biases;
  std::vector<TokenCount> counts;
  float repetition = 1, frequency = 0, presence = 0;
};

struct EditTensors {
  TestTensor edits, words;
};

// As a step stages them, behind some words that belong to nobody.
inline EditTensors staged(const std::vector<EditCase>& cases) {
  std::vector<int32_t> words(5, -1);
  std::vector<LogitEdit> edits;
  const auto put = [&](auto list) {
    const auto at = static_cast<int32_t>(words.size());
    words.resize(words.size() + list.size() * 2);
    if (!list.empty()) std::memcpy(&words[static_cast<size_t>(at)], list.data(), list.size() * 8);
    return at;
  };
  for (const EditCase& c : cases) {
    LogitEdit e{.row = c.row, .repetition = c.repetition, .frequency = c.frequency, .presence = c.presence};
    if (!c.allowed.empty()) {
      e.mask = static_cast<int32_t>(words.size());
      words.resize(words.size() + (c.allowed.size() + 31) / 32);
      for (size_t i = 0; i < c.allowed.size(); ++i)
        if (c.allowed[i]) words[static_cast<size_t>(e.mask) + i / 32] |= static_cast<int32_t>(uint32_t{1} << (i % 32));
    }
    e.biases = put(c.biases), e.bias_count = static_cast<int32_t>(c.biases.size());
    e.counts = put(c.counts), e.count_count = static_cast<int32_t>(c.counts.size());
    edits.push_back(e);
  }
  EditTensors t{zero_tensor(DType::I32, {static_cast<int64_t>(edits.size()), kEditWords}),
                zero_tensor(DType::I32, {static_cast<int64_t>(words.size())})};
  if (!edits.empty()) std::memcpy(t.edits.bytes.data(), edits.data(), t.edits.bytes.size());
  std::memcpy(t.words.bytes.data(), words.data(), t.words.bytes.size());
  return t;
}

// Of a vocabulary of n: a mask, lists that name the first and the last token, both, neither.
inline std::vector<EditCase> edit_cases(int64_t rows, int64_t n, uint32_t seed) {
  std::mt19937 gen(seed);
  const auto token = [&] { return static_cast<int32_t>(gen() % static_cast<uint64_t>(n)); };
  std::vector<EditCase> out(5);
  for (EditCase& c : out) c.row = static_cast<int32_t>(gen() % static_cast<uint64_t>(rows));
  for (const size_t masked : {0, 3}) {
    for (int64_t i = 0; i < n; ++i) out[masked].allowed.push_back(gen() % 3 == 0);
    out[masked].allowed.back() = true;
  }
  for (const size_t listed : {1, 2, 3}) {
    EditCase& c = out[listed];
    c.repetition = listed == 2 ? 1.0f : 1.6f;
    c.frequency = 0.3f, c.presence = -0.7f;
    std::vector<bool> seen(static_cast<size_t>(n));
    for (const int32_t t : {0, static_cast<int32_t>(n - 1), token(), token(), token()})
      if (!seen[static_cast<size_t>(t)]) {
        seen[static_cast<size_t>(t)] = true;
        c.biases.push_back({t, listed == 1 && t == 0 ? -std::numeric_limits<float>::infinity() : 2.25f});
        c.counts.push_back({t, t % 4});
      }
    c.counts.push_back({static_cast<int32_t>(n), 3});  // of a prompt from elsewhere: there is no such token
    c.counts.push_back({-1, 1});
  }
  return out;
}

// Columns [first, first + count) of numbers of four bytes.
inline TestTensor columns_of(const TestTensor& t, int64_t first, int64_t count) {
  const int64_t rows = t.type.shape[0].factor, n = t.type.shape[1].factor;
  TestTensor out = zero_tensor(t.type.dtype, {rows, count});
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(out.as<float>() + r * count, t.as<float>() + r * n + first, static_cast<size_t>(count) * sizeof(float));
  return out;
}

// Side by side, as all_gather has it. All types have four bytes.
inline TestTensor side_by_side(const std::vector<TestTensor>& parts) {
  const int64_t rows = parts[0].type.shape[0].factor;
  int64_t n = 0, at = 0;
  for (const TestTensor& p : parts) n += p.type.shape[1].factor;
  TestTensor out = zero_tensor(parts[0].type.dtype, {rows, n});
  for (const TestTensor& p : parts) {
    const int64_t width = p.type.shape[1].factor;
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(out.as<int32_t>() + r * n + at, p.as<int32_t>() + r * width, static_cast<size_t>(width) * 4);
    at += width;
  }
  return out;
}

}  // namespace reprise::cpu
