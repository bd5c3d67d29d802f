// PseudoTerminal: the binary in a terminal of its own: the test types keys and sees what a person would see. Screen
// understands as much of an xterm as libedit and chat use. Both go with the test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "run_binary.h"
#include "text/utf8.h"

namespace reprise::apps {

class Screen {
 public:
  explicit Screen(int columns) : columns_(columns) {}

  void write(std::string_view bytes) {
    pending_ += bytes;
    size_t at = 0;
    while (at < pending_.size()) {
      const size_t size = complete_size(at);
      if (size == 0) break;
      put(pending_.substr(at, size));
      at += size;
    }
    pending_.erase(0, at);
  }

  // From the top, without blanks at their ends.
  std::vector<std::string> rows() const {
    std::vector<std::string> out;
    for (const auto& cells : rows_) {
      std::string row;
      for (const std::string& cell : cells) row += cell;
      row.erase(row.find_last_not_of(' ') + 1);
      out.push_back(row);
    }
    while (!out.empty() && out.back().empty()) out.pop_back();
    return out;
  }
  std::vector<std::string> last_rows(size_t n) const {
    const auto all = rows();
    return {all.end() - static_cast<std::ptrdiff_t>(std::min(n, all.size())), all.end()};
  }
  bool marks_pastes() const { return marks_pastes_; }

 private:
  // Of the character or sequence at `at`; 0 when more is to come.
  size_t complete_size(size_t at) const {
    const auto c = static_cast<unsigned char>(pending_[at]);
    size_t size = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (c == 0x1b) {
      if (at + 1 >= pending_.size()) return 0;
      size = 2;
      if (pending_[at + 1] == '[') {
        size_t end = at + 2;
        while (end < pending_.size() && static_cast<unsigned char>(pending_[end]) < 0x40) ++end;
        size = end - at + 1;
      }
    }
    return at + size <= pending_.size() ? size : 0;
  }

  std::vector<std::string>& row() {
    if (row_ >= rows_.size()) rows_.resize(row_ + 1);
    if (rows_[row_].size() < static_cast<size_t>(columns_)) rows_[row_].resize(static_cast<size_t>(columns_), " ");
    return rows_[row_];
  }

  void put(const std::string& what) {
    if (what[0] == '\033') return sequence(what);
    if (what == "\r") {
      column_ = 0;
    } else if (what == "\n") {
      ++row_;
    } else if (what == "\b") {
      column_ = std::max(0, column_ - 1);
    } else if (static_cast<unsigned char>(what[0]) >= ' ') {
      // What is wide here: the letters of East Asia, which is enough for tests.
      const int width = what.size() == 3 && what >= "\u3000" && what <= "\uffe6" ? 2 : 1;
      if (column_ + width > columns_) {
        ++row_;
        column_ = 0;
      }
      auto& cells = row();
      cells[static_cast<size_t>(column_)] = what;
      if (width == 2) cells[static_cast<size_t>(column_) + 1] = "";
      column_ += width;  // stays behind the border until the next character
    }
  }

  void sequence(const std::string& what) {
    if (what.size() < 3) return;
    const std::string parameters = what.substr(2, what.size() - 3);
    const int n = std::max(1, std::atoi(parameters.c_str()));
    auto& cells = row();
    const auto here = cells.begin() + std::min(column_, columns_);
    switch (what.back()) {
      case 'A': row_ -= std::min(row_, static_cast<size_t>(n)); break;
      case 'B': row_ += static_cast<size_t>(n); break;
      case 'C': column_ = std::min(columns_ - 1, column_ + n); break;
      case 'D': column_ = std::max(0, std::min(column_, columns_ - 1) - n); break;
      case 'G': column_ = n - 1; break;
      case 'K': std::fill(here, cells.end(), " "); break;
      case 'J':
        std::fill(here, cells.end(), " ");
        rows_.resize(row_ + 1);
        break;
      case 'P':
        cells.erase(here, here + std::min<std::ptrdiff_t>(n, cells.end() - here));
        cells.resize(static_cast<size_t>(columns_), " ");
        break;
      case '@':
        cells.insert(here, static_cast<size_t>(n), " ");
        cells.resize(static_cast<size_t>(columns_));
        break;
      case 'h': marks_pastes_ |= parameters == "?2004"; break;
      case 'l': marks_pastes_ &= parameters != "?2004"; break;
      default: break;  // colours
    }
  }

  int columns_;
  std::vector<std::vector<std::string>> rows_;
  size_t row_ = 0;
  int column_ = 0;
  bool marks_pastes_ = false;
  std::string pending_;
};

class PseudoTerminal {
 public:
  // `arguments` and `before` as of run_binary.
  PseudoTerminal(const std::string& arguments, const std::string& before = {}, int columns = 80) : screen_(columns) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 40;
    if (::openpty(&master_, &slave_, nullptr, nullptr, &size) != 0) return;
    ::fcntl(master_, F_SETFD, FD_CLOEXEC);
    found_ = settings();
    const std::string command = fmt::format("TERM=xterm {} exec {} {}", before, REPRISE_BINARY, arguments);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::login_tty(slave_);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~PseudoTerminal() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    wait();
    for (int fd : {master_, slave_})
      if (fd >= 0) ::close(fd);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  void type(const std::string& keys) {
    seen_.clear();
    EXPECT_EQ(::write(master_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  // What was written since the last keys, once `done` is true; what there was when that takes too long.
  template <typename Done>
  bool until(Done done, int milliseconds = 30000) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      read_some(20);
    }
    return true;
  }
  bool sees(const std::string& text) {
    return until([&] { return seen_.find(text) != std::string::npos; });
  }
  // The last row is what was typed behind the prompt, "" for an empty line.
  bool sees_prompt(const std::string& line = {}) {
    const std::string row = line.empty() ? ">" : "> " + line;
    return until([&] {
      const auto last = screen_.last_rows(1);
      return !last.empty() && last[0] == row && !seen_.empty();
    });
  }
  void resize(int columns) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 40;
    ::ioctl(master_, TIOCSWINSZ, &size);
  }
  void signal(int number) const { ::kill(pid_, number); }
  int wait() {
    int status = 0;
    until([&] { return pid_ <= 0 || ::waitpid(pid_, &status, WNOHANG) == pid_; });
    pid_ = 0;
    read_some(0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  termios settings() const {
    termios t{};
    ::tcgetattr(slave_, &t);
    return t;
  }
  bool is_as_found() const {
    const termios now = settings();
    return now.c_iflag == found_.c_iflag && now.c_oflag == found_.c_oflag && now.c_lflag == found_.c_lflag &&
           std::memcmp(now.c_cc, found_.c_cc, sizeof now.c_cc) == 0;
  }
  const Screen& screen() const { return screen_; }
  const std::string& seen() const { return seen_; }
  std::string shown() const { return fmt::format("{}", fmt::join(screen_.rows(), "\n")); }

 private:
  void read_some(int milliseconds) {
    pollfd fd{master_, POLLIN, 0};
    while (::poll(&fd, 1, milliseconds) > 0) {
      char bytes[4096];
      const ssize_t n = ::read(master_, bytes, sizeof bytes);
      if (n <= 0) return;
      seen_.append(bytes, static_cast<size_t>(n));
      screen_.write({bytes, static_cast<size_t>(n)});
      milliseconds = 0;
    }
  }

  int master_ = -1, slave_ = -1;
  pid_t pid_ = 0;
  termios found_{};
  std::string seen_;
  Screen screen_;
};

}  // namespace reprise::apps
