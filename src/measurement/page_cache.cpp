#include "measurement/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace reprise::measurement {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of(const std::string& path) {
  std::error_code problem;
  if (fs::is_regular_file(path, problem)) return {path};
  std::vector<std::string> out;
  for (fs::recursive_directory_iterator it(path, problem), end; !problem && it != end; it.increment(problem))
    if (std::error_code ignored; it->is_regular_file(ignored)) out.push_back(it->path().string());
  return out;
}

// Pages of the file, and how many of them are in memory.
struct Pages {
  size_t all = 0, resident = 0;
};

Pages pages_of(const std::string& file) {
  Pages p;
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat about {};
  if (fd < 0) return p;
  if (::fstat(fd, &about) == 0 && about.st_size > 0) {
    const auto size = static_cast<size_t>(about.st_size), page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    std::vector<unsigned char> in_memory((size + page - 1) / page);
    if (data != MAP_FAILED && ::mincore(data, size, in_memory.data()) == 0) {
      p.all = in_memory.size();
      p.resident = static_cast<size_t>(
          std::count_if(in_memory.begin(), in_memory.end(), [](unsigned char c) { return (c & 1) != 0; }));
    }
    if (data != MAP_FAILED) ::munmap(data, size);
  }
  ::close(fd);
  return p;
}

}  // namespace

double page_cache_share(const std::string& path) {
  Pages sum;
  for (const std::string& file : files_of(path)) {
    const Pages p = pages_of(file);
    sum.all += p.all;
    sum.resident += p.resident;
  }
  return sum.all ? static_cast<double>(sum.resident) / static_cast<double>(sum.all) : 0;
}

void evict_from_page_cache(const std::string& path) {
  for (const std::string& file : files_of(path)) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ::fdatasync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

}  // namespace reprise::measurement
