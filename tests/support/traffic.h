// Traffic: sequences of made-up tokens that an engine reads and continues step by step, for tests that compare all its
// logits. It gives its pages back in the end. One thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "engine/engine.h"

namespace reprise::testing_support {

// Nothing captured, nothing fused: the run that others are compared with.
inline engine::GraphOptions eager() {
  engine::GraphOptions g;
  g.policy = engine::GraphPolicy::Off;
  g.pipeline.passes.enable = {"none"};
  return g;
}

class Traffic {
 public:
  // A prompt of every length, and room for so many tokens more.
  Traffic(engine::Engine& e, const std::vector<int64_t>& lengths, int room, uint32_t seed = 7)
      : engine_(e), seed_(seed) {
    for (const int64_t n : lengths) {
      std::vector<int32_t> prompt(static_cast<size_t>(n));
      for (auto& t : prompt) t = token();
      sequences.emplace_back(prompt);
    }
    for (auto& s : sequences) EXPECT_TRUE(e.reserve(s, s.size() + room).is_ok());
  }
  ~Traffic() {
    for (auto& s : sequences) engine_.release(s);
  }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  // What is to be computed of every sequence, all in one step.
  std::vector<engine::StepItem> items() {
    std::vector<engine::StepItem> out;
    for (auto& s : sequences) out.push_back({&s, s.uncached(), 1});
    return out;
  }
  // A token behind each, whatever was computed.
  void append() {
    for (auto& s : sequences) s.append(token());
  }
  // All that is there, then so many decode steps; every logit.
  std::vector<float> run(int decodes) {
    std::vector<float> out;
    for (int i = 0; i <= decodes; ++i) {
      auto logits = engine_.step(items());
      EXPECT_TRUE(logits.is_ok()) << logits.status().message();
      if (logits.is_ok()) out.insert(out.end(), logits->begin(), logits->end());
      append();
    }
    return out;
  }

  std::vector<engine::Sequence> sequences;

 private:
  int32_t token() {
    seed_ = seed_ * 1664525u + 1013904223u;
    return static_cast<int32_t>((seed_ >> 8) % static_cast<uint32_t>(engine_.config().vocab_size));
  }

  engine::Engine& engine_;
  uint32_t seed_;
};

// first + i * step % modulus for i in [0, count).
inline std::vector<int64_t> lengths(int64_t count, int64_t first, int64_t step, int64_t modulus) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(first + i * step % modulus);
  return out;
}

}  // namespace reprise::testing_support
