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

Status make_private(int file, const std::string& path) {
  struct stat s {};
  if (::fstat(file, &s) != 0) return invalid("--request-log {}: {}", path, ::strerror(errno));
  if (!S_ISREG(s.st_mode)) return invalid("--log-prompts: --request-log {} is no file; allowed: a file", path);
  if (::fchmod(file, 0600) != 0)
    return invalid("--log-prompts: --request-log {} cannot be made readable to its owner alone: {}", path,
                   ::strerror(errno));
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<RequestLogFile>> RequestLogFile::open(const std::string& path, bool with_text) {
  if (with_text && path == "-")
    return invalid(
        "--log-prompts: --request-log -: who reads standard output is not this server's to say; allowed: a file");
  std::unique_ptr<RequestLogFile> out(new RequestLogFile(path, with_text));
  if (path == "-")
    out->file_ = STDOUT_FILENO;
  else
    RETURN_IF_ERROR(out->reopen());
  return out;
}

RequestLogFile::~RequestLogFile() {
  if (file_ > STDERR_FILENO) ::close(file_);
}

void RequestLogFile::write(const OrderedJson& line) {
  const std::string text = dumped(line) + "\n";
  std::lock_guard lock(mutex_);
  // In one piece, so that lines of several writers do not mix.
  if (::write(file_, text.data(), text.size()) == static_cast<ssize_t>(text.size())) return;
  if (lost_++ == 0) log::warning("--request-log {}: {}; lines are lost", path_, ::strerror(errno));
}

Status RequestLogFile::reopen() {
  if (path_ == "-") return Status::ok();
  // A pipe without a reader would hold up the opening.
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (with_text_ ? O_NONBLOCK : 0);
  const int file = ::open(path_.c_str(), flags, with_text_ ? 0600 : 0640);
  if (file < 0) return invalid("--request-log {}: {}", path_, ::strerror(errno));
  if (with_text_) {
    const Status done = make_private(file, path_);
    if (!done.is_ok()) {
      ::close(file);
      return done;
    }
  }
  std::lock_guard lock(mutex_);
  if (file_ > STDERR_FILENO) ::close(file_);
  file_ = file;
  return Status::ok();
}

uint64_t RequestLogFile::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace reprise::server
