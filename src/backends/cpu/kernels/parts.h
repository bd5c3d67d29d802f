// How the threads of a launch help each other: each takes the parts of its own share in order, then what is left of the
// shares of others; and how they share a matrix product. Cores are not equally fast where a machine is shared, where
// they are of two kinds or where another program runs, and all threads of a launch wait for the last.
//
// Threads help within groups of eight, which are neighbours in the order of processors (thread_pool.h) and so of one
// memory. Which thread computes a part changes no bit. Internal linkage, as in a source file of its own.
#pragma once

#include <atomic>

#include "backends/cpu/kernels/linear_shape.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

constexpr int kHelpers = 8;
constexpr int64_t kAlone = 6;  // rows up to which memory is the limit, whoever reads the weights

// The threads whose shares a thread takes parts of, itself first. One that finds a share empty adds one more to what is
// taken of it, and the last of them to do so leaves a zero for the next launch, which is behind a barrier.
class Helper {
 public:
  Helper(const Launch& l, bool helps) : taken_(helps ? l.taken : nullptr), owner_(l.thread) {
    if (!taken_) return;
    first_ = l.thread / kHelpers * kHelpers;
    helpers_ = l.threads - first_ < kHelpers ? l.threads - first_ : kHelpers;
  }
  int owner() const { return owner_; }
  // The next of `count` parts of the owner's share; -1: there is none left.
  int64_t next(int64_t count) {
    const int64_t part = taken_ ? taken_[owner_].fetch_add(1, std::memory_order_relaxed) : own_++;
    if (part < count) return part;
    if (taken_ && part == count + helpers_ - 1) taken_[owner_].store(0, std::memory_order_relaxed);
    return -1;
  }
  // Goes on to another share; false: that was the last one.
  bool next_owner() {
    if (++visited_ >= helpers_) return false;
    owner_ = owner_ + 1 < first_ + helpers_ ? owner_ + 1 : first_;
    return true;
  }

 private:
  std::atomic<int32_t>* taken_;
  int owner_, first_ = 0, helpers_ = 1, visited_ = 0;
  int64_t own_ = 0;
};

// Calls work(part) for the parts of a product of `rows` rows and n columns that this thread computes, and before it
// prepare(first row, rows) where the part has other rows than the one before.
template <class Prepare, class Work>
inline __attribute__((always_inline)) void linear_parts(const Launch& l, int64_t rows, int64_t n,
                                                        const Prepare& prepare, const Work& work) {
  Helper helper(l, rows > kAlone);
  int64_t prepared = -1;
  do {
    const LinearParts parts(rows, n, helper.owner(), l.threads);
    const int64_t count = parts.count();
    for (int64_t i = helper.next(count); i >= 0; i = helper.next(count)) {
      const LinearParts::Part part = parts.at(i);
      if (part.row != prepared) prepare(part.row, part.rows);
      prepared = part.row;
      work(part);
    }
  } while (helper.next_owner());
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
