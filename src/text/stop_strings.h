// StopStrings: watches a growing text for the strings that end it. Text that may be the beginning of one is held back,
// so a client never sees a stop string, even when it arrives in pieces. One answer, one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace reprise::text {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // The text that is now certain to belong to the answer. After hit() there is no more.
  std::string push(std::string_view piece);
  // What was held back, when the answer ends for another reason.
  std::string finish();
  bool hit() const { return hit_; }
  // The stop string that was seen; the first in the list when several end at once.
  const std::string& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;  // none is empty
  std::string held_, matched_;
  bool hit_ = false;
};

}  // namespace reprise::text
