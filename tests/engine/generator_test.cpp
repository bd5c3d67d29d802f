#include "engine/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>

namespace reprise::engine::generator_test {
namespace {

constexpr int64_t kVocab = 50;
constexpr int32_t kEos = 49;

// The logits of a history: any function of all its tokens will do, as long as it takes all of them.
std::vector<float> logits_of(std::span<const int32_t> history) {
  uint64_t h = 1469598103934665603u;
  for (int32_t t : history) h = (h ^ static_cast<uint64_t>(t)) * 1099511628211u;
  std::vector<float> row(kVocab);
  for (float& v : row) {
    h = h * 6364136223846793005u + 1442695040888963407u;
    v = static_cast<float>(h >> 40) / (1 << 22);
  }
  row[kEos] = static_cast<float>(h >> 60) - 11.0f;  // wins now and then
  return row;
}

// An engine without a model. It checks what a step may ask of it and counts pages like the real one.
class FakeEngine : public Engine {
 public:
  FakeEngine(int64_t rows, int64_t step_tokens, int64_t pages, int64_t context)
      : rows_(rows), step_tokens_(step_tokens), pages_(pages), free_(pages), context_(context) {
    config_.vocab_size = kVocab;
    config_.eos_token_ids = {kEos};
  }
  const checkpoint::ModelConfigFields& config() const override { return config_; }
  const checkpoint::Checkpoint* checkpoint() const override { return nullptr; }
  const EngineOptions& options() const override { return options_; }
  Device& device() override { return *device_; }
  MemoryReport memory() const override {
    MemoryReport m;
    m.kv_pages = pages_;
    return m;
  }
  LoadTimes load_times() const override { return {}; }
  int64_t context_length() const override { return context_; }
  int64_t max_step_tokens() const override { return step_tokens_; }
  int64_t max_step_rows() const override { return rows_; }
  DType dtype() const override { return DType::F32; }
  size_t weight_bytes_per_step() const override { return 0; }
  size_t kv_bytes_per_token() const override { return 0; }
  std::string graph_text() const override { return ""; }

  Status reserve(Sequence& sequence, int64_t tokens) override {
    const int64_t more = kv::pages_for(tokens) - static_cast<int64_t>(sequence.pages().size());
    if (more > free_) return error(Code::OutOfMemory, "{} pages asked for, {} free", more, free_);
    for (int64_t i = 0; i < more; ++i) sequence.pages().push_back(1);
    free_ -= std::max<int64_t>(more, 0);
    return Status::ok();
  }
  void release(Sequence& sequence) override {
    free_ += static_cast<int64_t>(sequence.pages().size());
    sequence.pages().clear();
  }
  int64_t free_pages() const override { return free_; }
  kv::KvPool& kv_pool() override { return no_pool_; }
  Status copy_page(kv::PageId, kv::PageId) override { return error(Code::Unsupported, "there are no pages"); }

  Result<std::span<float>> step(std::span<const StepItem> items) override {
    int64_t tokens = 0;
    out_.clear();
    if (items.empty() || static_cast<int64_t>(items.size()) > rows_) return invalid("{} items", items.size());
    if (++steps == fail_at) return error(Code::Device, "the device is gone");
    most_rows = std::max(most_rows, static_cast<int64_t>(items.size()));
    for (const StepItem& item : items) {
      Sequence& s = *item.sequence;
      const int64_t end = s.cached() + item.count;
      if (item.count < 1 || end > s.size()) return invalid("{} tokens of {}", item.count, s.uncached());
      if (kv::pages_for(end) > static_cast<int64_t>(s.pages().size())) return invalid("no page for token {}", end);
      tokens += item.count;
      s.set_cached(end);
      if (!item.wants_logits) continue;
      auto row = logits_of(std::span(s.tokens()).first(static_cast<size_t>(end)));
      if (nan_at && *nan_at == end) row[3] = std::numeric_limits<float>::quiet_NaN();
      out_.insert(out_.end(), row.begin(), row.end());
    }
    if (tokens > step_tokens_) return invalid("{} tokens in a step of {}", tokens, step_tokens_);
    return std::span<float>(out_);
  }

  int64_t steps = 0, fail_at = -1, most_rows = 0;
  std::optional<int64_t> nan_at;

 private:
  checkpoint::ModelConfigFields config_;
  EngineOptions options_;
  std::unique_ptr<Device> device_;
  kv::KvPool no_pool_;
  int64_t rows_, step_tokens_, pages_, free_, context_;
  std::vector<float> out_;
};

std::vector<int32_t> greedy_reference(std::vector<int32_t> history, int64_t most) {
  std::vector<int32_t> out;
  while (static_cast<int64_t>(out.size()) < most) {
    const auto row = logits_of(history);
    out.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    history.push_back(out.back());
    if (out.back() == kEos) break;
  }
  return out;
}

std::vector<GenerationRequest> many_requests(size_t n) {
  std::vector<GenerationRequest> requests(n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t t = 0; t <= (i * 37) % 150; ++t) requests[i].prompt.push_back(static_cast<int32_t>((i + 3 * t) % 48));
    requests[i].sampling.max_new_tokens = 1 + static_cast<int64_t>(i * 13 % 40);
  }
  return requests;
}

std::vector<GenerationResult> run_ok(FakeEngine& engine, const std::vector<GenerationRequest>& requests) {
  const int64_t before = engine.free_pages();
  auto results = Generator(engine).run(requests);
  EXPECT_TRUE(results.is_ok()) << results.status().message();
  EXPECT_EQ(engine.free_pages(), before);
  return results ? std::move(results).value() : std::vector<GenerationResult>(requests.size());
}

TEST(Generator, GreedyEqualsTheReferenceHoweverItIsPacked) {
  const auto requests = many_requests(40);
  struct Setting {
    int64_t rows, tokens, pages;
  };
  for (const Setting s : {Setting{64, 2048, 500}, Setting{1, 1, 2}, Setting{3, 7, 500}, Setting{8, 100, 3},
                          Setting{64, 5, 500}, Setting{2, 4096, 500}}) {
    FakeEngine engine(s.rows, s.tokens, s.pages, 400);
    const auto results = run_ok(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto expected = greedy_reference(requests[i].prompt, requests[i].sampling.max_new_tokens);
      EXPECT_EQ(results[i].tokens, expected) << "request " << i << ", rows " << s.rows << ", tokens " << s.tokens;
      EXPECT_EQ(results[i].finish, expected.back() == kEos ? FinishReason::Stop : FinishReason::Length);
      EXPECT_GT(results[i].ttft_s, 0);
    }
    EXPECT_LE(engine.most_rows, s.rows);
  }
}

TEST(Generator, SampledTextDoesNotDependOnTheBatch) {
  auto requests = many_requests(20);
  for (auto& r : requests) {
    r.sampling.temperature = 1.2;
    r.sampling.top_p = 0.95;
    r.sampling.repetition_penalty = 1.1;
    r.sampling.seed = 9;
  }
  FakeEngine wide(64, 2048, 500, 400);
  const auto together = run_ok(wide, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    FakeEngine alone(1, 16, 500, 400);
    EXPECT_EQ(run_ok(alone, {requests[i]})[0].tokens, together[i].tokens) << i;
  }
}

TEST(Generator, EventsCarryEveryTokenInOrder) {
  const auto requests = many_requests(10);
  FakeEngine engine(4, 64, 500, 400);
  std::map<size_t, std::vector<int32_t>> seen;
  std::map<size_t, FinishReason> finish;
  auto results = Generator(engine).run(requests, [&](const TokenEvent& e) {
    EXPECT_FALSE(finish.contains(e.request) && finish[e.request] != FinishReason::None);
    seen[e.request].push_back(e.token.token);
    finish[e.request] = e.finish;
    return true;
  });
  ASSERT_TRUE(results.is_ok());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(seen[i], (*results)[i].tokens);
    EXPECT_EQ(finish[i], (*results)[i].finish);
  }
}

TEST(Generator, TheSinkEndsARequest) {
  auto requests = many_requests(6);
  for (auto& r : requests) {
    r.sampling.max_new_tokens = 30;
    r.sampling.ignore_eos = true;
  }
  FakeEngine engine(6, 64, 500, 400);
  size_t count = 0;
  auto results = Generator(engine).run(requests, [&](const TokenEvent& e) { return e.request != 2 || ++count < 5; });
  ASSERT_TRUE(results.is_ok());
  EXPECT_EQ((*results)[2].tokens.size(), 5u);
  EXPECT_EQ((*results)[2].finish, FinishReason::Stop);
  for (size_t i : {0u, 1u, 3u, 4u, 5u}) EXPECT_EQ((*results)[i].tokens.size(), 30u);
  EXPECT_EQ(engine.free_pages(), 500);
}

TEST(Generator, EndTokens) {
  GenerationRequest r;
  r.prompt = {1, 2, 3};
  r.sampling.max_new_tokens = 300;
  FakeEngine engine(4, 64, 500, 400);
  const auto plain = run_ok(engine, {r})[0];
  ASSERT_EQ(plain.finish, FinishReason::Stop);
  EXPECT_EQ(plain.tokens.back(), kEos);

  r.sampling.ignore_eos = true;
  const auto ignoring = run_ok(engine, {r})[0];
  EXPECT_EQ(ignoring.finish, FinishReason::Length);
  EXPECT_EQ(ignoring.tokens.size(), 300u);

  r.sampling.stop_token_ids = {ignoring.tokens[4]};
  const auto stopped = run_ok(engine, {r})[0];
  EXPECT_EQ(stopped.finish, FinishReason::Stop);
  EXPECT_LE(stopped.tokens.size(), 5u);
  EXPECT_EQ(stopped.tokens.back(), ignoring.tokens[4]);

  r.sampling.min_new_tokens = 60;
  const auto longer = run_ok(engine, {r})[0];
  EXPECT_GE(longer.tokens.size(), 60u);
}

TEST(Generator, LogprobsComeWithTheResult) {
  GenerationRequest r;
  r.prompt = {1};
  r.sampling.max_new_tokens = 5;
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 2;
  FakeEngine engine(4, 64, 500, 400);
  const auto result = run_ok(engine, {r})[0];
  ASSERT_EQ(result.sampled.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(result.sampled[i].token, result.tokens[i]);
    EXPECT_EQ(result.sampled[i].top[0].token, result.tokens[i]);
    EXPECT_EQ(result.sampled[i].top.size(), 2u);
  }
}

TEST(Generator, TheContextCutsTheAnswer) {
  GenerationRequest r;
  r.prompt.assign(130, 5);
  r.sampling.max_new_tokens = 1000;
  r.sampling.ignore_eos = true;
  FakeEngine engine(4, 64, 2, 140);
  const auto result = run_ok(engine, {r})[0];
  EXPECT_EQ(result.tokens.size(), 10u);
  EXPECT_EQ(result.finish, FinishReason::Length);
}

TEST(Generator, ThePoolDecidesHowManyRunTogether) {
  auto requests = many_requests(12);
  for (auto& r : requests) {
    r.prompt.resize(100, 7);
    r.sampling.max_new_tokens = 100;  // two pages each
    r.sampling.ignore_eos = true;
  }
  FakeEngine engine(8, 512, 5, 400);
  const auto results = run_ok(engine, requests);
  EXPECT_EQ(engine.most_rows, 2);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(results[i].tokens.size(), 100u);
}

TEST(Generator, BadRequestsAreErrorsBeforeAnythingRuns) {
  const auto message_of = [](GenerationRequest bad) {
    FakeEngine engine(4, 64, 2, 400);
    GenerationRequest good;
    good.prompt = {1};
    auto result = Generator(engine).run(std::vector{good, bad});
    EXPECT_FALSE(result.is_ok());
    EXPECT_EQ(engine.steps, 0);
    EXPECT_EQ(engine.free_pages(), 2);
    return result.status().message();
  };
  GenerationRequest r;
  EXPECT_NE(message_of(r).find("request 1: the prompt is empty"), std::string::npos);
  r.prompt = {1, 50};
  EXPECT_NE(message_of(r).find("token 50"), std::string::npos);
  r.prompt.assign(400, 1);
  EXPECT_NE(message_of(r).find("400"), std::string::npos);
  r.prompt.assign(300, 1);
  EXPECT_NE(message_of(r).find("the pool has 2"), std::string::npos);
  r.prompt = {1};
  r.sampling.top_p = 2;
  EXPECT_NE(message_of(r).find("top_p"), std::string::npos);
}

TEST(Generator, PagesComeBackAfterAnError) {
  const auto requests = many_requests(10);
  for (int64_t at : {1, 2, 5}) {
    FakeEngine engine(4, 64, 50, 400);
    engine.fail_at = at;
    auto result = Generator(engine).run(requests);
    ASSERT_FALSE(result.is_ok());
    EXPECT_EQ(result.status().code(), Code::Device);
    EXPECT_EQ(engine.free_pages(), 50);
  }
  FakeEngine engine(4, 64, 50, 400);
  engine.nan_at = 1;  // the first request's only prompt token
  auto result = Generator(engine).run(requests);
  ASSERT_FALSE(result.is_ok());
  EXPECT_NE(result.status().message().find("request 0, token 0"), std::string::npos) << result.status().message();
  EXPECT_EQ(engine.free_pages(), 50);
}

TEST(Generator, TimesCountTokensAndSteps) {
  auto requests = many_requests(3);
  int64_t prompt_tokens = 0;
  for (auto& r : requests) {
    r.sampling.max_new_tokens = 10;
    r.sampling.ignore_eos = true;
    prompt_tokens += static_cast<int64_t>(r.prompt.size());
  }
  FakeEngine engine(4, 16, 50, 400);
  Generator generator(engine);
  ASSERT_TRUE(generator.run(requests).is_ok());
  EXPECT_EQ(generator.times().prefill_tokens, prompt_tokens);
  EXPECT_EQ(generator.times().prefill_steps, (prompt_tokens + 15) / 16);
  EXPECT_EQ(generator.times().decode_tokens, 3 * 9);
  EXPECT_EQ(generator.times().decode_steps, 9);
}

TEST(Generator, NoRequestsIsNoWork) {
  FakeEngine engine(4, 16, 50, 400);
  EXPECT_TRUE(run_ok(engine, {}).empty());
  EXPECT_EQ(engine.steps, 0);
}

}  // namespace
}  // namespace reprise::engine::generator_test
