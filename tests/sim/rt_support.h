// What the tests of the simulator's runtime share: a fixture that starts the library with an environment, kernels that
// write a number, and waiting by polling.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ascend/kernel.h"
#include "ascend/runtime/acl_rt.h"

namespace sim_test {

using Env = std::vector<std::pair<std::string, std::string>>;

inline void clear_environment() {
  for (const char* name : {"SOC", "STACK", "HBM_BYTES", "COMPUTE", "CANN", "JITTER", "RACES", "FAULT", "HANG_MS",
                           "DESTROY_MS", "LAUNCH_FACTOR", "RATES"}) {
    unsetenv((std::string("ASCEND_SIM_") + name).c_str());
  }
}

inline std::string last_text() {
  const char* text = aclGetRecentErrMsg();
  return text == nullptr ? "" : text;
}

// Polls for up to a minute, which only a failing test needs.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class Runtime : public ::testing::Test {
 protected:
  void SetUp() override { clear_environment(); }
  void TearDown() override {
    aclFinalize();
    clear_environment();
  }

  // Small memory unless the test asks otherwise: blocks are poisoned, not the whole.
  void start(const Env& env = {}) {
    setenv("ASCEND_SIM_HBM_BYTES", "1073741824", 1);
    for (const auto& [name, value] : env) setenv(("ASCEND_SIM_" + name).c_str(), value.c_str(), 1);
    ASSERT_EQ(aclInit(nullptr), 0) << last_text();
    start_again();
  }
  // After aclInit, or after the device was reset.
  void start_again() {
    ASSERT_EQ(aclrtSetDevice(0), 0) << last_text();
    ASSERT_EQ(aclrtCreateStreamWithConfig(&stream_, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC), 0)
        << last_text();
    stream2_ = new_stream();
    ASSERT_EQ(aclrtMalloc(reinterpret_cast<void**>(&values_), kValues * sizeof(int64_t), ACL_MEM_MALLOC_HUGE_FIRST), 0);
    ASSERT_EQ(aclrtMemset(values_, kValues * 8, 0, kValues * 8), 0);
  }

  aclrtStream new_stream() {
    aclrtStream stream = nullptr;
    EXPECT_EQ(aclrtCreateStreamWithConfig(&stream, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC), 0) << last_text();
    return stream;
  }

  aclrtEvent new_event(uint32_t flags = ACL_EVENT_SYNC) {
    aclrtEvent event = nullptr;
    EXPECT_EQ(aclrtCreateEventExWithFlag(&event, flags), 0) << last_text();
    return event;
  }

  // A kernel that writes a number to values_[slot].
  ascend_sim::Kernel writer(int slot, int64_t number, ascend_sim::Unit unit = ascend_sim::Unit::Vector) {
    ascend_sim::Kernel kernel;
    kernel.name = "writer";
    kernel.unit = unit;
    kernel.work = {1, 8};
    int64_t* to = values_ + slot;
    kernel.touches = {{to, 8, true}};
    // Atomic, as one test races on purpose.
    kernel.compute = [to, number] { __atomic_store_n(ascend_sim::host<int64_t>(to), number, __ATOMIC_RELAXED); };
    return kernel;
  }
  int launch_writer(aclrtStream stream, int slot, int64_t number) {
    return ascend_sim::launch(stream, {writer(slot, number)});
  }
  // values_[to] = values_[from]
  int launch_mover(aclrtStream stream, int from, int to) {
    ascend_sim::Kernel kernel;
    kernel.name = "mover";
    kernel.work = {1, 16};
    int64_t* source = values_ + from;
    int64_t* target = values_ + to;
    kernel.touches = {{source, 8, false}, {target, 8, true}};
    kernel.compute = [source, target] {
      const int64_t moved = __atomic_load_n(ascend_sim::host<int64_t>(source), __ATOMIC_RELAXED);
      __atomic_store_n(ascend_sim::host<int64_t>(target), moved, __ATOMIC_RELAXED);
    };
    return ascend_sim::launch(stream, {kernel});
  }
  int64_t value(int slot) {
    int64_t number = -1;
    EXPECT_EQ(aclrtMemcpy(&number, 8, values_ + slot, 8, ACL_MEMCPY_DEVICE_TO_HOST), 0) << last_text();
    return number;
  }
  // Blocks a stream until open_gate(), by a value in memory.
  static constexpr int kGate = 63;
  int close_gate(aclrtStream stream) { return aclrtValueWait(values_ + kGate, 1, ACL_STREAM_WAIT_VALUE_EQ, stream); }
  void open_gate() {
    const int64_t one = 1;
    EXPECT_EQ(aclrtMemcpy(values_ + kGate, 8, &one, 8, ACL_MEMCPY_HOST_TO_DEVICE), 0) << last_text();
  }

  aclmdlRI capture(const std::function<void()>& body) {
    EXPECT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0) << last_text();
    body();
    aclmdlRI graph = nullptr;
    EXPECT_EQ(aclmdlRICaptureEnd(stream_, &graph), 0) << last_text();
    return graph;
  }
  aclmdlRICaptureStatus status(aclrtStream stream) {
    aclmdlRICaptureStatus answer = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    EXPECT_EQ(aclmdlRICaptureGetInfo(stream, &answer, nullptr), 0) << last_text();
    return answer;
  }
  static std::string stats() {
    std::string text(1 << 16, ' ');
    text.resize(static_cast<size_t>(ascendSimStats(text.data(), text.size())));
    return text;
  }
  // The number behind a name in stats().
  static double stat(const std::string& name) {
    const std::string text = stats();
    const size_t at = text.find("\"" + name + "\": ");
    EXPECT_NE(at, std::string::npos) << name << " in " << text;
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + name.size() + 4);
  }

  static constexpr size_t kValues = 64;
  aclrtStream stream_ = nullptr;
  aclrtStream stream2_ = nullptr;
  int64_t* values_ = nullptr;  // in the device
};

}  // namespace sim_test
