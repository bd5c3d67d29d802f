// F61: scores of tasks that SmolLM2 can do, against Hugging Face transformers in fp32 on the same file
// (tests/data/tasks/README.md): 40 questions with four endings each, and a text's perplexity.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "evaluation/perplexity.h"
#include "sched/scorer.h"
#include "support/goldens.h"
#include "support/smollm2.h"
#include "support/tiny_models.h"

namespace reprise::accuracy_test {
namespace {

using Ids = std::vector<int32_t>;

const Json& golden() {
  static const Json json = testing_support::golden_json("tasks/golden.json");
  return json;
}

struct Form {
  DType dtype = DType::F32;
  checkpoint::Quantization quantization = checkpoint::Quantization::Auto;
  engine::GraphPolicy policy = engine::GraphPolicy::Auto;
  GraphMode decode = GraphMode::Whole, prefill = GraphMode::Piecewise;
  std::vector<std::string> passes = {};
};

std::unique_ptr<engine::Engine> open(const std::string& path, const Form& form) {
  DeviceOptions device;
  device.threads = 2;
  device.pin_threads = false;
  engine::EngineOptions o;
  if (const Status s = testing_support::apply_test_mode(o, device); !s.is_ok()) {
    ADD_FAILURE() << s.message();
    return nullptr;
  }
  o.model_path = path;
  o.dtype = form.dtype;
  o.quantization = form.quantization;
  o.context_length = 1024;
  o.chunked_prefill_size = 512;
  o.max_running_requests = 64;
  o.max_total_tokens = 64 * 128;
  if (form.policy != engine::GraphPolicy::Auto) o.graph.policy = form.policy;
  if (form.decode != GraphMode::Whole) o.graph.decode = form.decode;
  if (form.prefill != GraphMode::Piecewise) o.graph.prefill = form.prefill;
  if (!form.passes.empty()) o.graph.pipeline.passes.enable = form.passes;
  auto platform = make_platform(device);
  EXPECT_TRUE(platform.is_ok()) << platform.status().message();
  auto e = engine::Engine::create(o, std::move(*platform));
  EXPECT_TRUE(e.is_ok()) << e.status().message();
  return e.is_ok() ? std::move(*e) : nullptr;
}

// log p of every ending of the first `count` questions.
std::vector<std::vector<double>> endings(engine::Engine& e, size_t count) {
  std::vector<sched::TextToScore> texts;
  for (size_t i = 0; i < count; ++i) {
    const Json& q = golden()["choices"][i];
    const Ids context = q["context_ids"];
    for (const Json& ending : q["ending_ids"]) {
      sched::TextToScore text{context, static_cast<int64_t>(context.size())};
      for (const Json& id : ending) text.tokens.push_back(id);
      texts.push_back(std::move(text));
    }
  }
  const auto scores = sched::Scorer(e).run(texts);
  EXPECT_TRUE(scores.is_ok()) << scores.status().message();
  std::vector<std::vector<double>> out(count);
  for (size_t i = 0, next = 0; i < count; ++i)
    for (size_t k = 0; k < golden()["choices"][i]["ending_ids"].size(); ++k) out[i].push_back((*scores)[next++].log_p);
  return out;
}

// The same of one question, every token of an ending in a decode step of its own.
std::vector<double> decoded(engine::Engine& e, const Json& question) {
  const auto vocab = static_cast<size_t>(e.config().vocab_size);
  const Ids context = question["context_ids"];
  std::vector<Ids> tokens = question["ending_ids"];
  std::vector<engine::Sequence> sequences;
  for (size_t k = 0; k < tokens.size(); ++k) sequences.emplace_back(context);
  std::vector<engine::StepItem> items;
  size_t longest = 0;
  for (size_t k = 0; k < tokens.size(); ++k) {
    EXPECT_TRUE(e.reserve(sequences[k], 128).is_ok());
    items.push_back({&sequences[k], sequences[k].uncached(), 1});
    longest = std::max(longest, tokens[k].size());
  }
  std::vector<double> log_p(tokens.size());
  for (size_t at = 0; at < longest; ++at) {
    const auto logits = e.step(items);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) break;
    for (size_t k = 0; k < tokens.size(); ++k) {
      const auto row = logits->subspan(k * vocab, vocab);
      const int32_t token = at < tokens[k].size() ? tokens[k][at] : 0;  // shorter endings go on with anything
      sequences[k].append(token);
      items[k] = {&sequences[k], 1, 1};
      if (at >= tokens[k].size()) continue;
      const double top = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const float v : row) sum += std::exp(static_cast<double>(v) - top);
      log_p[k] += static_cast<double>(row[static_cast<size_t>(token)]) - top - std::log(sum);
    }
  }
  for (auto& s : sequences) e.release(s);
  return log_p;
}

size_t best(const std::vector<double>& v) {
  return static_cast<size_t>(std::max_element(v.begin(), v.end()) - v.begin());
}

evaluation::Perplexity perplexity_of(engine::Engine& e, int64_t windows = 0) {
  evaluation::PerplexityOptions options;
  options.window = golden()["window"];
  options.max_windows = windows;
  options.bos = golden()["bos"].get<int32_t>();
  const auto p = evaluation::perplexity(e, golden()["text_ids"].get<Ids>(), options);
  EXPECT_TRUE(p.is_ok()) << p.status().message();
  return p.is_ok() ? *p : evaluation::Perplexity{};
}

// Of the first `windows`; 0: all.
double golden_nll(int64_t windows = 0) {
  double nll = 0, tokens = 0;
  for (const Json& w : golden()["windows"]) {
    nll += w["nll"].get<double>(), tokens += w["tokens"].get<double>();
    if (--windows == 0) break;
  }
  return nll / tokens;
}

TEST(Accuracy, ChoicesAndPerplexityInFp32AreTheReferences) {
  REPRISE_NEEDS_SMOLLM2(path);
  const auto e = open(path, {});
  ASSERT_TRUE(e);
  const Json& questions = golden()["choices"];
  ASSERT_EQ(questions.size(), 40u);
  const auto got = endings(*e, questions.size());
  double widest = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    const std::vector<double> want = questions[i]["log_p"];
    ASSERT_EQ(got[i].size(), want.size());
    for (size_t k = 0; k < want.size(); ++k) widest = std::max(widest, std::fabs(got[i][k] - want[k]));
    EXPECT_EQ(best(got[i]), questions[i]["choice"].get<size_t>()) << i << ", margin " << questions[i]["margin"];
  }
  EXPECT_LT(widest, 1e-3);  // the smallest margin of the reference is 18 times that
  const evaluation::Perplexity p = perplexity_of(*e);
  EXPECT_EQ(p.windows, static_cast<int64_t>(golden()["windows"].size()));
  EXPECT_NEAR(p.mean_nll, golden_nll(), 1e-5 * golden_nll());
  fmt::print("fp32: log p within {:.2g}, mean nll {:.6f}, reference {:.6f}\n", widest, p.mean_nll, golden_nll());
}

// Whatever is captured and fused, and whether a token came in a prompt or was decoded, the score has the same bits.
TEST(Accuracy, EveryGraphModeGivesTheSameScores) {
  REPRISE_NEEDS_SMOLLM2(path);
  constexpr size_t kQuestions = 3;
  std::vector<std::vector<double>> want;
  const std::vector<Form> forms{{},
                                {.decode = GraphMode::Piecewise, .prefill = GraphMode::Whole},
                                {.policy = engine::GraphPolicy::Off, .passes = {"none"}}};
  for (const Form& form : forms) {
    const auto e = open(path, form);
    ASSERT_TRUE(e);
    if (want.empty()) want = endings(*e, kQuestions);
    EXPECT_EQ(endings(*e, kQuestions), want);
    for (size_t i = 0; i < kQuestions; ++i) EXPECT_EQ(decoded(*e, golden()["choices"][i]), want[i]) << i;
  }
}

struct Loss {
  const char* name;
  Form form;
  size_t questions;   // how many of them are asked
  int64_t windows;    // of the text
  double perplexity;  // the relative change that is allowed
  double margin;      // the widest of the reference's choices that may turn
};

class LossyForms : public testing::TestWithParam<Loss> {};

// What rounds more than fp32 may lose a stated amount and turn stated near ties, and nothing else.
TEST_P(LossyForms, LoseNoMoreThanStated) {
  REPRISE_NEEDS_SMOLLM2(path);
  const auto e = open(path, GetParam().form);
  ASSERT_TRUE(e);
  const Json& questions = golden()["choices"];
  const auto got = endings(*e, GetParam().questions);
  double turned = 0;
  for (size_t i = 0; i < got.size(); ++i)
    if (best(got[i]) != questions[i]["choice"].get<size_t>()) {
      const double margin = questions[i]["margin"];
      EXPECT_LT(margin, GetParam().margin) << i;
      turned = std::max(turned, margin);
    }
  const double change = std::expm1(perplexity_of(*e, GetParam().windows).mean_nll - golden_nll(GetParam().windows));
  fmt::print("{}: perplexity {:+.2f} %, widest margin that turned {:.3f}\n", GetParam().name, 100 * change, turned);
  EXPECT_LT(std::fabs(change), GetParam().perplexity);
}

INSTANTIATE_TEST_SUITE_P(
    , LossyForms,
    testing::Values(
        Loss{"bf16", {.dtype = DType::BF16}, 16, 1, 0.005, 0.1},
        Loss{"w8a8", {.dtype = DType::BF16, .quantization = checkpoint::Quantization::W8A8Int8}, 40, 0, 0.04, 0.5}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace reprise::accuracy_test
