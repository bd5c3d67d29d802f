// Builders of small safetensors and GGUF files for tests, in memory, right or wrong as asked.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::checkpoint {

inline std::string data_dir() { return std::string(REPRISE_SOURCE_DIR) + "/tests/data"; }

inline std::span<const uint8_t> bytes_of(std::string_view s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

template <typename T>
void put(std::string& out, T v) {
  char raw[sizeof(T)];
  std::memcpy(raw, &v, sizeof(T));
  out.append(raw, sizeof(T));
}

inline std::string safetensors_bytes(std::string_view header, size_t data_bytes) {
  std::string out;
  put<uint64_t>(out, header.size());
  out += header;
  for (size_t i = 0; i < data_bytes; ++i) out += static_cast<char>(i * 37 + 1);
  return out;
}

// Appends in the order of the file: metadata first, then tensors, then finish().
struct GgufBuilder {
  uint32_t version = 3;
  uint64_t alignment = 32;
  std::string metadata, infos, data;
  uint64_t entries = 0, tensors = 0;

  static void text(std::string& out, std::string_view s) {
    put<uint64_t>(out, s.size());
    out += s;
  }
  void key(std::string_view k, uint32_t type) {
    text(metadata, k);
    put<uint32_t>(metadata, type);
    ++entries;
  }
  GgufBuilder& str(std::string_view k, std::string_view v) {
    key(k, 8);
    text(metadata, v);
    return *this;
  }
  GgufBuilder& u32(std::string_view k, uint32_t v) {
    key(k, 4);
    put(metadata, v);
    return *this;
  }
  GgufBuilder& f32(std::string_view k, float v) {
    key(k, 6);
    put(metadata, v);
    return *this;
  }
  GgufBuilder& flag(std::string_view k, uint8_t v) {
    key(k, 7);
    put(metadata, v);
    return *this;
  }
  GgufBuilder& strings(std::string_view k, const std::vector<std::string>& v) {
    key(k, 9);
    put<uint32_t>(metadata, 8);
    put<uint64_t>(metadata, v.size());
    for (const std::string& s : v) text(metadata, s);
    return *this;
  }
  template <typename T>
  GgufBuilder& array(std::string_view k, uint32_t element, const std::vector<T>& v) {
    key(k, 9);
    put<uint32_t>(metadata, element);
    put<uint64_t>(metadata, v.size());
    for (T x : v) put(metadata, x);
    return *this;
  }
  // `dims` in GGUF's order, contiguous first.
  GgufBuilder& info(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    text(infos, name);
    put<uint32_t>(infos, static_cast<uint32_t>(dims.size()));
    for (uint64_t d : dims) put(infos, d);
    put(infos, type);
    put(infos, offset);
    ++tensors;
    return *this;
  }
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, std::string_view bytes) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    info(name, dims, type, data.size());
    data += bytes;
    return *this;
  }
  GgufBuilder& f32_tensor(std::string_view name, const std::vector<uint64_t>& dims, const std::vector<float>& v) {
    return tensor(name, dims, 0, {reinterpret_cast<const char*>(v.data()), v.size() * 4});
  }
  std::string finish() const {
    std::string out = "GGUF";
    put(out, version);
    put(out, tensors);
    put(out, entries);
    out += metadata + infos;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

// A new folder under the temporary directory, removed with its contents at the end.
struct TemporaryFolder {
  std::string path;
  TemporaryFolder();
  ~TemporaryFolder();
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path + "/" + name, std::ios::binary) << bytes;
    return path + "/" + name;
  }
};

// One error: not Ok, one line, and with all the given words.
inline void expect_error(const Status& s, const std::vector<std::string_view>& words) {
  ASSERT_FALSE(s.is_ok());
  EXPECT_EQ(s.message().find('\n'), std::string::npos) << s.message();
  EXPECT_LT(s.message().size(), 1200u) << s.message();
  for (std::string_view w : words) EXPECT_NE(s.message().find(w), std::string::npos) << w << " in: " << s.message();
}

}  // namespace reprise::checkpoint
