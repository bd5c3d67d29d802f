// ByteReader: little-endian reads from untrusted bytes. Every read is checked against the end and answers with an error
// that names the offset, so a parser built on it cannot run over. It does not own the bytes; one thread at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/status.h"

namespace reprise {

static_assert(std::endian::native == std::endian::little, "file formats here are little-endian");

class ByteReader {
 public:
  ByteReader(std::span<const uint8_t> bytes, std::string_view source) : bytes_(bytes), source_(source) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

  template <typename T>
  Result<T> read(std::string_view what) {
    static_assert(std::is_trivially_copyable_v<T>);
    ASSIGN_OR_RETURN(auto raw, take(sizeof(T), what));
    T v;
    std::memcpy(&v, raw.data(), sizeof(T));
    return v;
  }

  // The next `size` bytes as a view of the source.
  Result<std::span<const uint8_t>> take(uint64_t size, std::string_view what) {
    if (size > remaining())
      return invalid("{}: {} at byte {} needs {} bytes, but only {} are left", source_, what, offset_, size,
                     remaining());
    auto out = bytes_.subspan(offset_, size);
    offset_ += size;
    return out;
  }

  Status skip(uint64_t size, std::string_view what) { return take(size, what).status(); }

 private:
  std::span<const uint8_t> bytes_;
  std::string_view source_;
  size_t offset_ = 0;
};

}  // namespace reprise
