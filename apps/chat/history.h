// History: the messages typed so far, oldest first, and the file that keeps them for later sessions: a JSON string a
// line, readable by its owner alone, and bounded. Sessions share the file: each adds its messages at the end, under a
// lock, so that none is lost. One thread at a time; any number of processes.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace reprise::apps {

class History {
 public:
  static constexpr size_t kMostMessages = 1000;
  static constexpr size_t kMostBytes = 1 << 20;         // of the file; beyond it, the older half goes
  static constexpr size_t kLongestMessage = 64 * 1024;  // longer ones stay in this session

  // "" for a history that ends with the session.
  explicit History(std::string path = {}) : path_(std::move(path)) {}

  // Reads the file; one that is not there is an empty one. After an error the history is that of the session alone.
  Status load();
  // A message that repeats the last one is not added.
  Status add(const std::string& message);
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  std::string path_;
  std::vector<std::string> messages_;
};

}  // namespace reprise::apps
