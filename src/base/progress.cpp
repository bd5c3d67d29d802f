#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/log_form.h"

namespace reprise {

namespace {

std::string duration(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  return fmt::format("{:.0f} min", seconds / 60);
}

}  // namespace

Progress::Progress(std::string title, uint64_t total, bool enabled, std::chrono::milliseconds between)
    : title_(std::move(title)),
      total_(total),
      enabled_(enabled && (hooks_ ? bool(hooks_->progress) : log::level() <= log::Level::Notice)),
      terminal_(enabled_ && !hooks_ && ::isatty(STDERR_FILENO) && log::form() != log::Form::Json),
      between_(between),
      begin_(Clock::now()),
      last_(begin_) {
  if (terminal_) draw({});
}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::advance(uint64_t amount, std::string_view detail) {
  done_ += amount;
  if (!enabled_) return;
  if (hooks_) {
    if (!hooks_->progress(title_, done_, total_)) hooks_->given_up = true;
    return;
  }
  const auto now = Clock::now();
  if (terminal_) {
    if (done_ < total_ && now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    return draw(detail);
  }
  if (now - last_ < between_) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  log::write(log::Level::Info, line(title_, done_, total_, seconds, detail));
}

std::string Progress::line(std::string_view title, uint64_t done, uint64_t total, double seconds,
                           std::string_view detail) {
  constexpr uint64_t kCounted = 10000;
  const double share = total ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1.0;
  std::string text = std::string(title) + ": ";
  if (total < kCounted)
    text += fmt::format("{} of {} ({:.0f} %)", done, total, share * 100);
  else
    text += fmt::format("{:.0f} %", share * 100);
  if (share > 0 && share < 1) text += fmt::format(", about {} left", duration(seconds * (1 - share) / share));
  if (!detail.empty()) text += fmt::format(": {}", detail);
  return text;
}

void Progress::draw(std::string_view detail) {
  winsize w{};
  const int columns = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
  const double share = total_ ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)) : 1.0;
  // A line that wraps could not be drawn over.
  const int beside = columns - static_cast<int>(title_.size()) - 8;
  const int width = std::clamp(beside, 0, 28);
  const int filled = static_cast<int>(share * width);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
  const int room = std::max(0, beside - width - 2);
  const std::string shown(detail.substr(0, static_cast<size_t>(room)));
  const std::string line =
      fmt::format("\r\033[K{:.{}} {} {:3.0f}% {}", title_, std::max(0, columns - 8), bar, share * 100, shown);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace reprise
