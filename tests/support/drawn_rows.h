// Rows of which each is drawn in another way, by an engine of one rank or several, shared by tests of several devices.
#pragma once

#include <gtest/gtest.h>

#include <set>

#include "engine/local_world.h"
#include "engine/sampling.h"
#include "ops/draw_parts.h"
#include "support/applied.h"
#include "support/tiny_models.h"

namespace reprise::testing_support {

// Each kind of draw; the logits of random weights are close together, so shares of them are of many tokens.
inline Draw draw_of_kind(size_t kind, int64_t position) {
  Draw d{.scale = 1, .seed = 40 + kind, .position = position};
  if (kind == 0) d.scale = 0;
  if (kind == 2) d.top_k = 40;
  if (kind == 3) d.top_p = 0.9f, d.scale = 4;
  if (kind == 4) d.min_p = 0.05f;
  if (kind == 5) d.top_k = 20, d.top_p = 0.8f;
  if (kind == 6) d.top_p = 0.95f, d.scale = 3;
  if (kind == 7) d.logprobs = 5;
  if (kind == 8) d.top_p = 0.999f, d.scale = 0.001f;  // more tokens than a rank sends, where it has as many
  if (kind == 9) d.logprobs = 20, d.top_k = 3;
  return d;
}
constexpr size_t kKinds = 10;
constexpr uint64_t kSteps = 3;

struct Answers {
  std::vector<int32_t> tokens, told;  // drawn, and beside log-probabilities
  std::vector<float> numbers;         // log-probabilities, then logits
  uint64_t gathered = 0;              // in steps whose rows all draw
  uint64_t gathered_too = 0;          // in the last step, where one row's logits are wanted
};

// By the host's rule, from whole logits.
inline void draw_on_host(std::span<float> logits, const engine::StepItem& item, std::vector<int32_t>& scratch,
                         Answers& a) {
  const std::vector<float> plain(logits.begin(), logits.end());
  item.edits.apply(logits);
  scratch.resize(2 * logits.size());
  const int32_t token = draw::token(logits.data(), static_cast<int64_t>(logits.size()), *item.draw,
                                    reinterpret_cast<draw::Candidate*>(scratch.data()));
  a.tokens.push_back(token);
  if (item.draw->logprobs < 0) return;
  const auto told = engine::score_token(plain, token, item.draw->logprobs);
  ASSERT_TRUE(told.is_ok()) << told.status().message();
  a.numbers.push_back(*told->logprob);
  for (const engine::TokenLogprob& t : told->top) {
    a.numbers.push_back(t.logprob);
    a.told.push_back(t.token);
  }
}

// What a sampled step gave for an item that brought a Draw.
inline void take_drawn(const engine::StepResult& result, size_t row, const engine::StepItem& item, Answers& a) {
  a.tokens.push_back(result.tokens[row]);
  if (item.draw->logprobs < 0) return;
  a.numbers.push_back(result.logprobs[row]);
  const auto shown = static_cast<size_t>(item.draw->logprobs);
  for (size_t k = row * kMostTopTokens; k < row * kMostTopTokens + shown; ++k) {
    a.numbers.push_back(result.top_logprobs[k]);
    a.told.push_back(result.top_tokens[k]);
  }
}

// Some steps of single tokens, each row drawn in another way; an engine that draws no tokens gives logits, from which
// the host draws.
inline Answers answers_of(engine::Engine& e) {
  Answers a;
  const int64_t vocabulary = e.vocab_size();
  const auto width = static_cast<size_t>(vocabulary);
  std::vector<int32_t> scratch;
  std::vector<engine::Sequence> sequences;
  for (size_t i = 0; i < kKinds; ++i) {
    std::vector<int32_t> tokens;
    for (size_t k = 0; k < 2 + i % 7; ++k) tokens.push_back(static_cast<int32_t>((31 * i + 7 * k) % 300));
    sequences.emplace_back(std::move(tokens));
    EXPECT_TRUE(e.reserve(sequences.back(), 40).is_ok());
  }
  const std::vector<uint64_t> allowed(static_cast<size_t>((vocabulary + 63) / 64), 0xa249249249249249u);
  std::vector<TokenCount> counts;
  std::vector<TokenBias> biases;
  for (int32_t token = 0; token < static_cast<int32_t>(vocabulary); token += 37) {
    counts.push_back({token, token % 3});
    biases.push_back({token, 0.75f});
  }
  const auto step = [&](size_t without_draw) {
    std::vector<engine::StepItem> items;
    for (size_t i = 0; i < kKinds; ++i) {
      engine::StepItem item{&sequences[i], sequences[i].uncached(), 1};
      if (i != without_draw) item.draw = draw_of_kind(i, sequences[i].size());
      if (i != without_draw && (i == 2 || i == 5))
        item.edits = {.counts = counts, .repetition = 1.4f, .presence = 0.3f};
      if (i == 6 || i == 7) item.edits = {.allowed = allowed, .biases = biases};
      items.push_back(item);
    }
    const bool drawn = e.has_sampled_steps();
    const auto ticket = e.submit(items, drawn ? engine::StepOutput::Sampled : engine::StepOutput::Logits);
    ASSERT_TRUE(ticket.is_ok()) << ticket.status().message();
    const auto result = e.wait(*ticket);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    for (size_t i = 0; i < kKinds; ++i) {
      if (i == without_draw) {
        sequences[i].append(1);
        continue;
      }
      if (drawn)
        take_drawn(*result, i, items[i], a);
      else
        draw_on_host(result->logits.subspan(i * width, width), items[i], scratch, a);
      sequences[i].append(std::max(0, a.tokens.back()));
    }
    if (without_draw < kKinds) {
      const auto row = result->logits.subspan(without_draw * width, width);
      a.numbers.insert(a.numbers.end(), row.begin(), row.end());
    }
  };
  const uint64_t before = e.counters().logits_gathered;
  for (uint64_t i = 0; i < kSteps; ++i) step(kKinds);
  a.gathered = e.counters().logits_gathered - before;
  step(3);
  a.gathered_too = e.counters().logits_gathered - before - a.gathered;
  for (auto& s : sequences) e.release(s);
  return a;
}

inline void expect_same(const Answers& one, const Answers& many) {
  EXPECT_EQ(one.tokens, many.tokens);
  EXPECT_EQ(one.told, many.told);
  EXPECT_TRUE(same_bits(one.numbers, many.numbers));
}

constexpr int64_t kVocabulary = 2100;  // large enough for what ranks draw, which those of tiny models are not

// An engine of one rank, or of as many.
struct DrawnCase {
  std::string model;
  int size;
  engine::GraphPolicy policy = engine::GraphPolicy::Auto;
  DeviceKind device = DeviceKind::Cpu;
  GraphMode decode = GraphMode::Whole;
  const CudaStandIn* cuda = nullptr;
};

inline Result<std::unique_ptr<engine::Engine>> open_drawn(const DrawnCase& c, int64_t vocabulary,
                                                          std::shared_ptr<ranks::Member> member) {
  DeviceOptions device;
  device.kind = c.device;
  device.ascend_runtime = "sim";
  device.cuda_stand_in = c.cuda;
  device.threads = 2;
  device.pin_threads = false;
  device.member = member;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.member = std::move(member);
  o.model_path = tiny_model_path(c.model);
  o.load_format = engine::LoadFormat::Dummy;
  o.overrides = {fmt::format("vocab_size={}", vocabulary)};
  o.dtype = c.device == DeviceKind::Cpu ? DType::F32 : DType::BF16;
  o.context_length = 256;
  o.max_running_requests = 16;
  o.chunked_prefill_size = 64;
  o.max_total_tokens = 24 * 128;
  o.graph.policy = c.policy;
  o.graph.decode = c.decode;
  if (c.device != DeviceKind::Cpu) o.graph.decode_sizes = {16}, o.graph.prefill_sizes = {64};
  o.graph.verify = {.each = 4};
  return engine::Engine::create(o, std::move(platform));
}

// Where a rank has more tokens than it sends, a share of nearly all of them is not decided by what is sent. On the CPU
// ranks gather the rows of log-probabilities as well.
inline void expect_drawn_as_alone(const DrawnCase& c) {
  const auto alone = open_drawn(c, kVocabulary, nullptr);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Answers one = answers_of(**alone);
  EXPECT_EQ(one.gathered + one.gathered_too, 0u);
  EXPECT_GT(std::set<int32_t>(one.tokens.begin(), one.tokens.end()).size(), 20u);  // they are drawn from many
  const auto world = engine::LocalWorld::start(
      c.size, [&](std::shared_ptr<ranks::Member> m) { return open_drawn(c, kVocabulary, std::move(m)); });
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  const Answers many = answers_of((*world)->front());
  expect_same(one, many);
  const uint64_t undecided = kVocabulary / c.size > draw::kMostCandidates ? 1 : 0;
  EXPECT_EQ(many.gathered, kSteps * (undecided + (c.device == DeviceKind::Cpu ? 2 : 0)));
  EXPECT_EQ(many.gathered_too, kKinds);
  EXPECT_GT(applied((*world)->front(), "exchange their best tokens"), 0);
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

}  // namespace reprise::testing_support
