#include "measurement/pinned_threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "backends/cpu/thread_pool.h"
#include "base/elapsed.h"
#include "base/spin.h"

namespace reprise::measurement {
double together(int threads, const std::function<void(int)>& f) {
  const auto processors = cpu::ThreadPool::allowed_processors();
  std::atomic<int> arrived{0};
  std::vector<double> begin(static_cast<size_t>(threads)), end(static_cast<size_t>(threads));
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(processors[static_cast<size_t>(t) % processors.size()], &one);
      ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one);
      arrived.fetch_add(1);
      while (arrived.load() < threads) spin_pause();
      begin[static_cast<size_t>(t)] = steady_seconds();
      f(t);
      end[static_cast<size_t>(t)] = steady_seconds();
    });
  }
  for (auto& t : workers) t.join();
  return *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
}

}  // namespace reprise::measurement
