#include "hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

namespace reprise::hub {

Result<FileLock> FileLock::take(const std::string& path, const std::function<void()>& waits,
                                const std::function<bool()>& stop) {
  std::error_code problem;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), problem);
  for (bool reported = false;;) {
    // Another user of the folder must be able to open it too.
    FileLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664));
    if (lock.fd_ < 0) return error(Code::Invalid, "{}: {}", path, std::strerror(errno));
    if (::flock(lock.fd_, LOCK_EX | LOCK_NB) == 0) {
      struct stat st {};
      // Taken away between open and lock: the next process would make a new one.
      if (::fstat(lock.fd_, &st) == 0 && st.st_nlink == 0) continue;
      return lock;
    }
    if (errno != EWOULDBLOCK && errno != EINTR && errno != EACCES) return lock;
    if (!std::exchange(reported, true) && waits) waits();
    if (stop && stop()) return error(Code::Cancelled, "interrupted");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace reprise::hub
