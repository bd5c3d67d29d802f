#include "service/notifier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/log.h"

namespace reprise::service {
namespace {

std::string taken(const char* name) {
  const char* value = std::getenv(name);
  const std::string out = value ? value : "";
  ::unsetenv(name);
  return out;
}

// The bytes of the address that sendto() takes.
Result<std::string> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() < 2 || (name[0] != '/' && name[0] != '@'))
    return invalid("NOTIFY_SOCKET={}: allowed: a path that begins with /, or a name that begins with @", name);
  if (name.size() >= sizeof address.sun_path)
    return invalid("NOTIFY_SOCKET={}: longer than {} bytes", name, sizeof address.sun_path - 1);
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  const size_t size = offsetof(sockaddr_un, sun_path) + name.size() + (name[0] == '/' ? 1 : 0);
  return std::string(reinterpret_cast<const char*>(&address), size);
}

Result<std::optional<std::chrono::microseconds>> interval_of(const std::string& text, const std::string& pid) {
  std::optional<std::chrono::microseconds> out;
  if (text.empty() || (!pid.empty() && pid != std::to_string(::getpid()))) return out;
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value <= 0)
    return invalid("WATCHDOG_USEC={}: allowed: 1 or more microseconds", text);
  out.emplace(value);
  return out;
}

}  // namespace

Result<Notifier> Notifier::of_environment() {
  Notifier out;
  const std::string name = taken("NOTIFY_SOCKET"), interval = taken("WATCHDOG_USEC"), pid = taken("WATCHDOG_PID");
  if (name.empty()) return out;
  ASSIGN_OR_RETURN(out.address_, address_of(name));
  ASSIGN_OR_RETURN(out.watchdog_, interval_of(interval, pid));
  out.socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (out.socket_ < 0) return error(Code::Internal, "a socket for NOTIFY_SOCKET: {}", std::strerror(errno));
  return out;
}

Notifier::Notifier(Notifier&& other) noexcept { *this = std::move(other); }

Notifier& Notifier::operator=(Notifier&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(address_, other.address_);
  std::swap(watchdog_, other.watchdog_);
  return *this;
}

Notifier::~Notifier() {
  if (socket_ >= 0) ::close(socket_);
}

void Notifier::say(std::string_view assignments) const {
  if (socket_ < 0) return;
  const auto* address = reinterpret_cast<const sockaddr*>(address_.data());
  const ssize_t sent = ::sendto(socket_, assignments.data(), assignments.size(), MSG_NOSIGNAL, address,
                                static_cast<socklen_t>(address_.size()));
  if (sent == static_cast<ssize_t>(assignments.size()) || warned_.exchange(true)) return;
  log::warning("the supervisor behind NOTIFY_SOCKET could not be told: {}", std::strerror(errno));
}

void Notifier::say_reloading() const {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  say(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1'000'000 + now.tv_nsec / 1000));
}

}  // namespace reprise::service
