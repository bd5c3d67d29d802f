// Limits of one render, and Meter, which counts against them. A template is the publisher's program: steps bound its
// time, bytes its memory, depth its stack. A Meter belongs to one render and is used by that thread alone; every heap
// object of the render holds a Charge that gives its bytes back when it dies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "text/jinja/failure.h"

namespace reprise::text::jinja {

struct Limits {
  uint64_t max_steps = 10'000'000;
  size_t max_output_bytes = size_t{16} << 20;
  size_t max_memory_bytes = size_t{256} << 20;
  int max_depth = 1000;  // nested evaluations, macro calls included
};

constexpr size_t kMaxTemplateBytes = size_t{4} << 20;
constexpr int kMaxParseDepth = 100;    // nested brackets and blocks
constexpr int kMaxChainDepth = 500;    // operators and filters hanging on one another: a.b.c|d|e
constexpr int kMaxValueDepth = 256;    // lists in lists
constexpr size_t kMaxRange = 100'000;  // what jinja2's sandbox allows

class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits), steps_left_(limits.max_steps) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void step(uint64_t n = 1) {
    if (n > steps_left_) fail("the template ran for more than {} steps", limits_.max_steps);
    steps_left_ -= n;
  }
  // Fails when `bytes` more would not fit; called before a large object is built.
  void ensure(size_t bytes) const {
    if (bytes > limits_.max_memory_bytes - bytes_)
      fail("the template needs more than {} bytes of memory", limits_.max_memory_bytes);
  }
  void take(size_t bytes) {
    ensure(bytes);
    bytes_ += bytes;
  }
  void give(size_t bytes) { bytes_ -= bytes; }
  void enter() {
    if (depth_ >= limits_.max_depth) fail("the template nests deeper than {} calls", limits_.max_depth);
    ++depth_;
  }
  void leave() { --depth_; }
  const Limits& limits() const { return limits_; }

 private:
  Limits limits_;
  uint64_t steps_left_;
  size_t bytes_ = 0;
  int depth_ = 0;
};

// One level of evaluation for as long as it lives.
class DepthGuard {
 public:
  explicit DepthGuard(Meter& meter) : meter_(meter) { meter_.enter(); }
  ~DepthGuard() { meter_.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Meter& meter_;
};

// Bytes taken from a meter until destroyed. Constants of a compiled template have none.
class Charge {
 public:
  Charge() = default;
  Charge(Meter& meter, size_t bytes) : meter_(&meter), bytes_(bytes) { meter.take(bytes); }
  Charge(Charge&& other) noexcept : meter_(std::exchange(other.meter_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (meter_) meter_->give(bytes_);
  }
  // Only for a charge that has a meter.
  void extend(size_t bytes) {
    meter_->take(bytes);
    bytes_ += bytes;
  }

 private:
  Meter* meter_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace reprise::text::jinja
