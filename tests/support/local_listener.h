// LocalListener: a port of this machine with a thread for each connection, for servers that tests write. What answers
// is called on the thread of its connection. The listener is the last member of its owner: it ends its threads when it
// goes, and they use the other members.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace reprise::testing_support {

class LocalListener {
 public:
  // Reads one request from the connection and answers it; false: the connection ends.
  using AnswerOne = std::function<bool(int fd)>;

  explicit LocalListener(AnswerOne answer_one) : answer_one_(std::move(answer_one)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_, 256);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { accept(); });
  }
  ~LocalListener() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& t : sessions_) t.join();
    ::close(listener_);
  }
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int connections() const { return connections_; }

 private:
  void accept() {
    while (true) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      ++connections_;
      const int one = 1;  // a piece that is sent is a segment
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      const std::lock_guard lock(mutex_);
      open_.push_back(fd);
      sessions_.emplace_back([this, fd] {
        while (answer_one_(fd)) continue;
        const std::lock_guard closing(mutex_);
        open_.remove(fd);
        ::close(fd);
      });
    }
  }

  AnswerOne answer_one_;
  int listener_ = -1, port_ = 0;
  std::atomic<int> connections_{0};
  std::thread thread_;
  std::mutex mutex_;
  std::list<int> open_;
  std::list<std::thread> sessions_;  // they end with the listener
};

}  // namespace reprise::testing_support
