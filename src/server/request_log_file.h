// RequestLogFile: a file with one line of JSON for each request that ended (`request_log`). Lines have names, numbers
// and times; never text, token ids, fields of users or addresses. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace reprise::server {

class RequestLogFile {
 public:
  // "-": standard output; "": nothing is kept until move_to() names a file.
  static Result<std::unique_ptr<RequestLogFile>> open(const std::string& path);
  ~RequestLogFile();
  RequestLogFile(const RequestLogFile&) = delete;
  RequestLogFile& operator=(const RequestLogFile&) = delete;

  // A line that cannot be written is counted, and told of once.
  void write(const OrderedJson& line);
  // After the file was renamed: the next line goes to a new one. The old one stays when that fails.
  Status reopen() { return move_to(path_); }
  // The next line goes there; the thread that calls reopen() and this is one.
  Status move_to(const std::string& path);
  bool on() const { return on_; }
  uint64_t lost() const;

 private:
  RequestLogFile() = default;

  std::string path_;
  std::atomic<bool> on_{false};
  mutable std::mutex mutex_;
  int file_ = -1;
  uint64_t lost_ = 0;
};

}  // namespace reprise::server
