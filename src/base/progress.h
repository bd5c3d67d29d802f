// Progress: how far long work is, on standard error. A terminal gets a bar, redrawn at most ten times a second.
// Anything else gets a line every few seconds, the first one when the work has taken a few seconds, with what is done,
// the total and an estimate of the rest; short work prints nothing there. The lines have the form of log lines
// (base/log_form.h). On a thread with hooks (base/hooks.h) they get it instead. One thread at a time drives it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/hooks.h"

namespace reprise {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `between`: lines where there is no terminal, and before the first.
  Progress(std::string title, uint64_t total, bool enabled = true,
           std::chrono::milliseconds between = std::chrono::seconds(4));
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `detail` names what is being done. An amount of 0 shows that the work goes on.
  void advance(uint64_t amount, std::string_view detail = {});

  // The hooks of the thread that made it want the work to end.
  bool given_up() const { return hooks_ && hooks_->given_up; }

  // "title: 3 of 12 (25 %), about 9 s left: detail"; totals too large to be counted by a person are left out.
  static std::string line(std::string_view title, uint64_t done, uint64_t total, double seconds,
                          std::string_view detail);

 private:
  void draw(std::string_view detail);

  Hooks* hooks_ = current_hooks();
  std::string title_;
  uint64_t total_ = 0;
  uint64_t done_ = 0;
  bool enabled_ = false;
  bool terminal_ = false;
  bool drawn_ = false;
  std::chrono::milliseconds between_;
  Clock::time_point begin_{}, last_{};
};

}  // namespace reprise
