// SafetensorsFile: one .safetensors file, read through a mapping. open() checks the whole header before anything else
// can be asked: its size, the JSON, every dtype, shape and byte range, and that the ranges cover the data without holes
// or overlap. Owns the mapping; spans from bytes() live as long as the object. Immutable after open, so any thread may
// read. write_safetensors() is the other direction.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "checkpoint/stored_tensor.h"

namespace reprise::checkpoint {

constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // the limit of the reference implementation

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  // Reads from memory; the caller keeps `bytes` alive. `source` names it in errors.
  static Result<SafetensorsFile> parse(std::span<const uint8_t> bytes, std::string source);

  // In the order of their data.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  // The strings of "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& source() const { return source_; }

  std::span<const uint8_t> bytes(const StoredTensor& t) const { return bytes_.subspan(t.offset, t.bytes); }
  // The pages of this range are not needed soon.
  void release(uint64_t offset, uint64_t size) const { file_.release(offset, size); }

 private:
  MappedFile file_;
  std::span<const uint8_t> bytes_;
  std::string source_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> index_;  // views of tensors_' names, whose buffers do not move
  std::map<std::string, std::string> metadata_;
};

struct TensorToWrite {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;  // shape product times the dtype's size
};

// Writes to a temporary name and renames, so a reader never sees half a file. Tensors are laid out widest dtype first,
// then by name, as the reference implementation does, so that each is aligned for its dtype.
Status write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace reprise::checkpoint
