// Progress: a bar on standard error for long work, drawn only when standard error is a terminal and redrawn at most ten
// times a second. Elsewhere it prints nothing, so logs and JSON stay clean. One thread drives it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace reprise {

class Progress {
 public:
  Progress(std::string title, uint64_t total, bool enabled = true);
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(uint64_t amount, std::string_view detail = {});

 private:
  void draw(std::string_view detail);

  std::string title_;
  uint64_t total_ = 0;
  uint64_t done_ = 0;
  bool visible_ = false;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace reprise
