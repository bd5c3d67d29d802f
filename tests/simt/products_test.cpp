// Products that are left to a vendor's library, on the executor with the stand-in for one (simt/library.h): the same
// bits with and without it, what a start keeps for the next one, and what is said of each product.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "see/product_report.h"
#include "simt/kernels.h"
#include "simt/library.h"
#include "support/folder.h"
#include "support/tiny_models.h"

namespace reprise::simt::products_test {
namespace {

struct Outcome {
  std::unique_ptr<engine::Engine> engine;
  std::vector<float> logits;
  see::ProductReport report;
};

constexpr int64_t kRows = 24;

// A prompt of as many rows as the library is asked for, in a captured size.
Outcome run(const std::shared_ptr<Library>& library, const std::string& folder,
            checkpoint::Quantization quantization = checkpoint::Quantization::None) {
  const CudaStandIn stand_in = stand_in_with(library);
  DeviceOptions device;
  device.kind = DeviceKind::Cuda;
  device.cuda_stand_in = &stand_in;
  Outcome out;
  auto platform = make_platform(device);
  EXPECT_TRUE(platform.is_ok());
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path("llama_rope_yarn");
  o.dtype = DType::BF16;
  o.quantization = quantization;
  o.context_length = 64;
  o.chunked_prefill_size = 32;
  o.max_running_requests = 32;
  o.max_total_tokens = 8 * kv::kPageTokens;
  o.graph.decode_sizes = {1};
  o.graph.prefill_sizes = {32};
  o.graph.plan_cache = folder;
  auto engine = engine::Engine::create(o, std::move(*platform));
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  if (!engine.is_ok()) return out;
  out.engine = std::move(*engine);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < kRows; ++i) tokens.push_back(i * 7 % 50 + 1);
  out.logits = testing_support::all_logits(*out.engine, tokens, 1000);
  if (const auto report = see::product_report(out.engine->runner("prefill")->model())) out.report = *report;
  return out;
}

bool any_row(const see::ProductReport& r, const std::function<bool(const see::ProductRow&)>& is) {
  return std::any_of(r.groups.begin(), r.groups.end(),
                     [&](const auto& g) { return std::any_of(g.rows.begin(), g.rows.end(), is); });
}

TEST(CudaProducts, TheLibraryChangesNoBit) {
  for (const auto quantization : {checkpoint::Quantization::None, checkpoint::Quantization::W8A8Int8}) {
    const auto library = std::make_shared<Library>();
    const Outcome with = run(library, "", quantization), without = run(nullptr, "", quantization);
    EXPECT_GT(library->asked().products, 0);
    EXPECT_EQ(with.logits, without.logits);
    EXPECT_TRUE(without.report.groups.empty());
  }
}

TEST(CudaProducts, AStartKeepsWhatTheNextOneNeeds) {
  const testing_support::Folder folder;
  const auto first = std::make_shared<Library>();
  std::vector<float> logits;
  {
    const Outcome r = run(first, folder.path());
    logits = r.logits;
    EXPECT_GT(first->asked().proposals, 0);
    EXPECT_GT(first->asked().times, 0);
    EXPECT_TRUE(any_row(r.report, [](const see::ProductRow& row) { return row.by_library && !row.from_file; }));
  }
  const auto next = std::make_shared<Library>(), other = std::make_shared<Library>(2);
  const Outcome r = run(next, folder.path());
  EXPECT_EQ(r.logits, logits);
  EXPECT_EQ(next->asked().proposals, 0);
  EXPECT_EQ(next->asked().times, 0);
  EXPECT_GT(next->asked().proofs, 0);
  EXPECT_EQ(next->asked().products, first->asked().products);
  EXPECT_FALSE(any_row(r.report, [](const see::ProductRow& row) { return row.asked && !row.from_file; }));
  EXPECT_EQ(run(other, folder.path()).logits, logits);
  EXPECT_GT(other->asked().proposals, 0) << "another version of the library";
}

TEST(CudaProducts, EveryProductIsExplained) {
  const auto library = std::make_shared<Library>();
  const Outcome r = run(library, "");
  EXPECT_EQ(r.report.library, "stand-in 1");
  const CompiledModel& model = r.engine->runner("prefill")->model();
  int counted = 0, products = 0;
  for (const see::ProductGroup& g : r.report.groups) {
    counted += g.count;
    EXPECT_FALSE(g.rows.empty()) << g.param;
    EXPECT_FALSE(g.param.empty()) << g.op;
    for (const see::ProductRow& row : g.rows) EXPECT_FALSE(row.reason.empty()) << g.param;
  }
  for (const Piece& piece : model.pieces())
    for (const Thunk& t : piece.thunks) products += model.node(t.node)->op->has(OperandRole::Weight);
  EXPECT_EQ(counted, products);
  const OrderedJson j = see::product_json(r.report);
  const OrderedJson& rows = j["groups"][0]["rows"];
  EXPECT_EQ(rows[0]["to"], 16);
  EXPECT_EQ(rows[0]["by"], "own kernel");
  EXPECT_EQ(rows[0]["reason"], "few rows");
  EXPECT_EQ(rows[1]["from"], 17);
  EXPECT_EQ(rows[1]["by"], "library");
  EXPECT_EQ(rows[1]["algorithm"], "algorithm 2");
  EXPECT_EQ(rows[1]["origin"], "searched");
  EXPECT_EQ(rows[1]["us"], 5);
  const std::string text = see::product_text(r.report);
  for (const char* part :
       {"1 to 16 rows", "own kernel: few rows", "17 to 32 rows", "stand-in 1, algorithm 2 (searched)"})
    EXPECT_TRUE(testing_support::holds(text, part)) << part << "\n" << text;
}

}  // namespace
}  // namespace reprise::simt::products_test
