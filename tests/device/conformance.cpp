#include "device/conformance.h"

#include <cstdlib>
#include <cstring>

#include "backends/all.h"
#include "backends/cpu/cpu_device.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/null/null_device.h"

namespace reprise::conformance {
namespace {

const float* from(const LaunchArgs& args) { return static_cast<const float*>(args.ptr[0]); }
float* to(const LaunchArgs& args) { return static_cast<float*>(args.ptr[1]); }

template <typename Op>
void cpu_toy(const LaunchArgs& args, const LiveSizes& live, int thread, int threads) {
  const cpu::Range r = cpu::share(args.dim[0].value(live), thread, threads);
  for (int64_t i = r.begin; i < r.end; ++i) to(args)[i] = Op()(from(args)[i], static_cast<float>(args.scalar[0]));
}

template <typename Op>
void null_toy(const LaunchArgs& args, const LiveSizes& live) {
  for (int64_t i = 0; i < args.dim[0].value(live); ++i)
    to(args)[i] = Op()(from(args)[i], static_cast<float>(args.scalar[0]));
}

struct First {
  float operator()(float a, float) const { return a; }
};

template <template <typename> typename Kernel>
Toys toys() {
  return {Kernel<std::plus<>>::get(), Kernel<std::multiplies<>>::get(), Kernel<First>::get()};
}
template <typename Op>
struct CpuToy {
  static OpaqueKernel get() { return cpu::opaque(cpu_toy<Op>); }
};
template <typename Op>
struct NullToy {
  static OpaqueKernel get() { return null::opaque(null_toy<Op>); }
};

Subject cpu_subject(int threads) {
  auto make = [threads]() -> Result<std::shared_ptr<Device>> {
    ASSIGN_OR_RETURN(auto device, cpu::make_cpu_device({threads, false, cpu::Isa::Baseline}));
    return std::shared_ptr<Device>(std::move(device));
  };
  return {"cpu_" + std::to_string(threads), make, toys<CpuToy>(), {}, {}};
}

Subject null_subject(std::string name, null::NullDeviceOptions options) {
  auto make = [options]() -> Result<std::shared_ptr<Device>> {
    return std::shared_ptr<Device>(null::make_null_device(options));
  };
  return {std::move(name), make, toys<NullToy>(), {}, {}};
}

Subject platform_subject(std::string name, DeviceOptions options, Toys toys) {
  auto make = [options]() -> Result<std::shared_ptr<Device>> {
    ASSIGN_OR_RETURN(Platform platform, make_platform(options));
    return std::move(platform.device);
  };
  return {std::move(name), make, toys, {}, {}};
}

Subject cuda_subject() {
  DeviceOptions options;
  options.kind = DeviceKind::Cuda;
  return platform_subject("cuda", options, cuda_toys());
}

// The card where there is one, and the simulator everywhere: with random delays between streams, and looking for work
// on the same memory that nothing orders.
Subject ascend_subject(const std::string& runtime) {
  DeviceOptions options;
  options.kind = DeviceKind::Ascend;
  options.ascend_runtime = runtime;
  setenv("ASCEND_SIM_RACES", "1", 0);
  setenv("ASCEND_SIM_JITTER", "1", 0);
  return platform_subject("ascend_" + runtime, options, ascend_toys());
}

bool is_set(const char* variable, std::string_view value) {
  const char* v = std::getenv(variable);
  return v && v == value;
}

// "Device/Pool.IsZeroFilled/cpu_2" without what stands around it.
std::string check_name(const testing::TestInfo& test) {
  const std::string suite = test.test_suite_name(), name = test.name();
  return suite.substr(suite.find('/') + 1) + "." + name.substr(0, name.find('/'));
}

}  // namespace

const std::vector<Subject>& subjects() {
  null::NullDeviceOptions strict;
  strict.host_visible = false;
  strict.deferred = true;
  static const std::vector<Subject> all{
      cpu_subject(1), cpu_subject(3),           null_subject("null", {}), null_subject("null_strict", strict),
      cuda_subject(), ascend_subject("system"), ascend_subject("sim")};
  return all;
}

void Conformance::SetUp() {
  const Subject& subject = GetParam();
  const std::string check = check_name(*testing::UnitTest::GetInstance()->current_test_info());
  if (auto it = subject.never.find(check); it != subject.never.end()) GTEST_SKIP() << "never: " << it->second;
  if (auto it = subject.not_yet.find(check); it != subject.not_yet.end() && !is_set("REPRISE_DEVICE_NOT_YET", "1"))
    GTEST_SKIP() << "not yet: " << it->second;
  auto made = subject.make();
  if (!made && made.status().code() == Code::Unsupported && !is_set("REPRISE_REQUIRE_DEVICE", subject.name))
    GTEST_SKIP() << made.status().message();
  ASSERT_TRUE(made) << made.status().message();
  device = std::move(*made);
  stream = new_stream();
}

std::unique_ptr<Stream> Conformance::new_stream() { return device->make_stream().value(); }

void Conformance::write(const Buffer& to, const void* data, size_t bytes) {
  const Buffer host = device->host_pool().allocate(bytes, "conformance host").value();
  if (bytes) std::memcpy(host.data(), data, bytes);
  EXPECT_OK(stream->copy(to.data(), host.data(), bytes, Copy::HostToDevice));
  EXPECT_OK(stream->synchronize());
}

void Conformance::write(const Buffer& to, const std::vector<float>& values) {
  write(to, values.data(), values.size() * sizeof(float));
}

std::vector<uint8_t> Conformance::read_bytes(const Buffer& from) {
  const Buffer host = device->host_pool().allocate(from.size(), "conformance host").value();
  EXPECT_OK(stream->copy(host.data(), from.data(), from.size(), Copy::DeviceToHost));
  EXPECT_OK(stream->synchronize());
  return {host.as<uint8_t>(), host.as<uint8_t>() + from.size()};
}

std::vector<float> Conformance::read(const Buffer& from) {
  const std::vector<uint8_t> bytes = read_bytes(from);
  std::vector<float> out(bytes.size() / sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

Thunk Conformance::thunk(OpaqueKernel kernel, const Buffer& from, const Buffer& to, Dim n, double scalar) const {
  Thunk t;
  t.part[0] = kernel;
  t.args.ptr[0] = from.data();
  t.args.ptr[1] = to.data();
  t.args.dim[0] = n;
  t.args.scalar[0] = scalar;
  return t;
}

std::unique_ptr<DeviceGraph> Conformance::capture(const std::vector<Thunk>& thunks) {
  auto graph = device->capture(*stream, [&](Recorder& recorder) -> Status {
    for (const Thunk& t : thunks) RETURN_IF_ERROR(recorder.launch(t));
    return Status::ok();
  });
  EXPECT_TRUE(graph) << graph.status().message();
  return graph ? std::move(*graph) : nullptr;
}

std::vector<float> ramp(size_t n) {
  return ramp(n, [](float v) { return v; });
}

std::vector<float> ramp(size_t n, const std::function<float(float)>& f) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = f(static_cast<float>(i) + 0.5f);
  return out;
}

// A check that was renamed must not leave an exclusion behind that excludes nothing.
TEST(Subjects, ExclusionsNameChecksAndSayWhy) {
  std::map<std::string, int> known;
  const auto& unit = *testing::UnitTest::GetInstance();
  for (int s = 0; s < unit.total_test_suite_count(); ++s)
    for (int t = 0; t < unit.GetTestSuite(s)->total_test_count(); ++t)
      ++known[check_name(*unit.GetTestSuite(s)->GetTestInfo(t))];
  EXPECT_EQ(known["Pool.IsZeroFilled"], static_cast<int>(subjects().size()));
  for (const Subject& s : subjects())
    for (const auto* list : {&s.never, &s.not_yet})
      for (const auto& [check, reason] : *list) {
        EXPECT_TRUE(known.contains(check)) << s.name << " excludes " << check;
        EXPECT_FALSE(reason.empty()) << s.name << " excludes " << check;
      }
}

}  // namespace reprise::conformance
