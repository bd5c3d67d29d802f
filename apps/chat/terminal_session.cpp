#include "chat/terminal_session.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace reprise::apps {
namespace {

constexpr int kTerminal = STDIN_FILENO;
constexpr std::string_view kPastesOn = "\033[?2004h", kPastesOff = "\033[?2004l";
// Those that end the process. Where one was ignored before (nohup), it stays so.
constexpr int kEnding[] = {SIGHUP, SIGQUIT, SIGTERM, SIGPIPE, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int kMarking[] = {SIGINT, SIGTSTP, SIGWINCH};

// All that a handler touches.
termios g_found{};
std::atomic<bool> g_active{false}, g_pastes{false};
std::atomic<bool> g_interrupt_mark{false}, g_resize_mark{false}, g_resume_mark{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a handler must not wait");
int g_wake[2] = {-1, -1};
struct sigaction g_actions_before[NSIG] {};

void write_to_terminal(std::string_view text) {
  [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
}

void give_back() {
  if (!g_active) return;
  if (g_pastes) write_to_terminal(kPastesOff);
  ::tcsetattr(kTerminal, TCSANOW, &g_found);
}

void on_ending(int signal) {
  const int saved = errno;
  give_back();
  // Comes again as soon as this handler returns, and then ends the process as it would have without us.
  ::sigaction(signal, &g_actions_before[signal], nullptr);
  ::raise(signal);
  errno = saved;
}

void on_mark(int signal);

void handle_mark(int signal) {
  struct sigaction action {};
  action.sa_handler = on_mark;
  ::sigaction(signal, &action, nullptr);
}

// Stops here, and goes on here after `fg`.
void stop() {
  termios now{};
  const bool known = ::tcgetattr(kTerminal, &now) == 0;
  give_back();
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(SIGTSTP, &by_default, nullptr);
  sigset_t only{};
  ::sigemptyset(&only);
  ::sigaddset(&only, SIGTSTP);
  ::raise(SIGTSTP);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  handle_mark(SIGTSTP);
  if (known) ::tcsetattr(kTerminal, TCSADRAIN, &now);
  if (g_pastes) write_to_terminal(kPastesOn);
}

void on_mark(int signal) {
  const int saved = errno;
  if (signal == SIGINT) g_interrupt_mark = true;
  if (signal == SIGWINCH) g_resize_mark = true;
  if (signal == SIGTSTP) {
    stop();
    g_resume_mark = true;
  }
  [[maybe_unused]] const ssize_t n = ::write(g_wake[1], "", 1);
  errno = saved;
}

}  // namespace

TerminalSession::TerminalSession() {
  if (::tcgetattr(kTerminal, &g_found) != 0 || ::pipe2(g_wake, O_CLOEXEC | O_NONBLOCK) != 0) return;
  for (auto* mark : {&g_pastes, &g_interrupt_mark, &g_resize_mark, &g_resume_mark}) *mark = false;
  g_active = true;
  static const bool at_exit = std::atexit(give_back) == 0;
  static_cast<void>(at_exit);
  for (int signal : kMarking) {
    ::sigaction(signal, nullptr, &g_actions_before[signal]);
    handle_mark(signal);
  }
  for (int signal : kEnding) {
    ::sigaction(signal, nullptr, &g_actions_before[signal]);
    if (g_actions_before[signal].sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = on_ending;
    ::sigaction(signal, &action, nullptr);
  }
}

TerminalSession::~TerminalSession() {
  if (!g_active) return;
  give_back();
  g_active = false;
  for (int signal : kMarking) ::sigaction(signal, &g_actions_before[signal], nullptr);
  for (int signal : kEnding) ::sigaction(signal, &g_actions_before[signal], nullptr);
  for (int& fd : g_wake) {
    ::close(fd);
    fd = -1;
  }
}

void TerminalSession::hide_keys() {
  termios hidden = g_found;
  // Not line by line either, so that the next prompt sees keys before their Enter.
  hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL | ICANON);
  hidden.c_lflag |= ISIG;
  hidden.c_cc[VMIN] = 1;
  hidden.c_cc[VTIME] = 0;
  if (g_active) ::tcsetattr(kTerminal, TCSADRAIN, &hidden);
}

void TerminalSession::show_keys() {
  if (g_active) ::tcsetattr(kTerminal, TCSADRAIN, &g_found);
}

void TerminalSession::mark_pastes() {
  if (!g_active) return;
  g_pastes = true;
  write_to_terminal(kPastesOn);
}

TerminalSession::Event TerminalSession::wait() {
  for (bool ready = false;;) {
    if (g_interrupt_mark.exchange(false)) return Event::Interrupted;
    if (g_resume_mark.exchange(false)) return Event::Resumed;
    if (g_resize_mark.exchange(false)) return Event::Resized;
    if (ready) return Event::Input;  // only after the marks: a key behind Ctrl-C belongs to the next prompt
    pollfd fds[2] = {{kTerminal, POLLIN, 0}, {g_wake[0], POLLIN, 0}};
    const int n = ::poll(fds, 2, -1);
    if (n < 0 && errno != EINTR) return Event::Input;  // reading will say what is wrong
    if (n <= 0) continue;
    char marks[64];
    if (fds[1].revents != 0 && ::read(g_wake[0], marks, sizeof marks) > 0) continue;
    ready = fds[0].revents != 0;
  }
}

bool TerminalSession::interrupted() const { return g_interrupt_mark; }

void TerminalSession::forget_interrupt() { g_interrupt_mark = false; }

}  // namespace reprise::apps
