#include "chat/history.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/json.h"

namespace reprise::apps {
namespace {

// The file, open and locked for as long as this lives.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path) : path_(path) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
    struct stat st {};
    if (fd_ < 0 || ::flock(fd_, LOCK_EX) != 0 || ::fstat(fd_, &st) != 0) {
      fail();
    } else if (!S_ISREG(st.st_mode)) {
      problem_ = invalid("{}: not a regular file", path);
    } else if ((st.st_mode & 077) != 0 && ::fchmod(fd_, 0600) != 0) {
      fail();
    }
    size_ = static_cast<size_t>(st.st_size);
  }
  ~LockedFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  const Status& problem() const { return problem_; }
  size_t size() const { return size_; }

  // What stands from `begin` to the end.
  std::string read_from(size_t begin) {
    std::string text(size_ - begin, '\0');
    size_t got = 0;
    while (got < text.size()) {
      const ssize_t n = ::pread(fd_, text.data() + got, text.size() - got, static_cast<off_t>(begin + got));
      if (n <= 0) break;
      got += static_cast<size_t>(n);
    }
    text.resize(got);
    return text;
  }

  void append(std::string_view text) {
    if (::write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) return fail();
    size_ += text.size();
  }

  // `text` is the end of the file. It is moved to the front before the rest is cut off: what breaks in between repeats
  // messages and loses none.
  void keep_only(std::string_view text) {
    const int fd = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    const bool done = fd >= 0 && ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                      ::ftruncate(fd, static_cast<off_t>(text.size())) == 0;
    if (!done) fail();
    if (fd >= 0) ::close(fd);
  }

 private:
  void fail() { problem_ = invalid("{}: {}", path_, std::strerror(errno)); }

  std::string path_;
  int fd_ = -1;
  size_t size_ = 0;
  Status problem_;
};

// The newer half of the file, from the beginning of a line on.
std::string newer_half(LockedFile& file) {
  const size_t begin = file.size() > History::kMostBytes / 2 ? file.size() - History::kMostBytes / 2 : 0;
  std::string text = file.read_from(begin);
  if (begin > 0) text.erase(0, std::min(text.size(), text.find('\n') + 1));
  return text;
}

}  // namespace

Status History::load() {
  messages_.clear();
  if (path_.empty()) return Status::ok();
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  LockedFile file(path_);
  if (!file.problem().is_ok()) {
    path_.clear();
    return file.problem();
  }
  const bool full = file.size() > kMostBytes;
  const std::string text = full ? newer_half(file) : file.read_from(0);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = Json::parse(text.substr(begin, end - begin), nullptr, false);
    // A line that is something else is damage; the others are still good.
    if (line.is_string()) messages_.push_back(line.get<std::string>());
    begin = end + 1;
  }
  if (messages_.size() > kMostMessages) messages_.erase(messages_.begin(), messages_.end() - kMostMessages);
  if (full) file.keep_only(text);
  return file.problem();
}

Status History::add(const std::string& message) {
  if (!messages_.empty() && messages_.back() == message) return Status::ok();
  messages_.push_back(message);
  if (messages_.size() > kMostMessages) messages_.erase(messages_.begin());
  if (path_.empty() || message.size() > kLongestMessage) return Status::ok();
  LockedFile file(path_);
  if (file.problem().is_ok()) file.append(Json(message).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  if (file.problem().is_ok() && file.size() > kMostBytes) file.keep_only(newer_half(file));
  if (!file.problem().is_ok()) path_.clear();
  return file.problem();
}

}  // namespace reprise::apps
