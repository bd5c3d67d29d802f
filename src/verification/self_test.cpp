#include "verification/self_test.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>

#include "base/half.h"
#include "compile/compiled_model.h"
#include "ops/args/elements.h"

namespace reprise::verification {
namespace {

constexpr int64_t kSumRows = 64, kSumWidth = 256, kSumElements = kSumRows * kSumWidth;
constexpr int kChain = 100;  // sums after each other, for times
constexpr size_t kSumBytes = kSumElements * sizeof(uint16_t);

using Bf16s = std::vector<uint16_t>;  // bf16

// Small whole numbers: their sums are exact.
uint16_t addend(int64_t i, int seed) { return float_to_bf16(static_cast<float>((i * 7 + seed * 13) % 61)); }
float sum_of(int64_t i, int seed) {
  return static_cast<float>((i * 7 + seed * 13) % 61 + (i * 7 + (seed + 1) * 13) % 61);
}

// out = a + b + b + ... (`sums` times), compiled as models are.
class Sums {
 public:
  static Result<std::unique_ptr<Sums>> make(const Platform& platform, int sums) {
    std::unique_ptr<Sums> s(new Sums);
    s->device_ = platform.device.get();
    Graph g("self-test");
    ASSIGN_OR_RETURN(const SymbolId rows, g.add_symbol("T", kSumRows));
    const TensorType type{DType::BF16, {Dim(1, rows), Dim(kSumWidth)}};
    ASSIGN_OR_RETURN(Node * a, g.add_source(*platform.ops->find("input"), "a", type));
    ASSIGN_OR_RETURN(Node * b, g.add_source(*platform.ops->find("input"), "b", type));
    Value* value = a->result();
    for (int i = 0; i < sums; ++i) {
      ASSIGN_OR_RETURN(Node * sum, g.add(*platform.ops->find("add"), {value, b->result()}, {}));
      value = sum->result();
    }
    RETURN_IF_ERROR(g.add_output("sum", value));
    s->live_ = g.bounds();
    ASSIGN_OR_RETURN(s->selection_, select_kernels(g, platform));
    s->staging_.declare(g, {});
    RETURN_IF_ERROR(s->staging_.allocate(*platform.device));
    ASSIGN_OR_RETURN(s->params_, ParamStore::create(s->selection_.params, *platform.device));
    MemoryPlan plan = plan_memory(g, s->selection_.workspace);
    ASSIGN_OR_RETURN(s->arena_, platform.device->pool().allocate(plan.arena_bytes, "self-test"));
    CompileRequest request;
    request.platform = &platform;
    request.params = &s->params_;
    request.staging = &s->staging_;
    request.arena = s->arena_.data();
    request.size_symbols = {rows};
    ASSIGN_OR_RETURN(s->model_, CompiledModel::compile(std::move(g), s->selection_, std::move(plan), request));
    s->model_->cut(GraphMode::Whole);
    ASSIGN_OR_RETURN(s->stream_, platform.device->make_stream());
    s->stream_->set_live_sizes(s->live_);
    return s;
  }
  ~Sums() { model_.reset(); }

  void set_inputs(int seed) {
    for (const char* name : {"a", "b"}) {
      auto* data = static_cast<uint16_t*>(staging_.input(name).value().data);
      for (int64_t i = 0; i < kSumElements; ++i) data[i] = addend(i, seed + (*name == 'b' ? 1 : 0));
    }
  }
  Status run() { return model_->run(live_, *stream_); }
  Status capture() { return model_->capture(kSumRows, live_); }
  Status replay() { return model_->replay(kSumRows, live_, *stream_); }
  Status upload(Stream& stream) { return staging_.upload(stream); }
  void* result() const { return model_->view(model_->graph().outputs()[0].value).data; }
  // Not cut into pieces yet, or all in one.
  const Thunk& thunk() const { return model_->pieces().front().thunks.front(); }
  const LiveSizes& live() const { return live_; }
  Stream& stream() const { return *stream_; }
  Device& device() const { return *device_; }

  // Ok, or the first number that is not that of the inputs with this seed.
  Status expect(const void* at, int seed) const {
    Bf16s got(static_cast<size_t>(kSumElements));
    RETURN_IF_ERROR(stream_->copy(got.data(), at, kSumBytes, Copy::DeviceToHost));
    RETURN_IF_ERROR(stream_->synchronize());
    for (int64_t i = 0; i < kSumElements; ++i)
      if (bf16_to_float(got[static_cast<size_t>(i)]) != sum_of(i, seed))
        return error(Code::Device, "sum {} of {} is {}, not {}", i, kSumElements,
                     bf16_to_float(got[static_cast<size_t>(i)]), sum_of(i, seed));
    return Status::ok();
  }

 private:
  Sums() = default;

  Device* device_ = nullptr;
  KernelSelection selection_;
  ParamStore params_;
  Staging staging_;
  Buffer arena_;
  LiveSizes live_;
  std::unique_ptr<CompiledModel> model_;
  std::unique_ptr<Stream> stream_;
};

Status memory_there_and_back(Device& device) {
  constexpr size_t kMuch = size_t{1} << 20;
  ASSIGN_OR_RETURN(const auto stream, device.make_stream());
  ASSIGN_OR_RETURN(const Buffer there, device.pool().allocate(kMuch, "self-test"));
  ASSIGN_OR_RETURN(const Buffer host, device.host_pool().allocate(kMuch, "self-test"));
  for (size_t i = 0; i < kMuch; ++i) host.as<uint8_t>()[i] = static_cast<uint8_t>((i * 31) >> 3);
  RETURN_IF_ERROR(stream->copy(there.data(), host.data(), kMuch, Copy::HostToDevice));
  RETURN_IF_ERROR(stream->synchronize());
  std::vector<uint8_t> sent(host.as<uint8_t>(), host.as<uint8_t>() + kMuch);
  std::memset(host.data(), 0, kMuch);
  RETURN_IF_ERROR(stream->copy(host.data(), there.data(), kMuch, Copy::DeviceToHost));
  RETURN_IF_ERROR(stream->synchronize());
  if (std::memcmp(sent.data(), host.data(), kMuch) != 0) return error(Code::Device, "other bytes came back");
  return Status::ok();
}

Status compute_a_sum(Sums& s) {
  s.set_inputs(1);
  RETURN_IF_ERROR(s.run());
  return s.expect(s.result(), 1);
}

// A capture computes nothing, and its replay reads what lies in the inputs then.
Status capture_and_replay(Sums& s) {
  s.set_inputs(2);
  RETURN_IF_ERROR(s.capture());
  RETURN_IF_ERROR(s.expect(s.result(), 1).at("the capture should have left the result alone"));
  for (const int seed : {2, 3}) {
    s.set_inputs(seed);
    RETURN_IF_ERROR(s.replay());
    RETURN_IF_ERROR(s.expect(s.result(), seed).at("replay"));
  }
  return Status::ok();
}

// A replay that sends one launch's result elsewhere; the next keeps it so.
Status change_a_launch(Sums& s) {
  if (!s.device().info().patches) return error(Code::Unsupported, "this device changes no launch of a graph");
  ASSIGN_OR_RETURN(const Buffer elsewhere, s.device().pool().allocate(kSumBytes, "self-test"));
  PatchId id = 0;
  const auto record = [&](Recorder& r) -> Status {
    ASSIGN_OR_RETURN(id, r.launch_patchable(s.thunk()));
    return Status::ok();
  };
  ASSIGN_OR_RETURN(const auto graph, s.device().capture(s.stream(), record));
  LaunchArgs args = s.thunk().args;
  const auto replay = [&](int seed, std::span<const Patch> patches) -> Status {
    s.set_inputs(seed);
    RETURN_IF_ERROR(s.upload(s.stream()));
    RETURN_IF_ERROR(graph->replay(s.stream(), patches));
    return s.stream().synchronize();
  };
  RETURN_IF_ERROR(replay(4, {}));
  RETURN_IF_ERROR(s.expect(s.result(), 4).at("before the change"));
  args.as<BinaryArgs>().out = {elsewhere.data()};
  const Patch patch{id, &args};
  RETURN_IF_ERROR(replay(5, {&patch, 1}));
  RETURN_IF_ERROR(s.expect(elsewhere.data(), 5).at("changed"));
  RETURN_IF_ERROR(s.expect(s.result(), 4).at("the result before the change"));
  RETURN_IF_ERROR(replay(6, {}));
  return s.expect(elsewhere.data(), 6).at("after the change");
}

// One stream makes what another reads, ordered by an event alone.
Status order_two_streams(Sums& s) {
  ASSIGN_OR_RETURN(const auto other, s.device().make_stream());
  ASSIGN_OR_RETURN(const auto event, s.device().make_event());
  other->set_live_sizes(s.live());
  for (const int seed : {7, 8}) {
    s.set_inputs(seed);
    RETURN_IF_ERROR(s.upload(s.stream()));
    RETURN_IF_ERROR(s.stream().record(*event));
    RETURN_IF_ERROR(other->wait(*event));
    RETURN_IF_ERROR(other->launch(s.thunk()));
    RETURN_IF_ERROR(other->synchronize());
    RETURN_IF_ERROR(s.expect(s.result(), seed));
  }
  return Status::ok();
}

// Time of one launch, eager and in a graph: a long chain's less a short one's, each the best of a few.
Result<std::vector<std::pair<std::string, double>>> launch_times(const Platform& platform) {
  ASSIGN_OR_RETURN(const auto one, Sums::make(platform, 1));
  ASSIGN_OR_RETURN(const auto many, Sums::make(platform, 1 + kChain));
  double best[2][2] = {{1e30, 1e30}, {1e30, 1e30}};
  RETURN_IF_ERROR(one->capture());
  RETURN_IF_ERROR(many->capture());
  for (int i = 0; i < 5; ++i) {
    for (const bool replayed : {false, true}) {
      for (Sums* s : {one.get(), many.get()}) {
        s->set_inputs(1);
        const double begin = now_us(*platform.device);
        RETURN_IF_ERROR(replayed ? s->replay() : s->run());
        double& us = best[replayed][s == many.get()];
        us = std::min(us, now_us(*platform.device) - begin);
      }
    }
  }
  const auto each = [&](int replayed) { return (best[replayed][1] - best[replayed][0]) / kChain; };
  return std::vector<std::pair<std::string, double>>{{"a launch by itself", each(0)}, {"a launch in a graph", each(1)}};
}

}  // namespace

std::vector<std::string> SelfTest::failed() const {
  std::vector<std::string> out;
  for (const SelfCheck& c : checks)
    if (c.passed == false) out.push_back(c.name);
  return out;
}

SelfTest self_test(const Platform& platform) {
  SelfTest out;
  const auto check = [&](const char* name, bool needs_results, const std::function<Status()>& body) {
    if (needs_results && !platform.device->info().computes) {
      out.checks.push_back({name, std::nullopt, "the device computes nothing"});
      return;
    }
    const Status s = body();
    // What a device cannot do is no failure of it.
    const auto passed = s.code() == Code::Unsupported ? std::nullopt : std::optional(s.is_ok());
    out.checks.push_back({name, passed, s.message()});
  };
  check("memory: 1 MiB there and back", false, [&] { return memory_there_and_back(*platform.device); });
  std::unique_ptr<Sums> sums;
  check("operators: a sum can be bound", false, [&]() -> Status {
    auto made = Sums::make(platform, 1);
    if (!made) return error(Code::Device, "{}", made.status().message());
    sums = std::move(*made);
    return Status::ok();
  });
  if (!sums) return out;
  check("computation: bf16 [64, 256] + [64, 256]", true, [&] { return compute_a_sum(*sums); });
  check("graphs: capture runs nothing, replay computes", true, [&] { return capture_and_replay(*sums); });
  check("graphs: a launch is changed between replays", true, [&] { return change_a_launch(*sums); });
  check("streams: an event orders two of them", true, [&] { return order_two_streams(*sums); });
  if (platform.device->info().computes)
    for (const OwnCheck& own : platform.device->own_checks())
      check(own.name.c_str(), false, [&] { return own.result; });
  check("times: 100 sums in a row", false, [&]() -> Status {
    ASSIGN_OR_RETURN(out.times_us, launch_times(platform));
    return Status::ok();
  });
  return out;
}

}  // namespace reprise::verification
