// Files: a whole file read into memory, and a read-only mapping. Errors name the path and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace reprise {

// Reads a regular file of at most `max_bytes`.
Result<std::string> read_file(const std::string& path, size_t max_bytes = size_t{1} << 30);
// Writes through a temporary name and a rename, so that a reader sees the old file or the whole new one.
Status write_file_atomically(const std::string& path, std::string_view bytes);

// Owns a read-only mapping of a regular file. Movable; readable from any thread.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells the kernel that these bytes are not needed soon, so that loading a model does not keep two copies resident.
  void release(size_t offset, size_t size) const;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace reprise
