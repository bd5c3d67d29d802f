// What `bench one-batch` and the engine take for time where a device's time is modelled.
#include "measurement/one_batch_report.h"

#include "api/device_choice.h"
#include "backends/null/null_device.h"
#include "ops/core.h"
#include "support/computing_platforms.h"

namespace reprise::measurement::one_batch_test {

using namespace api;

namespace {

constexpr double kLaunchUs = 7;

// The null device with a clock on which every launch takes as long.
class ClockedDevice final : public Device {
 public:
  ClockedDevice() : inner_(null::make_null_device({&launched_})) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  MemoryPool& pool() override { return inner_->pool(); }
  Result<std::unique_ptr<Stream>> make_stream() override { return inner_->make_stream(); }
  Result<std::unique_ptr<Event>> make_event() override { return inner_->make_event(); }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    return inner_->capture(stream, body);
  }
  std::optional<double> clock_us() const override { return kLaunchUs * static_cast<double>(launched_.size()); }
  std::string clock_note() const override { return "a launch takes 7 us (assumed)\n\nnothing else takes time\n"; }

 private:
  std::vector<uint32_t> launched_;
  std::unique_ptr<Device> inner_;
};

Result<std::unique_ptr<engine::Engine>> open_clocked() {
  Platform platform;
  platform.ops = std::make_unique<OpRegistry>();
  register_core_ops(*platform.ops);
  platform.kernels = std::make_unique<KernelRegistry>();
  null::register_null(*platform.kernels, *platform.ops);
  platform.device = std::make_unique<ClockedDevice>();
  engine::EngineOptions o;
  o.model_path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/llama_mha_untied";
  o.load_format = engine::LoadFormat::Dummy;
  o.dtype = DType::F32;
  o.context_length = 64;
  o.max_running_requests = 2;
  o.chunked_prefill_size = 16;
  o.max_total_tokens = 512;
  o.graph.choose_by_cost = false;
  return engine::Engine::create(o, std::move(platform));
}

TEST(OneBatch, ModelledTimeIsTheDevicesOwn) {
  auto e = open_clocked();
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  Progress none("", 1, false);
  const OneBatch plan{.input_len = 9, .output_len = 6, .repeat = 4};
  auto row = measure_one_batch(**e, plan, 2, none);
  ASSERT_TRUE(row.is_ok()) << row.status().message();
  const engine::StepRunner& decode = *(*e)->runner("decode");
  const engine::StepRunner& prefill = *(*e)->runner("prefill");
  const auto of = [](const engine::StepRunner& r) {
    return kLaunchUs * static_cast<double>(r.model().launches(engine::head_of(engine::StepOutput::NextTokens)));
  };
  EXPECT_GT(of(decode), 0);
  EXPECT_NEAR(row->step_ms_p50, of(decode) * 1e-3, 1e-9);
  EXPECT_NEAR(row->step_ms_p99, of(decode) * 1e-3, 1e-9);
  EXPECT_NEAR(row->decode_s, 5 * of(decode) * 1e-6, 1e-12);
  // 18 tokens of prompts in steps of at most 16.
  EXPECT_NEAR(row->prefill_s, 2 * of(prefill) * 1e-6, 1e-12);
  EXPECT_GT(row->host_us, 0) << "real time";
  const auto seen = decode.costs().known(engine::StepKind::Replay, 2);
  ASSERT_TRUE(seen.has_value());
  EXPECT_NEAR(*seen, of(decode), 1e-6);
}

// More steps than are in flight: each finds its token in its place.
TEST(OneBatch, StepsBesideEachOtherGoOn) {
  using testing_support::ComputingPlatform;
  for (const int64_t ahead : {1, 4}) {
    testing_support::Taken taken;
    auto platform = testing_support::make_computing_platform(ComputingPlatform::Remote, taken);
    ASSERT_TRUE(platform.is_ok()) << platform.status().message();
    engine::EngineOptions o;
    o.model_path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/models/llama_mha_untied";
    o.dtype = DType::F32;
    o.context_length = 64;
    o.max_running_requests = 2;
    o.max_total_tokens = 512;
    o.chunked_prefill_size = 16;
    o.graph.warmups = 0;
    o.steps_ahead = ahead;
    auto e = engine::Engine::create(o, std::move(*platform));
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    ASSERT_TRUE((*e)->overlaps());
    EXPECT_EQ((*e)->max_in_flight(), 1 + ahead);
    Progress none("", 1, false);
    const OneBatch plan{.input_len = 9, .output_len = 12, .repeat = 2};
    auto row = measure_one_batch(**e, plan, 2, none);
    ASSERT_TRUE(row.is_ok()) << row.status().message();
    EXPECT_GT(row->decode_s, 0);
  }
}

TEST(OneBatch, NotesOfTheClockAreLines) {
  const ClockedDevice device;
  EXPECT_EQ(clock_lines(device),
            (std::vector<std::string>{"a launch takes 7 us (assumed)", "nothing else takes time"}));
  EXPECT_EQ(device_json(device)["modelled_time"], OrderedJson(clock_lines(device)));
  EXPECT_TRUE(clock_lines(*null::make_null_device()).empty());
  EXPECT_EQ(null::make_null_device()->clock_us(), std::nullopt);
}

TEST(OneBatchReport, SharesOfModelledTimeAreNotTold) {
  auto e = open_clocked();
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const OneBatch plan{.input_len = 9, .output_len = 6, .repeat = 1};
  const std::vector<int64_t> sizes{1, 2};
  const auto rows = measure_batches(**e, plan, sizes);
  ASSERT_TRUE(rows.is_ok()) << rows.status().message();
  ASSERT_EQ(rows->size(), 2u);
  const OneBatchRow& row = (*rows)[1];
  EXPECT_EQ(row.batch_size, 2);
  const OrderedJson j = one_batch_json(**e, plan, row, {.read_GBps_all = 40, .fp32_gflops = 100}, {"none", 3});
  EXPECT_EQ(j["batch_size"], 2);
  EXPECT_EQ(j["passes"], "none");
  EXPECT_EQ(j["ranks"], 3);
  EXPECT_DOUBLE_EQ(j["decode_tok_s"].get<double>(), 2 * 5 / row.decode_s);
  EXPECT_GT(j["achieved_GBps"].get<double>(), 0);
  EXPECT_TRUE(j["pct_bandwidth"].is_null() && j["pct_peak"].is_null());
  EXPECT_FALSE(j.contains("speculative"));
}

TEST(OneBatchReport, ABandwidthThatMovedIsAWarning) {
  const OrderedJson steady = limits_json({}, {.read_GBps_all = 40}, {.read_GBps_all = 36});
  EXPECT_TRUE(steady["warnings"].empty());
  EXPECT_EQ(steady["read_GBps_all"], 38);
  EXPECT_EQ(steady["before"]["read_GBps_all"], 40);
  EXPECT_FALSE(steady["after"].contains("cpu"));
  const OrderedJson moved = limits_json({}, {.read_GBps_all = 40}, {.read_GBps_all = 31});
  ASSERT_EQ(moved["warnings"].size(), 1u);
  EXPECT_EQ(moved["warnings"][0],
            "memory bandwidth was 40.0 GB/s before and 31.0 after the run: shares of it mean little");
}

}  // namespace
}  // namespace reprise::measurement::one_batch_test
