#include "server/request_log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "server/fields.h"

namespace reprise::server {

Result<std::unique_ptr<RequestLogFile>> RequestLogFile::open(const std::string& path) {
  std::unique_ptr<RequestLogFile> out(new RequestLogFile);
  RETURN_IF_ERROR(out->move_to(path));
  return out;
}

RequestLogFile::~RequestLogFile() {
  if (file_ > STDERR_FILENO) ::close(file_);
}

void RequestLogFile::write(const OrderedJson& line) {
  const std::string text = dumped(line) + "\n";
  std::lock_guard lock(mutex_);
  if (file_ < 0) return;
  // In one piece, so that lines of several writers do not mix.
  if (::write(file_, text.data(), text.size()) == static_cast<ssize_t>(text.size())) return;
  if (lost_++ == 0) log::warning("--request-log {}: {}; lines are lost", path_, ::strerror(errno));
}

Status RequestLogFile::move_to(const std::string& path) {
  int file = path == "-" ? STDOUT_FILENO : -1;
  if (file < 0 && !path.empty()) {
    file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (file < 0) return invalid("--request-log {}: {}", path, ::strerror(errno));
  }
  std::lock_guard lock(mutex_);
  if (file_ > STDERR_FILENO) ::close(file_);
  file_ = file;
  path_ = path;
  on_ = file >= 0;
  return Status::ok();
}

uint64_t RequestLogFile::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace reprise::server
