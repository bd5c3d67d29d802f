// TerminalSession: the terminal during a conversation. It keeps the settings that it found and gives them back on every
// way out: at its end, at exit(), on signals that end the process, and for as long as Ctrl-Z stops it. Ctrl-C and a new
// size of the window become marks for code that waits or looks. One at a time, owned by the main thread; the
// handlers of signals may run in any thread.
#pragma once

namespace reprise::apps {

class TerminalSession {
 public:
  enum class Event {
    Input,        // there is something to read, or the terminal is gone
    Interrupted,  // Ctrl-C
    Resized,
    Resumed,  // after Ctrl-Z
  };

  TerminalSession();
  ~TerminalSession();
  TerminalSession(const TerminalSession&) = delete;
  TerminalSession& operator=(const TerminalSession&) = delete;

  // While an answer streams: keys do not show, and wait for the next prompt. Ctrl-C discards them.
  void hide_keys();
  // As the terminal was found.
  void show_keys();
  // Pasted text is marked as such from here on.
  void mark_pastes();

  Event wait();
  // Ctrl-C since the last wait() or forget_interrupt().
  bool interrupted() const;
  void forget_interrupt();
};

}  // namespace reprise::apps
