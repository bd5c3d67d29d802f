// A wire between hosts that are threads of one process: messages lie in queues. Stands for MPI where a test asks what a
// link does, or what a model over several hosts computes.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ranks/wire.h"

namespace reprise::testing_support {

// One network at a time in a process; each thread that uses the table has said which rank it is.
class MemoryWire {
 public:
  MemoryWire() {
    std::lock_guard lock(mutex());
    queues().clear();
    cut() = false;
  }
  static void be(int rank) { self() = rank; }
  // From now on nothing arrives, and nobody is told.
  static void pull_the_cable() { cut() = true; }
  static const reprise_wire& table() {
    static constexpr reprise_wire wire{REPRISE_WIRE_VERSION, nullptr, send, receive, next, done, nullptr};
    return wire;
  }

 private:
  using Queues = std::map<std::pair<int, int>, std::deque<std::string>>;  // by sender and receiver
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static Queues& queues() {
    static Queues q;
    return q;
  }
  static std::atomic<bool>& cut() {
    static std::atomic<bool> c{false};
    return c;
  }
  static int& self() {
    static thread_local int rank = 0;
    return rank;
  }
  static void* operation() {
    static int any = 0;
    return &any;
  }
  static void* send(int32_t to, const void* data, size_t bytes) {
    std::lock_guard lock(mutex());
    if (!cut()) queues()[{self(), to}].emplace_back(static_cast<const char*>(data), bytes);
    return operation();
  }
  static int64_t next(int32_t from) {
    std::lock_guard lock(mutex());
    const auto& waiting = queues()[{from, self()}];
    return cut() || waiting.empty() ? -1 : static_cast<int64_t>(waiting.front().size());
  }
  static void* receive(int32_t from, void* data, size_t bytes) {
    std::lock_guard lock(mutex());
    auto& waiting = queues()[{from, self()}];
    std::memcpy(data, waiting.front().data(), bytes);
    waiting.pop_front();
    return operation();
  }
  static int done(void*) { return 1; }
};

}  // namespace reprise::testing_support
