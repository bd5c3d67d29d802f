// AlignedBytes: the bytes of a test's tensor, at an address that a cache line begins at. A value: copies are deep.
// Whole blocks are copied, filled and compared by the C library, because element by element they are half of a kernel
// test's time under a sanitizer.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace reprise::cpu {

class AlignedBytes {
 public:
  AlignedBytes() = default;
  AlignedBytes(size_t size, uint8_t value) : AlignedBytes(size) {
    if (size > 0) std::memset(data(), value, size);
  }
  AlignedBytes(const uint8_t* first, const uint8_t* last) : AlignedBytes(static_cast<size_t>(last - first)) {
    if (size_ > 0) std::memcpy(data(), first, size_);
  }
  AlignedBytes(const AlignedBytes& other) : AlignedBytes(other.begin(), other.end()) {}
  AlignedBytes(AlignedBytes&& other) noexcept
      : data_(std::move(other.data_)), size_(std::exchange(other.size_, size_t{0})) {}
  AlignedBytes& operator=(AlignedBytes other) noexcept {
    data_ = std::move(other.data_);
    size_ = other.size_;
    return *this;
  }

  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  uint8_t& operator[](size_t i) { return data_.get()[i]; }
  const uint8_t& operator[](size_t i) const { return data_.get()[i]; }
  uint8_t* begin() { return data(); }
  uint8_t* end() { return data() + size_; }
  const uint8_t* begin() const { return data(); }
  const uint8_t* end() const { return data() + size_; }
  bool operator==(const AlignedBytes& other) const {
    return size_ == other.size_ && (size_ == 0 || std::memcmp(data(), other.data(), size_) == 0);
  }

  void assign(const uint8_t* first, const uint8_t* last) { *this = AlignedBytes(first, last); }
  void assign(size_t size, uint8_t value) { *this = AlignedBytes(size, value); }
  void append(const uint8_t* first, const uint8_t* last) {
    const size_t before = size_;
    if (first == last) return;
    resize(before + static_cast<size_t>(last - first));
    std::memcpy(data() + before, first, static_cast<size_t>(last - first));
  }
  // What is new is zero. The block is a new one of exactly this size, so that a sanitizer sees its end.
  void resize(size_t size) {
    AlignedBytes other(size, 0);
    if (const size_t kept = size < size_ ? size : size_; kept > 0) std::memcpy(other.data(), data(), kept);
    *this = std::move(other);
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(uint8_t* p) const { ::operator delete(p, kAlignment); }
  };

  explicit AlignedBytes(size_t size)
      : data_(size > 0 ? static_cast<uint8_t*>(::operator new(size, kAlignment)) : nullptr), size_(size) {}

  std::unique_ptr<uint8_t, Free> data_;
  size_t size_ = 0;
};

}  // namespace reprise::cpu
