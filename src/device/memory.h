// Buffer and MemoryPool: owned device bytes, and where they come from.
//
// A Buffer frees its bytes when it goes; everything inside a step only points into one. A pool counts live and peak
// bytes by label, so that "where did the memory go" has an answer. Pools may be used from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise {

class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, size_t size, std::function<void(void*, size_t)> free)
      : data_(data), size_(size), free_(std::move(free)) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(free_, other.free_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ && free_) free_(data_, size_);
  }

  void* data() const { return data_; }
  size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  std::function<void(void*, size_t)> free_;
};

struct PoolStats {
  size_t live_bytes = 0;
  size_t peak_bytes = 0;
  std::map<std::string, size_t> live_by_label;  // only labels with live bytes
};

class MemoryPool {
 public:
  virtual ~MemoryPool() = default;
  // Zero-filled bytes, aligned to 2 MiB when they are at least that long, else to 256. Zero bytes give an empty Buffer.
  // What cannot be had is OutOfMemory with the label and the bytes, and nothing is counted. The pool must outlive its
  // buffers.
  virtual Result<Buffer> allocate(size_t bytes, std::string_view label) = 0;
  virtual PoolStats stats() const = 0;
};

}  // namespace reprise
