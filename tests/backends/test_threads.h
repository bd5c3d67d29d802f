// TestThreads: the threads that run a kernel's parts in its tests. They are started once for all runs: a kernel of a
// test takes less time than a thread's start, which a sanitizer makes several times as long. One run at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace reprise::cpu {

class TestThreads {
 public:
  // body(0) on the calling thread, body(1) to body(threads - 1) on others; returns when all are through.
  static void run(int threads, const std::function<void(int)>& body) {
    if (threads == 1) return body(0);
    static TestThreads all;
    all.run_on(threads, body);
  }

 private:
  TestThreads() = default;
  ~TestThreads() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    go_.notify_all();
    for (std::thread& t : workers_) t.join();
  }

  void run_on(int threads, const std::function<void(int)>& body) {
    {
      const std::lock_guard lock(mutex_);
      while (static_cast<int>(workers_.size()) < threads - 1) {
        const int number = static_cast<int>(workers_.size()) + 1;
        workers_.emplace_back([this, number, round = round_] { work(number, round); });
      }
      body_ = &body;
      threads_ = threads;
      left_ = threads - 1;
      ++round_;
    }
    go_.notify_all();
    body(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return left_ == 0; });
  }

  void work(int number, uint64_t seen) {
    std::unique_lock lock(mutex_);
    while (true) {
      go_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      if (number >= threads_) continue;
      const std::function<void(int)>& body = *body_;
      lock.unlock();
      body(number);
      lock.lock();
      if (--left_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable go_, done_;
  std::vector<std::thread> workers_;
  const std::function<void(int)>* body_ = nullptr;
  uint64_t round_ = 0;
  int threads_ = 0, left_ = 0;
  bool stop_ = false;
};

}  // namespace reprise::cpu
