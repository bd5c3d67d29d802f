// Forms of a model on the CUDA device that the goldens of tiny checkpoints do not have: GGUF files, the int8 cache,
// static W8A8, checked replays, and faults that are put into them. On the SIMT executor.
#include <gtest/gtest.h>

#include "simt/kernels.h"
#include "support/goldens.h"
#include "support/temporary_path.h"
#include "support/tiny_models.h"

namespace reprise::simt::model_forms_test {
namespace {

using testing_support::all_logits;
using testing_support::EngineSetup;
using testing_support::open_engine;
using testing_support::same_bits;
using testing_support::tiny_model_path;

const std::vector<int32_t> kTokens{1, 17, 20, 3, 5, 40, 42, 7, 7, 12, 11};

EngineSetup on_cuda(DType dtype) {
  EngineSetup s;
  s.device = DeviceKind::Cuda;
  s.cuda = &stand_in();
  s.dtype = dtype;
  s.policy = engine::GraphPolicy::Off;
  s.context = 32;
  s.rows = 2;
  s.chunk = 16;
  return s;
}

std::vector<float> logits_of(const std::string& path, const EngineSetup& setup, int64_t chunk = 1000) {
  auto e = open_engine(path, setup);
  EXPECT_TRUE(e.is_ok()) << path << ": " << e.status().message();
  return e.is_ok() ? all_logits(**e, kTokens, chunk) : std::vector<float>();
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    EXPECT_FALSE(std::isnan(d));
    worst = std::max(worst, d);
    largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
  }
  return worst / largest;
}

// A file's numbers are those of the folder that it was made of; blocks are unpacked while it is loaded.
TEST(CudaForms, AGgufFileHasTheBitsOfItsFolder) {
  for (const char* model : {"llama_gqa3_tied", "qwen3_moe_norm"}) {
    const std::string file = std::string(REPRISE_SOURCE_DIR) + "/tests/data/gguf/" + model + ".gguf";
    const EngineSetup setup = on_cuda(DType::F32);
    EXPECT_TRUE(same_bits(logits_of(file, setup), logits_of(tiny_model_path(model), setup))) << model;
  }
}

TEST(CudaForms, TheInt8CacheIsNearTheCpusInEveryMode) {
  EngineSetup eager = on_cuda(DType::F32), host = eager;
  eager.kv_dtype = host.kv_dtype = DType::I8;
  host.device = DeviceKind::Cpu;
  const std::string folder = tiny_model_path("qwen3_tied");
  const std::vector<float> got = logits_of(folder, eager);
  EXPECT_LE(distance(got, logits_of(folder, host)), 1e-4);
  EngineSetup unrounded = eager;
  unrounded.kv_dtype.reset();
  EXPECT_FALSE(same_bits(got, logits_of(folder, unrounded))) << "it has to round, or this shows nothing";
  EngineSetup whole = eager;
  whole.policy = engine::GraphPolicy::Required;
  for (const int64_t chunk : {int64_t{1000}, int64_t{1}})
    EXPECT_TRUE(same_bits(logits_of(folder, whole, chunk), got)) << "chunks of " << chunk;
}

// The CPU's logits are held to the goldens of these folders by tests/models/quantised_test.cpp.
TEST(CudaForms, StaticInt8IsNearTheCpuInEveryMode) {
  for (const char* model : {"compressed_static", "modelslim_static_bias"}) {
    const std::string folder = std::string(REPRISE_SOURCE_DIR) + "/tests/data/models_quantised/" + model;
    EngineSetup setup = on_cuda(DType::F32), host = setup;
    host.device = DeviceKind::Cpu;
    const std::vector<float> got = logits_of(folder, setup);
    EXPECT_LE(distance(got, logits_of(folder, host)), 2e-2) << model;
    EngineSetup whole = setup;
    whole.policy = engine::GraphPolicy::Required;
    EXPECT_TRUE(same_bits(logits_of(folder, whole, 1), got)) << model;
  }
}

TEST(CudaForms, CheckedReplaysAreRightAndFaultsInThemAreFound) {
  EngineSetup sound = on_cuda(DType::BF16);
  sound.policy = engine::GraphPolicy::Required;
  sound.verify_replay = 1;
  sound.reports = testing_support::temporary_path("cuda_replays");
  const std::string folder = tiny_model_path("qwen3_tied");
  auto e = open_engine(folder, sound);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const std::vector<float> expected = all_logits(**e, kTokens, 1);
  EXPECT_GE((*e)->counters().checked, kTokens.size());
  EXPECT_EQ((*e)->counters().differences, 0u);
  for (const char* fault : {"bit-flip@3", "stale-input@4", "padding-leak@3"}) {
    EngineSetup faulty = sound;
    faulty.policy = engine::GraphPolicy::Auto;  // a size out of service ends what requires it
    faulty.faults = {*engine::parse_fault(fault)};
    auto f = open_engine(folder, faulty);
    ASSERT_TRUE(f.is_ok()) << f.status().message();
    EXPECT_TRUE(same_bits(all_logits(**f, kTokens, 1), expected)) << fault << ": the answer stays";
    EXPECT_EQ((*f)->counters().differences, 1u) << fault;
    EXPECT_EQ((*f)->runner("decode")->quarantined().size(), 1u) << fault;
  }
}

}  // namespace
}  // namespace reprise::simt::model_forms_test
