// Several streams in one graph (F65): the same bits in every mode and in every order that the plan allows.
#include <gtest/gtest.h>

#include "engine/local_world.h"
#include "graph/text.h"
#include "support/tiny_models.h"
#include "support/traffic.h"

namespace reprise::models_streams_test {
namespace {

struct Case {
  std::string model;
  DeviceKind device = DeviceKind::Cpu;
  int64_t prefetch_bytes = 0;
  std::shared_ptr<ranks::Member> member = nullptr;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.model; }

Result<std::unique_ptr<engine::Engine>> open(const Case& c, int streams, GraphMode decode,
                                             std::optional<uint64_t> mix = {},
                                             const std::function<void(Platform&)>& change = {}, bool by_time = false,
                                             int threads = 2, const engine::GraphOptions& graph = {}) {
  DeviceOptions device{c.device, "auto", c.member ? 1 : threads, false};
  device.member = c.member;
  device.ascend_runtime = "sim";
  device.mix_streams = mix;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  if (change) change(platform);
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(c.model);
  if (c.device == DeviceKind::Ascend) o.dtype = DType::BF16;
  o.chunked_prefill_size = 64;
  o.max_total_tokens = 4 * 128;
  o.graph = graph;
  o.graph.decode = decode;
  if (graph.decode_sizes.empty()) o.graph.decode_sizes = {1, 4};
  o.max_running_requests = o.graph.decode_sizes.back();
  o.graph.prefill_sizes = {64};
  o.graph.pipeline.streams = streams;
  o.graph.choose_streams = by_time;
  o.graph.pipeline.prefetch_bytes = c.prefetch_bytes;
  o.graph.pipeline.prefetch_keys = 0;
  o.member = c.member;
  return engine::Engine::create(o, std::move(platform));
}

std::vector<float> traffic(engine::Engine& e) {
  std::vector<float> out;
  for (const int64_t batch : {1, 3}) {
    const auto some = testing_support::Traffic(e, testing_support::lengths(batch, 1, 1, 9), 3).run(3);
    out.insert(out.end(), some.begin(), some.end());
  }
  return out;
}

class StreamsOfModels : public testing::TestWithParam<Case> {};

TEST_P(StreamsOfModels, EveryModeAndOrderGivesTheSameBits) {
  auto one = open(GetParam(), 1, GraphMode::Whole);
  ASSERT_TRUE(one.is_ok()) << one.status().message();
  EXPECT_EQ((*one)->runner("decode")->model().graph_stats().waits, 0u);
  const std::vector<float> expected = traffic(**one);
  const bool mixes = GetParam().device == DeviceKind::Cpu;
  for (const GraphMode mode : {GraphMode::Whole, GraphMode::Piecewise, GraphMode::Eager})
    for (const std::optional<uint64_t> mix : {std::optional<uint64_t>(), {0}, {1}, {5}}) {
      if (mix && (!mixes || mode == GraphMode::Eager)) continue;
      auto two = open(GetParam(), 2, mode, mix);
      ASSERT_TRUE(two.is_ok()) << two.status().message();
      const CompiledModel& decode = (*two)->runner("decode")->model();
      EXPECT_TRUE(decode.has_streams());
      EXPECT_EQ(decode.graph_stats().waits > 0, mode != GraphMode::Eager);
      EXPECT_FALSE((*two)->runner("prefill")->model().has_streams());
      EXPECT_TRUE(testing_support::same_bits(expected, traffic(**two)))
          << graph_mode_name(mode) << ", order " << (mix ? static_cast<int>(*mix) : -1);
    }
}

// Halves of the threads are one thread each, an uneven pair, and several each.
TEST(StreamsOfModel, HalvesOfTheThreadsGiveTheSameBits) {
  for (const char* model : {"qwen2_moe_shared", "deepseek_v2_lite"}) {
    auto one = open({model}, 1, GraphMode::Whole);
    ASSERT_TRUE(one.is_ok()) << one.status().message();
    const std::vector<float> expected = traffic(**one);
    for (const int threads : {1, 3, 4, 7})
      for (const GraphMode mode : {GraphMode::Whole, GraphMode::Piecewise}) {
        auto two = open({model}, 2, mode, {}, {}, false, threads);
        ASSERT_TRUE(two.is_ok()) << two.status().message();
        EXPECT_TRUE(testing_support::same_bits(expected, traffic(**two)))
            << model << ", " << threads << " threads, " << graph_mode_name(mode);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, StreamsOfModels,
                         testing::Values(Case{"qwen2_moe_shared"}, Case{"deepseek_v3_moe"}, Case{"deepseek_v2_lite"},
                                         Case{"glm4_moe", DeviceKind::Ascend}));

// Another device behind one that is made.
class WrappedDevice : public Device {
 public:
  explicit WrappedDevice(std::shared_ptr<Device> inner) : inner_(std::move(inner)) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  MemoryPool& pool() override { return inner_->pool(); }
  MemoryPool& shared_pool() override { return inner_->shared_pool(); }
  MemoryPool& host_pool() override { return inner_->host_pool(); }
  Result<std::unique_ptr<Stream>> make_stream() override { return inner_->make_stream(); }
  Result<std::unique_ptr<Event>> make_event() override { return inner_->make_event(); }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    return inner_->capture(stream, body);
  }

 protected:
  std::shared_ptr<Device> inner_;
};

// A device with no queue for a second stream.
class OneQueueDevice final : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    return inner_->capture(stream, [&](Recorder& recorder) {
      Refusing refusing(recorder);
      return body(refusing);
    });
  }

 private:
  class Refusing final : public Recorder {
   public:
    explicit Refusing(Recorder& inner) : inner_(inner) {}
    Status launch(const Thunk& thunk) override { return inner_.launch(thunk); }
    Result<PatchId> launch_patchable(const Thunk& thunk) override { return inner_.launch_patchable(thunk); }
    Status record(uint8_t, uint32_t) override { return error(Code::Busy, "no queue is left"); }
    Status wait(uint8_t, uint32_t) override { return error(Code::Busy, "no queue is left"); }

   private:
    Recorder& inner_;
  };
};

// So slow that the weights of a tiny model are large.
class SlowMemory final : public WrappedDevice {
 public:
  explicit SlowMemory(std::shared_ptr<Device> inner) : WrappedDevice(std::move(inner)), info_(inner_->info()) {
    if (info_.read_ahead.refusal.empty()) info_.read_ahead = {"", 40, 120, 100, 1000, 150, 10, 1 << 20};
  }
  const DeviceInfo& info() const override { return info_; }

 private:
  DeviceInfo info_;
};

TEST(StreamsOfModel, StreamsGoBeforeSizesDo) {
  const auto wrapped = [](Platform& p) { p.device = std::make_shared<OneQueueDevice>(std::move(p.device)); };
  auto two = open({"qwen2_moe_shared"}, 2, GraphMode::Whole, {}, wrapped);
  ASSERT_TRUE(two.is_ok()) << two.status().message();
  const engine::StepRunner& decode = *(*two)->runner("decode");
  EXPECT_EQ(decode.sizes(), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(decode.mode(), GraphMode::Whole);
  EXPECT_EQ(decode.model().graph_stats().waits, 0u);
  EXPECT_NE(decode.model().one_stream_reason().find("no queue is left"), std::string::npos);
  auto one = open({"qwen2_moe_shared"}, 1, GraphMode::Whole);
  ASSERT_TRUE(one.is_ok());
  EXPECT_TRUE(testing_support::same_bits(traffic(**one), traffic(**two)));
}

// Its replays take as long as somebody says, which knows whether the graph has several streams.
class TimedDevice final : public WrappedDevice {
 public:
  using Time = std::function<double(const GraphStats& graph)>;
  TimedDevice(std::shared_ptr<Device> inner, Time time) : WrappedDevice(std::move(inner)), time_(std::move(time)) {}
  std::optional<double> clock_us() const override { return now_; }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    ASSIGN_OR_RETURN(auto graph, inner_->capture(stream, body));
    return std::unique_ptr<DeviceGraph>(new Timed(*this, std::move(graph)));
  }

 private:
  class Timed final : public DeviceGraph {
   public:
    Timed(TimedDevice& device, std::unique_ptr<DeviceGraph> inner) : device_(device), inner_(std::move(inner)) {}
    Status replay(Stream& stream, std::span<const Patch> patches) override {
      device_.now_ += device_.time_(inner_->stats());
      return inner_->replay(stream, patches);
    }
    GraphStats stats() const override { return inner_->stats(); }

   private:
    TimedDevice& device_;
    std::unique_ptr<DeviceGraph> inner_;
  };
  Time time_;
  double now_ = 0;
};

Result<std::unique_ptr<engine::Engine>> open_by_time(std::vector<int64_t> sizes, TimedDevice::Time time) {
  DeviceOptions device{DeviceKind::Cpu, "auto", 2, false};
  device.live_sizes = false;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  platform.device = std::make_shared<TimedDevice>(std::move(platform.device), std::move(time));
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path("qwen2_moe_shared");
  o.chunked_prefill_size = 64;
  o.max_running_requests = sizes.back();
  o.max_total_tokens = 4 * 128;
  o.graph.decode_sizes = std::move(sizes);
  o.graph.prefill_sizes = {64};
  o.graph.pipeline.streams = 2;
  o.graph.choose_streams = true;
  return engine::Engine::create(o, std::move(platform));
}

// Each size that is measured has what takes less time, and those between go by the next larger one.
TEST(StreamsByTime, EachSizeHasWhatIsFaster) {
  auto one = open({"qwen2_moe_shared"}, 1, GraphMode::Whole);
  ASSERT_TRUE(one.is_ok());
  const std::vector<float> expected = traffic(**one);
  struct Want {
    double several_us;
    bool several;
  };
  for (const Want want : {Want{90, true}, Want{99, false}, Want{110, false}}) {
    auto e = open_by_time({1, 2, 3, 4, 6},
                          [&](const GraphStats& graph) { return graph.waits > 0 ? want.several_us : 100.0; });
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const CompiledModel& decode = (*e)->runner("decode")->model();
    std::vector<int64_t> measured;
    for (const CompiledModel::StreamTimes& t : decode.stream_times()) {
      measured.push_back(t.size);
      EXPECT_EQ(t.streams == RecordedStreams::All, want.several);
      EXPECT_EQ(t.plain_us, 0) << "nothing is read ahead";
      EXPECT_EQ(t.several_us, want.several_us);
      EXPECT_EQ(t.one_us, 100);
    }
    EXPECT_EQ(measured, (std::vector<int64_t>{6, 3, 1}));
    EXPECT_EQ(decode.graph_stats().waits > 0, want.several) << "of all captures";
    EXPECT_TRUE(testing_support::same_bits(expected, traffic(**e)));
  }
  // Small steps leave room beside them, large ones do not: those of 6 and 4 rows are the only ones on one stream.
  int measurements = 0;
  auto e = open_by_time({1, 2, 3, 4, 6}, [&](const GraphStats& graph) {
    const bool largest = measurements++ < 4;  // two replays of each
    return graph.waits > 0 ? (largest ? 120.0 : 80.0) : 100.0;
  });
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const CompiledModel& decode = (*e)->runner("decode")->model();
  for (const int64_t size : {1, 2, 3, 4, 6})
    EXPECT_EQ(decode.stream_times_of(size)->streams == RecordedStreams::All, size <= 3) << size;
  EXPECT_TRUE(testing_support::same_bits(expected, traffic(**e)));
}

// Where one graph could serve all sizes there are some of them, as small steps leave threads with little to do that
// large ones keep busy.
TEST(StreamsByTime, LiveGraphsAreMeasuredBySizes) {
  auto one = open({"qwen2_moe_shared"}, 1, GraphMode::Whole);
  ASSERT_TRUE(one.is_ok());
  const std::vector<float> expected = traffic(**one);
  for (const int faster : {0, 1, 2}) {
    int measurements = 0;
    const auto timed = [&](Platform& p) {
      p.device = std::make_shared<TimedDevice>(std::move(p.device), [&](const GraphStats& graph) {
        const int size = measurements++ / 8;  // 0 is the largest; two replays of body and head, with both and with one
        return graph.waits > 0 ? (size >= faster ? 80.0 : 120.0) : 100.0;
      });
    };
    auto e = open({"qwen2_moe_shared"}, 2, GraphMode::Whole, {}, timed, true);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const CompiledModel& decode = (*e)->runner("decode")->model();
    std::vector<std::pair<int64_t, bool>> measured;
    for (const CompiledModel::StreamTimes& t : decode.stream_times())
      measured.emplace_back(t.size, t.streams == RecordedStreams::All);
    EXPECT_EQ(measured, (std::vector<std::pair<int64_t, bool>>{{4, faster <= 0}, {2, faster <= 1}, {1, faster <= 2}}));
    EXPECT_TRUE(testing_support::same_bits(expected, traffic(**e)));
  }
}

// The largest capture serves all sizes: one less of the others costs nothing but the choice of its streams.
TEST(StreamsByTime, ACaptureOfALiveGraphThatFailsIsServedByTheNextLarger) {
  auto one = open({"qwen2_moe_shared"}, 1, GraphMode::Whole);
  ASSERT_TRUE(one.is_ok());
  const std::vector<float> expected = traffic(**one);
  const auto timed = [](Platform& p) {
    p.device = std::make_shared<TimedDevice>(std::move(p.device),
                                             [](const GraphStats& graph) { return graph.waits > 0 ? 80.0 : 100.0; });
  };
  const auto measured = [](const engine::StepRunner& decode) {
    std::vector<int64_t> out;
    for (const CompiledModel::StreamTimes& t : decode.model().stream_times()) out.push_back(t.size);
    return out;
  };
  engine::GraphOptions g;
  // Captures are those of prefill, then sizes 4, 2 and 1 of decode.
  for (const engine::GraphPolicy policy : {engine::GraphPolicy::Auto, engine::GraphPolicy::Required})
    for (const auto& [fault, left] : {std::pair<std::string, std::vector<int64_t>>{"alloc@3", {4, 1}},
                                      std::pair<std::string, std::vector<int64_t>>{"alloc@4", {4, 2}}}) {
      SCOPED_TRACE(fault);
      g.policy = policy;
      g.faults = {*engine::parse_fault(fault)};
      auto e = open({"qwen2_moe_shared"}, 2, GraphMode::Whole, {}, timed, true, 2, g);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      const engine::StepRunner& decode = *(*e)->runner("decode");
      EXPECT_EQ(measured(decode), left);
      EXPECT_EQ(decode.mode(), GraphMode::Whole);
      EXPECT_EQ(decode.uncaptured_reason(), "");
      EXPECT_EQ(decode.sizes().size(), (*one)->runner("decode")->sizes().size());
      const uint64_t replays = decode.stats().replays;
      EXPECT_TRUE(testing_support::same_bits(expected, traffic(**e)));
      EXPECT_GT(decode.stats().replays, replays);
      EXPECT_TRUE(decode.stats().fallbacks.empty());
    }
  // Without the largest there is nothing to serve the others.
  g.faults = {*engine::parse_fault("alloc@2")};
  g.policy = engine::GraphPolicy::Required;
  const auto refused = open({"qwen2_moe_shared"}, 2, GraphMode::Whole, {}, timed, true, 2, g);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("`graph` required"), std::string::npos) << refused.status().message();
  g.policy = engine::GraphPolicy::Auto;
  auto degraded = open({"qwen2_moe_shared"}, 2, GraphMode::Whole, {}, timed, true, 2, g);
  ASSERT_TRUE(degraded.is_ok()) << degraded.status().message();
  EXPECT_EQ((*degraded)->runner("decode")->mode(), GraphMode::Piecewise);
  EXPECT_TRUE(testing_support::same_bits(expected, traffic(**degraded)));
}

// Room for so many captures.
class FewGraphs final : public WrappedDevice {
 public:
  FewGraphs(std::shared_ptr<Device> inner, int& room) : WrappedDevice(std::move(inner)), room_(room) {}
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    if (room_ <= 0) return error(Code::Busy, "no queue is left");
    ASSIGN_OR_RETURN(auto graph, inner_->capture(stream, body));
    return std::unique_ptr<DeviceGraph>(new Held(room_, std::move(graph)));
  }

 private:
  class Held final : public DeviceGraph {
   public:
    Held(int& room, std::unique_ptr<DeviceGraph> inner) : room_(room), inner_(std::move(inner)) { --room_; }
    ~Held() override { ++room_; }
    Status replay(Stream& stream, std::span<const Patch> patches) override { return inner_->replay(stream, patches); }
    GraphStats stats() const override { return inner_->stats(); }

   private:
    int& room_;
    std::unique_ptr<DeviceGraph> inner_;
  };
  int& room_;
};

// A model that drafts is opened first, and takes what the model leaves of the device's room for graphs.
TEST(GraphsOfDrafts, ComeBehindThoseOfTheModel) {
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path("qwen3_tied");
  o.chunked_prefill_size = 64;
  o.max_running_requests = 4;
  o.max_total_tokens = 4 * 128;
  o.graph.decode_sizes = {1, 2, 3, 4};
  o.graph.prefill_sizes = {64};
  o.graph.prefill = GraphMode::Whole;
  engine::EngineOptions of_draft = o;
  of_draft.graph.prefill = GraphMode::Eager;
  o.graph.verify = {2, false};
  constexpr int kEnough = 1000;
  int room = kEnough;
  const auto platform = [&](std::shared_ptr<Device> shared) {
    DeviceOptions device{DeviceKind::Cpu, "auto", 2, false};
    device.live_sizes = false;
    device.shared = shared;
    auto made = make_platform(device);
    if (made && !shared) made->device = std::make_shared<FewGraphs>(std::move(made->device), room);
    return made;
  };
  const auto captured = [](const engine::Engine& e) {
    size_t n = 0;
    for (const char* phase : {"decode", "verify", "prefill"})
      if (e.runner(phase)) n += e.runner(phase)->sizes().size();
    return n;
  };
  size_t all = 0;
  int needed = 0;
  {
    auto alone = engine::Engine::create(o, platform(nullptr).value());
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    all = captured(**alone);
    needed = kEnough - room;
  }
  for (const bool later : {true, false}) {
    room = needed + 2;
    auto first = platform(nullptr), second = platform(first->device);
    ASSERT_TRUE(first.is_ok() && second.is_ok());
    of_draft.captures_later = later;
    auto draft = engine::Engine::create(of_draft, std::move(*second));
    ASSERT_TRUE(draft.is_ok()) << draft.status().message();
    auto model = engine::Engine::create(o, std::move(*first));
    ASSERT_TRUE(model.is_ok()) << model.status().message();
    ASSERT_TRUE((*model)->set_draft(std::move(*draft)).is_ok());
    EXPECT_EQ(captured(**model) == all, later);
    EXPECT_EQ(captured(*(*model)->draft()), later ? 2u : 4u);
    const auto answer = [](engine::Engine& e) {
      return testing_support::Traffic(e, testing_support::lengths(3, 1, 1, 9), 3).run(3);
    };
    EXPECT_TRUE(testing_support::same_bits(answer(**model), answer(*(*model)->draft())));
  }
}

int hints_in(const CompiledModel& m) {
  int hints = 0;
  for (const Node* n = m.graph().first(); n; n = n->next) hints += n->is_hint() ? 1 : 0;
  return hints;
}

// Weights are read ahead, and nothing else changes: the simulator's kernels give the bits that they give without.
TEST(PrefetchOfModel, GivesTheSameBits) {
  const auto slow = [](Platform& p) { p.device = std::make_shared<SlowMemory>(std::move(p.device)); };
  const Case plain{"glm4_moe", DeviceKind::Ascend}, ahead{"glm4_moe", DeviceKind::Ascend, 1 << 20};
  auto one = open(plain, 1, GraphMode::Whole);
  ASSERT_TRUE(one.is_ok()) << one.status().message();
  const std::vector<float> expected = traffic(**one);
  for (const GraphMode mode : {GraphMode::Whole, GraphMode::Piecewise}) {
    auto e = open(ahead, mode == GraphMode::Whole ? 2 : 1, mode, {}, slow);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const CompiledModel &decode = (*e)->runner("decode")->model(), &prefill = (*e)->runner("prefill")->model();
    EXPECT_GT(hints_in(decode), 0);
    EXPECT_EQ(hints_in(prefill), 0);
    EXPECT_GT(decode.graph_stats().waits, 0u);
    EXPECT_TRUE(testing_support::same_bits(expected, traffic(**e))) << graph_mode_name(mode);
  }
}

// A size that is slower with weights read ahead than without has none, and only that: the second stream stays.
TEST(PrefetchOfModel, IsLeftOutWhereItIsMeasuredToCost) {
  const Case ahead{"glm4_moe", DeviceKind::Ascend, 1 << 20};
  auto without = open({"glm4_moe", DeviceKind::Ascend}, 2, GraphMode::Whole);
  ASSERT_TRUE(without.is_ok()) << without.status().message();
  const std::vector<float> expected = traffic(**without);
  const size_t side_waits = (*without)->runner("decode")->model().graph_stats().waits;
  ASSERT_GT(side_waits, 0u);
  struct Want {
    double ahead_us;
    RecordedStreams streams;
  };
  for (const Want want : {Want{79, RecordedStreams::All}, Want{81, RecordedStreams::NoHints}})
    for (const bool by_time : {false, true}) {
      size_t most = 0;
      const auto timed = [&](Platform& p) {
        auto slow = std::make_shared<SlowMemory>(std::move(p.device));
        p.device = std::make_shared<TimedDevice>(std::move(slow), [&](const GraphStats& graph) {
          most = std::max(most, graph.waits);  // what is measured first has all
          return graph.waits == 0 ? 100.0 : graph.waits == most ? want.ahead_us : 80.0;
        });
      };
      engine::GraphOptions graph;
      graph.choose_prefetch = true;
      auto e = open(ahead, 2, GraphMode::Whole, {}, timed, by_time, 2, graph);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      const CompiledModel& decode = (*e)->runner("decode")->model();
      ASSERT_GT(hints_in(decode), 0);
      ASSERT_EQ(decode.stream_times().size(), 2u);
      for (const CompiledModel::StreamTimes& t : decode.stream_times()) {
        EXPECT_EQ(t.streams, want.streams) << t.size;
        EXPECT_EQ(t.several_us, want.ahead_us);
        EXPECT_EQ(t.plain_us, 80);
        EXPECT_EQ(t.one_us, by_time ? 100 : 0);
      }
      EXPECT_EQ(decode.graph_stats().waits == side_waits, want.streams == RecordedStreams::NoHints);
      EXPECT_TRUE(testing_support::same_bits(expected, traffic(**e)));
    }
}

// A replay that is measured has rows of no sequence alone, each of which the cache wants a slot of its own for.
TEST(PrefetchOfModel, SizesOfMoreRowsThanAPageAreMeasured) {
  engine::GraphOptions graph;
  graph.choose_prefetch = true;
  graph.decode_sizes = {1, 200};
  const auto slow = [&](Platform& p) { p.device = std::make_shared<SlowMemory>(std::move(p.device)); };
  auto e = open({"glm4_moe", DeviceKind::Ascend, 1 << 20}, 1, GraphMode::Whole, {}, slow, false, 2, graph);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const engine::StepRunner& decode = *(*e)->runner("decode");
  ASSERT_GT(hints_in(decode.model()), 0);
  EXPECT_GE(decode.captures(), 4u) << "of either size, with what is read ahead and without";
  EXPECT_EQ(decode.model().stream_times().size(), 2u);
  EXPECT_FALSE(traffic(**e).empty());
  EXPECT_TRUE(decode.stats().fallbacks.empty());
}

TEST(PrefetchOfModel, ACpuSaysWhyItDoesNot) {
  auto e = open({"qwen3_tied", DeviceKind::Cpu, 1 << 20}, 1, GraphMode::Whole);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  EXPECT_EQ(hints_in((*e)->runner("decode")->model()), 0);
  const PassReport& last = (*e)->passes("decode")->passes.back();
  EXPECT_EQ(last.name, "insert_prefetch");
  ASSERT_EQ(last.refused.size(), 1u);
  EXPECT_EQ(last.refused[0].reason, "a CPU reads ahead by itself, and asking for more gained nothing");
}

// Collectives stay on the main stream, in the order that all ranks have.
TEST(StreamsOfModel, RanksGiveTheBitsOfOneStream) {
  std::vector<float> expected;
  for (const int streams : {1, 2}) {
    auto world = engine::LocalWorld::start(2, [streams](std::shared_ptr<ranks::Member> member) {
      return open({"qwen2_moe_shared", DeviceKind::Cpu, 0, std::move(member)}, streams, GraphMode::Whole);
    });
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    const CompiledModel& decode = (*world)->front().runner("decode")->model();
    EXPECT_EQ(decode.has_streams(), streams == 2);
    EXPECT_EQ(decode.graph_stats().waits > 0, streams == 2);
    for (const Node* n = decode.graph().first(); n; n = n->next)
      if (n->op->has(op_trait::kCollective)) EXPECT_EQ(n->stream, kMainStream);
    const std::vector<float> got = traffic((*world)->front());
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
    if (streams == 1) expected = got;
    EXPECT_TRUE(testing_support::same_bits(expected, got));
  }
}

// The printed plan of latent attention: keys and values beside the queries, the shared expert beside the others.
TEST(StreamsOfModel, LatentAttentionAndExperts) {
  auto e = open({"deepseek_v2_lite"}, 2, GraphMode::Whole);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  std::string lines;
  for (const Node* n = (*e)->runner("decode")->model().graph().first(); n; n = n->next) {
    if (n->stream == kMainStream && n->waits.empty()) continue;
    const std::string line = print((*e)->runner("decode")->model().graph(), *n);
    EXPECT_EQ(line.ends_with("@side"), n->stream == kSideStream && n->waits.empty());
    lines += n->op->name + (n->stream == kSideStream ? " @side" : "");
    for (const Node* w : n->waits) lines += " after " + w->op->name;
    lines += "\n";
  }
  const std::string latents =
      "linear @side after {}\nslice @side\nrope @side\nslice @side\nrms_norm @side\nrow_write @side\n"
      "row_write @side\nlatent_attention after row_write\n";
  EXPECT_EQ(lines,
            fmt::format(fmt::runtime(latents), "rms_norm") + fmt::format(fmt::runtime(latents), "add_rms_norm") +
                "index_select @side after add_rms_norm\nlinear @side\nsilu_mul @side\nlinear_add after silu_mul\n");
}

}  // namespace
}  // namespace reprise::models_streams_test
