// ThreadPool: the CPU device's fixed set of threads.
//
// Thread 0 is the caller of run(); the others wait between calls by spinning for a short while (a spin hand-over costs
// 0.1 us, waking a sleeper 20 us), then yielding, then sleeping. All threads run the same job with their number;
// barrier() separates parts inside a job. For a while the threads may go separate ways in two halves, each with
// barriers of its own; barrier() brings them together again. A pool serves one caller at a time and lives as long as
// its device.
//
// A thread that waits inside a job spins, then yields. A yield that comes back late has given the processor to another
// program: then the machine is crowded, and waits end in sleep for a while, because a thread that slept is run at once
// when it is woken, and one that yielded only when its turn comes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace reprise::cpu {

class ThreadPool {
 public:
  using Job = void (*)(void* context, ThreadPool& pool, int thread, int threads);

  // `pin` binds worker thread r to the r-th processor this process may use, unless there are fewer processors than
  // threads.
  ThreadPool(int threads, bool pin);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return count_; }
  // Runs the job on every thread and returns when all are done.
  void run(Job job, void* context);
  // Called by every thread inside a job; returns when all have arrived.
  void barrier(int thread);

  // The first so many threads are one half, the rest the other, which is as large or smaller.
  int first_half() const { return count_ - count_ / 2; }
  // Called by every thread of a half inside a job; returns when those have arrived.
  void half_barrier(int thread);

  // Processors this process may use (affinity mask), at least one, in the order in which threads take them: one of each
  // core first, then their siblings (SMT).
  static std::vector<int> allowed_processors();
  // Threads where no setting says how many: one for each core. A sibling has no units of its own to compute with, and a
  // thread on it makes every barrier wait for the slower of two. Of a single core both processors count.
  static int usual_threads();

 private:
  struct alignas(64) Flag {
    std::atomic<uint64_t> value{0};
  };
  // Barriers of some threads, always the same ones. Up to kGroup wait for each other. Of more, the first thread of each
  // group waits for its group, then for those of the other groups, and lets its group go on: so a thread reads a few
  // flags of others, not all.
  static constexpr int kGroup = 8;
  struct Meeting {
    explicit Meeting(size_t threads)
        : arrived(new Flag[threads]),
          passed(new Flag[threads]),
          gathered(new Flag[threads]),
          released(new Flag[threads]) {}
    std::unique_ptr<Flag[]> arrived;             // per thread: barriers reached
    std::unique_ptr<Flag[]> passed;              // per thread: barriers this thread has passed, its own count
    std::unique_ptr<Flag[]> gathered, released;  // per first thread: barriers that its group has reached, and left
  };
  void meet(Meeting& meeting, int thread, int begin, int end);
  void worker(int thread);
  void wait_until(const std::atomic<uint64_t>& flag, uint64_t at_least);
  void wait_long(const std::atomic<uint64_t>& flag, uint64_t at_least);
  void sleep_until(const std::atomic<uint64_t>& flag, uint64_t at_least);
  // Sets a flag that others may be asleep for.
  void tell(std::atomic<uint64_t>& flag, uint64_t value);

  int count_;
  int spins_;                      // before yielding; few when threads share processors
  std::unique_ptr<Flag[]> done_;   // per thread: jobs finished
  Meeting all_, halves_;           // either half counts by itself
  Flag epoch_;                     // jobs started
  std::atomic<uint32_t> wake_{0};  // futex word of sleepers
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  // Spins of waits inside a job. Written only on a crowded machine.
  struct alignas(64) Crowd {
    std::atomic<int> sleeping{0};
    std::atomic<uint32_t> bell{0};  // futex word
    std::atomic<int> waits{0};      // that go on without trying whether the machine is free again
  };
  Crowd crowd_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace reprise::cpu
