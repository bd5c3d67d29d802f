#include "server/request_log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "server/fields.h"

namespace reprise::server {
namespace {

// It holds what the operator asked for, and only the operator reads it.
Status make_private(int file, const std::string& path) {
  struct stat s {};
  if (::fstat(file, &s) != 0) return invalid("--request-log {}: {}", path, ::strerror(errno));
  if (!S_ISREG(s.st_mode)) return invalid("--log-prompts: --request-log {} is no file; allowed: a file", path);
  if (::fchmod(file, 0600) != 0)
    return invalid("--log-prompts: --request-log {} cannot be made readable to its owner alone: {}", path,
                   ::strerror(errno));
  return Status::ok();
}

Result<int> open_for_lines(const std::string& path, bool with_text) {
  if (path.empty()) return -1;
  if (with_text && path == "-")
    return invalid(
        "--log-prompts: --request-log -: who reads standard output is not this server's to say; allowed: a file");
  if (path == "-") return STDOUT_FILENO;
  // A pipe without a reader would hold up the opening.
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (with_text ? O_NONBLOCK : 0);
  const int file = ::open(path.c_str(), flags, with_text ? 0600 : 0640);
  if (file < 0) return invalid("--request-log {}: {}", path, ::strerror(errno));
  const Status done = with_text ? make_private(file, path) : Status::ok();
  if (done.is_ok()) return file;
  ::close(file);
  return done;
}

}  // namespace

Result<std::unique_ptr<RequestLogFile>> RequestLogFile::open(const std::string& path, bool with_text) {
  std::unique_ptr<RequestLogFile> out(new RequestLogFile(with_text));
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
  ASSIGN_OR_RETURN(const int file, open_for_lines(path, with_text_));
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
