#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace reprise {

Progress::Progress(std::string title, uint64_t total, bool enabled)
    : title_(std::move(title)), total_(total), visible_(enabled && ::isatty(STDERR_FILENO)) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::advance(uint64_t amount, std::string_view detail) {
  done_ += amount;
  if (!visible_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && done_ < total_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  draw(detail);
}

void Progress::draw(std::string_view detail) {
  winsize w{};
  const int columns = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
  const double share = total_ ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)) : 1.0;
  constexpr int kWidth = 28;
  const int filled = static_cast<int>(share * kWidth);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
  const int room = std::max(0, columns - kWidth - static_cast<int>(title_.size()) - 10);
  const std::string shown(detail.substr(0, static_cast<size_t>(room)));
  const std::string line = fmt::format("\r\033[K{} {} {:3.0f}% {}", title_, bar, share * 100, shown);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace reprise
