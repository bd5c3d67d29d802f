// GgufFile: one GGUF file (version 2 or 3, little-endian), read through a mapping. open() checks every metadata entry
// and tensor against the file before anything else can be asked: counts, lengths, nesting, alignment, bounds and
// overlap. Owns the mapping; strings and spans handed out live as long as the object. Immutable after open, so any
// thread may read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "checkpoint/gguf_value.h"
#include "checkpoint/stored_tensor.h"

namespace reprise::checkpoint {

class GgufFile {
 public:
  static Result<GgufFile> open(const std::string& path);
  // Reads from memory; the caller keeps `bytes` alive. `source` names it in errors.
  static Result<GgufFile> parse(std::span<const uint8_t> bytes, std::string source);

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  const std::string& source() const { return source_; }

  // In the order of the file.
  const std::vector<GgufEntry>& metadata() const { return metadata_; }
  const GgufValue* find_value(std::string_view key) const;
  // One metadata value as a C++ type: nullopt when the key is absent, an error that names it when the type differs or
  // the number does not fit. Any integer type is accepted for integers, and any number for doubles.
  Result<std::optional<int64_t>> integer(std::string_view key) const;
  Result<std::optional<double>> number(std::string_view key) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string>> string(std::string_view key) const;

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  std::span<const uint8_t> bytes(const StoredTensor& t) const { return bytes_.subspan(t.offset, t.bytes); }
  void release(uint64_t offset, uint64_t size) const { file_.release(offset, size); }

 private:
  friend class GgufParser;

  MappedFile file_;
  std::span<const uint8_t> bytes_;
  std::string source_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::vector<GgufEntry> metadata_;
  std::unordered_map<std::string_view, size_t> metadata_index_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

}  // namespace reprise::checkpoint
