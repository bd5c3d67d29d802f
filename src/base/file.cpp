#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace reprise {
namespace {

struct Fd {
  int fd = -1;
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
};

Result<size_t> open_regular(const std::string& path, Fd& out) {
  out.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block before it is refused
  if (out.fd < 0) return error(errno == ENOENT ? Code::NotFound : Code::Invalid, "{}: {}", path, std::strerror(errno));
  struct stat st {};
  if (::fstat(out.fd, &st) != 0) return error(Code::Invalid, "{}: {}", path, std::strerror(errno));
  if (!S_ISREG(st.st_mode)) return invalid("{}: not a regular file", path);
  return static_cast<size_t>(st.st_size);
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  Fd fd;
  ASSIGN_OR_RETURN(size_t size, open_regular(path, fd));
  if (size > max_bytes) return invalid("{}: {} bytes, more than the allowed {}", path, size, max_bytes);
  std::string text(size, '\0');
  size_t got = 0;
  while (got < size) {
    const ssize_t n = ::read(fd.fd, text.data() + got, size - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error(Code::Invalid, "{}: {}", path, std::strerror(errno));
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  text.resize(got);
  return text;
}

Status write_file_atomically(const std::string& path, std::string_view bytes) {
  // A name of this process and this call, so that writers of the same file do not meet.
  static std::atomic<uint64_t> calls{0};
  const std::string temporary = fmt::format("{}.tmp.{}.{}", path, ::getpid(), ++calls);
  Fd fd;
  fd.fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd.fd < 0) return error(Code::Invalid, "{}: {}", temporary, std::strerror(errno));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd.fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int e = errno;
      ::unlink(temporary.c_str());
      return error(Code::Invalid, "{}: {}", temporary, std::strerror(e));
    }
    done += static_cast<size_t>(n);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int e = errno;
    ::unlink(temporary.c_str());
    return error(Code::Invalid, "{}: {}", path, std::strerror(e));
  }
  return Status::ok();
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  Fd fd;
  ASSIGN_OR_RETURN(size_t size, open_regular(path, fd));
  MappedFile file;
  file.path_ = path;
  if (size == 0) return file;
  void* p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.fd, 0);
  if (p == MAP_FAILED) return error(Code::OutOfMemory, "{}: cannot map {} bytes: {}", path, size, std::strerror(errno));
  file.data_ = static_cast<const uint8_t*>(p);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::release(size_t offset, size_t size) const {
  if (!data_ || offset >= size_) return;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;  // whole pages inside the range only
  const size_t end = std::min(size_, offset + size) / page * page;
  if (end > begin) ::madvise(const_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace reprise
