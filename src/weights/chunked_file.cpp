#include "weights/chunked_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "base/hooks.h"

namespace reprise::weights {
namespace {

template <typename Step>
bool repeat(size_t bytes, Step step) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = step(done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

ChunkedFile::ChunkedFile(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}

ChunkedFile::~ChunkedFile() {
  if (fd_ >= 0) ::close(fd_);
}

size_t ChunkedFile::size() const {
  struct stat st {};
  return ::fstat(fd_, &st) == 0 ? static_cast<size_t>(st.st_size) : 0;
}

bool ChunkedFile::read(void* out, size_t bytes, size_t at) const {
  return repeat(bytes, [&](size_t done) {
    return ::pread(fd_, static_cast<char*>(out) + done, bytes - done, static_cast<off_t>(at + done));
  });
}

bool ChunkedFile::write(const void* data, size_t bytes, size_t at) const {
  return repeat(bytes, [&](size_t done) {
    return ::pwrite(fd_, static_cast<const char*>(data) + done, bytes - done, static_cast<off_t>(at + done));
  });
}

size_t chunk_bytes(size_t total, size_t chunk) {
  return std::min(ChunkedFile::kChunk, total - chunk * ChunkedFile::kChunk);
}

bool for_each_chunk(size_t total, int threads, const std::function<bool(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::atomic<bool> good{true};
  const auto run = [&] {
    for (size_t i; good && (i = next.fetch_add(1)) < chunk_count(total);)
      if (!work(i)) good = false;
  };
  std::vector<std::thread> others;
  const int useful = static_cast<int>(std::min<size_t>(static_cast<size_t>(std::max(threads, 1)), chunk_count(total)));
  for (int t = 1; t < useful; ++t) others.push_back(start_thread("load", run));
  run();
  for (auto& t : others) t.join();
  return good;
}

}  // namespace reprise::weights
