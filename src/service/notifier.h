// Notifier: tells the supervisor that started this process how far it is, as sd_notify(3) does: a datagram to the
// socket that $NOTIFY_SOCKET names. Where none is named nothing is sent. Its words may be sent from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::service {

class Notifier {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and takes them out of the environment: they are about this
  // process, not about those that it starts. A wrong one is an error.
  static Result<Notifier> of_environment();

  Notifier() = default;
  Notifier(Notifier&& other) noexcept;
  Notifier& operator=(Notifier&& other) noexcept;
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;
  ~Notifier();

  bool asked() const { return socket_ >= 0; }
  // How often the supervisor wants a sign of life; none: it does not.
  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }

  // "READY=1\nSTATUS=serving": a line for each assignment. What cannot be sent is a warning in the log, once.
  void say(std::string_view assignments) const;
  // READY=1 follows when the reload is done.
  void say_reloading() const;

 private:
  int socket_ = -1;
  std::string address_;  // sockaddr_un, bytes of it that count
  std::optional<std::chrono::microseconds> watchdog_;
  mutable std::atomic<bool> warned_{false};
};

}  // namespace reprise::service
