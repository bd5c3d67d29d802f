// RequestLogFile: a file with one line of JSON for each request that ended (`request_log`). Lines have names, numbers
// and times; never token ids, fields of users or addresses, and text only where the operator asks for it
// (`log_prompts`), in a file that is its owner's alone. Any thread.
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
  // "-": standard output; "": nothing is kept until move_to() names a file. `with_text`: the file is made readable to
  // its owner alone, also one that was there; what has no such mode of its own (standard output, a device, a pipe) is
  // refused.
  static Result<std::unique_ptr<RequestLogFile>> open(const std::string& path, bool with_text = false);
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
  explicit RequestLogFile(bool with_text) : with_text_(with_text) {}

  const bool with_text_;
  std::string path_;
  std::atomic<bool> on_{false};
  mutable std::mutex mutex_;
  int file_ = -1;
  uint64_t lost_ = 0;
};

}  // namespace reprise::server
