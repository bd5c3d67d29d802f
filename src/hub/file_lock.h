// FileLock: an exclusive flock on a file that stays behind, as Python's filelock takes it; gone with the object or the
// process. Where a file system knows no flock it locks nothing. Movable; the thread that made it owns it.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace reprise::hub {

class FileLock {
 public:
  // Makes the file and its folders. Waits while another process holds it: `waits` is told once, and `stop` ends it.
  static Result<FileLock> take(const std::string& path, const std::function<void()>& waits,
                               const std::function<bool()>& stop);
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace reprise::hub
