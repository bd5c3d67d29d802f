// ChunkedFile: one open file, read and written at given offsets, and a loop over chunks of 16 MB on several threads.
// It owns the descriptor. Reads and writes at different offsets may come from any number of threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace reprise::weights {

class ChunkedFile {
 public:
  static constexpr size_t kChunk = size_t{16} << 20;

  ChunkedFile(const std::string& path, int flags);
  ~ChunkedFile();
  ChunkedFile(const ChunkedFile&) = delete;
  ChunkedFile& operator=(const ChunkedFile&) = delete;

  bool is_open() const { return fd_ >= 0; }
  size_t size() const;
  // False when the file is shorter or the system refuses; errno says why in the second case.
  bool read(void* out, size_t bytes, size_t at) const;
  bool write(const void* data, size_t bytes, size_t at) const;

 private:
  int fd_;
};

inline size_t chunk_count(size_t bytes) { return (bytes + ChunkedFile::kChunk - 1) / ChunkedFile::kChunk; }
size_t chunk_bytes(size_t total, size_t chunk);

// Calls `work` with every chunk's number, on `threads` threads; false as soon as one call returns false.
bool for_each_chunk(size_t total, int threads, const std::function<bool(size_t)>& work);

}  // namespace reprise::weights
