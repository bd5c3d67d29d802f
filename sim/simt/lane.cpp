#include "simt/lane.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>

#include "base/half.h"
#include "simt/fibre.h"

namespace reprise::simt {

// What the lanes of a warp hold of a product's operands, as rows and columns.
struct Fragments {
  uint64_t exchange = 0;  // which one it is of; they count from 1
  double a[16][16], b[8][16];
  int32_t a8[16][32], b8[8][32];
};

// What a lane gives of its own.
struct Operands {
  uint32_t a[4], b[2];
};

// The block in flight: its fibres, its barriers, its shared memory. One object is the blocks of a grid in turn.
class Block {
 public:
  static constexpr size_t kSlotBytes = 32;
  // Shared memory begins as NaN, and bytes behind its end, which no kernel may write, are checked.
  static constexpr size_t kAlignment = 128, kGuard = 1024;
  static constexpr char kPattern = '\xff';

  Block(const Grid& grid, const std::function<void(Lane&)>& body, FibreStacks& stacks)
      : grid_(grid), body_(body), stacks_(stacks), warps_(static_cast<size_t>((grid.threads + 31) / 32)) {
    slots_.resize(warps_.size() * 2 * 32 * kSlotBytes);
    for (int t = 0; t < grid.threads; ++t) lanes_.emplace_back(*this, t);
  }

  // Makes it the block at (x, y), whose lanes take turns in this order; the one before has run. Barriers count on.
  void begin(int64_t x, int64_t y, const std::vector<int>& order) {
    x_ = x;
    y_ = y;
    order_ = order;
    shared_.assign(kAlignment + grid_.shared + kGuard, kPattern);
    all_.running = grid_.threads;
    for (Barrier& warp : warps_) warp.running = 0;
    fibres_.clear();
    for (int t = 0; t < grid_.threads; ++t) {
      running_of(t).running += 1;
      lanes_[static_cast<size_t>(t)].begin();
      fibres_.emplace_back(stacks_.stack(static_cast<size_t>(t)), [this, t] { run_lane(t); });
    }
  }

  void run() {
    size_t left = fibres_.size();
    while (left > 0) {
      bool moved = false;
      for (int t : order_) {
        Fibre& f = fibres_[static_cast<size_t>(t)];
        if (f.ended() || waits(t)) continue;
        moved = true;
        f.resume();
        if (f.ended()) --left;
        if (error_) break;
      }
      if (error_) break;
      if (!moved) {
        error_ = std::make_exception_ptr(std::logic_error("lanes wait for others that have ended or wait elsewhere"));
        break;
      }
    }
    const char* behind = shared() + grid_.shared;
    if (!error_ && !std::all_of(behind, behind + kGuard, [](char c) { return c == kPattern; }))
      error_ = std::make_exception_ptr(std::logic_error("a block has written behind its shared memory"));
    if (error_) std::rethrow_exception(error_);
  }

  void sync(int t) {
    if (all_.running != grid_.threads) throw std::logic_error("a lane waits for a block of which lanes have ended");
    wait(all_, t);
  }
  void warp_sync(int t) { wait(running_of(t), t); }

  // Those of the exchange whose slots these are: `fill` sets them for the first lane that asks. All lanes of the warp
  // have asked before the next exchange ends.
  template <class Fill>
  const Fragments& fragments(int t, const char* slots, Fill fill) {
    std::unique_ptr<Fragments>& f = fragments_[static_cast<size_t>(t / 32)];
    if (!f) f = std::make_unique<Fragments>();
    const uint64_t exchange = running_of(t).generation;
    if (f->exchange == exchange) return *f;
    for (int lane = 0; lane < 32; ++lane) {
      Operands of;
      std::memcpy(&of, slots + static_cast<size_t>(lane) * kSlotBytes, sizeof of);
      fill(lane, of, *f);
    }
    f->exchange = exchange;
    return *f;
  }

  const Grid& grid() const { return grid_; }
  int64_t x() const { return x_; }
  int64_t y() const { return y_; }
  char* shared() {
    constexpr uintptr_t kMask = kAlignment - 1;
    return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(shared_.data()) + kMask) & ~kMask);
  }
  char* slot(int warp, int parity, int lane) {
    return slots_.data() +
           ((static_cast<size_t>(warp) * 2 + static_cast<size_t>(parity)) * 32 + static_cast<size_t>(lane)) *
               kSlotBytes;
  }

 private:
  struct Barrier {
    int running = 0, arrived = 0;
    uint64_t generation = 0;
  };
  struct Wait {
    Barrier* barrier = nullptr;
    uint64_t generation = 0;
  };

  void run_lane(int t) {
    Lane& lane = lanes_[static_cast<size_t>(t)];
    try {
      body_(lane);
      lane.end();
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
    leave(t);
  }
  Barrier& running_of(int t) { return warps_[static_cast<size_t>(t / 32)]; }
  bool waits(int t) const {
    const Wait& w = waits_[static_cast<size_t>(t)];
    return w.barrier && w.barrier->generation == w.generation;
  }
  void wait(Barrier& b, int t) {
    if (++b.arrived == b.running) return release(b);
    Wait& w = waits_[static_cast<size_t>(t)];
    w = {&b, b.generation};
    while (waits(t)) fibres_[static_cast<size_t>(t)].yield();
    w = {};
  }
  static void release(Barrier& b) {
    b.arrived = 0;
    ++b.generation;
  }
  // A GPU does not say what happens to lanes that wait for one that has ended.
  void leave(int t) {
    Barrier& warp = running_of(t);
    if (--warp.running > 0 && warp.arrived > 0 && !error_)
      error_ = std::make_exception_ptr(std::logic_error("a lane has ended while others of its warp wait for it"));
    --all_.running;
    if (all_.arrived > 0 && !error_)
      error_ = std::make_exception_ptr(std::logic_error("a lane has ended while others of its block wait for it"));
  }

  Grid grid_;
  const std::function<void(Lane&)>& body_;
  FibreStacks& stacks_;
  int64_t x_ = 0, y_ = 0;
  std::vector<int> order_;
  std::vector<char> shared_;
  std::vector<char> slots_;
  std::vector<Barrier> warps_;
  std::vector<std::unique_ptr<Fragments>> fragments_ = std::vector<std::unique_ptr<Fragments>>(warps_.size());
  Barrier all_;
  std::vector<Wait> waits_ = std::vector<Wait>(1024);
  std::deque<Lane> lanes_;
  std::deque<Fibre> fibres_;
  std::exception_ptr error_;
};

int Lane::threads() const { return block_of_->grid().threads; }
int Lane::block() const { return static_cast<int>(block_of_->x()); }
int Lane::blocks() const { return static_cast<int>(block_of_->grid().blocks); }
int Lane::block_y() const { return static_cast<int>(block_of_->y()); }
int Lane::blocks_y() const { return static_cast<int>(block_of_->grid().blocks_y); }
char* Lane::shared() const { return block_of_->shared(); }
void Lane::sync() { block_of_->sync(thread_); }
void Lane::warp_sync() { block_of_->warp_sync(thread_); }
char* Lane::slot(int lane) const { return block_of_->slot(thread_ / 32, parity_, lane); }

void Lane::prefetch(const char* from, int bytes) {
  if (reinterpret_cast<uintptr_t>(from) % 16 || bytes <= 0 || bytes % 128)
    throw std::logic_error("a prefetch that does not begin at a multiple of 16, or is no multiple of 128 bytes");
  for (int i = 0; i < bytes; i += 128) {
    (void)*const_cast<const volatile char*>(from + i + 127);
    if (prefetched_lines) prefetched_lines->push_back(from + i);
  }
}

void Lane::copy_async(void* to, const void* from, int bytes) {
  if (reinterpret_cast<uintptr_t>(to) % 16 || (bytes > 0 && reinterpret_cast<uintptr_t>(from) % 16))
    throw std::logic_error("an asynchronous copy of addresses that are not multiples of 16");
  copies_.push_back({to, from, bytes});
}

void Lane::arrive(size_t left) {
  if (groups_.size() <= left) return;
  const size_t done = groups_.size() - left, last = groups_[done - 1];
  for (size_t i = 0; i < last; ++i) {
    const Copy& c = copies_[i];
    std::memcpy(c.to, c.from, static_cast<size_t>(c.bytes));
    std::memset(static_cast<char*>(c.to) + c.bytes, 0, static_cast<size_t>(16 - c.bytes));
  }
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<int64_t>(last));
  groups_.erase(groups_.begin(), groups_.begin() + static_cast<int64_t>(done));
  for (size_t& g : groups_) g -= last;
}

void Lane::begin() {
  parity_ = 0;
  copies_.clear();
  groups_.clear();
}

void Lane::end() {
  if (!copies_.empty()) throw std::logic_error("a lane has ended before its asynchronous copies arrived");
}

const char* Lane::exchange(const void* mine, size_t bytes) {
  std::memcpy(slot(thread_ % 32), mine, bytes);
  warp_sync();
  const char* slots = slot(0);
  turn();
  return slots;
}

// A lane has rows g and g + 8 (g = lane / 4) of the result and columns 2 q, 2 q + 1 (q = lane % 4). Which numbers of
// the operands a lane holds is NVIDIA's PTX ISA, section "Matrix Fragments for mma.m16n8k16 with floating point type".
//
// The sum of a block and the accumulator is taken exactly, as far as double goes, and cut to fp32. The hardware's own
// cut differs in the last bit at times, so what rests on this order is compared by error and not by bits.
void Lane::mma_float(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool bf16) {
  Operands mine;
  std::copy(a, a + 4, mine.a);
  std::copy(b, b + 2, mine.b);
  const char* slots = exchange(&mine, sizeof mine);
  const Fragments& all = block_of_->fragments(thread_, slots, [bf16](int lane, const Operands& of, Fragments& f) {
    auto number = [bf16](uint32_t pair, int i) {
      const auto v = static_cast<uint16_t>(pair >> (i * 16));
      return static_cast<double>(bf16 ? bf16_to_float(v) : half_to_float(v));
    };
    const int g = lane / 4, k = lane % 4 * 2;
    for (int i = 0; i < 2; ++i)
      for (int half = 0; half < 2; ++half) {
        for (int lower = 0; lower < 2; ++lower)
          f.a[g + 8 * lower][k + i + 8 * half] = number(of.a[lower + half * 2], i);
        f.b[g][k + i + 8 * half] = number(of.b[half], i);
      }
  });
  const int g = thread_ % 32 / 4, q = thread_ % 4;
  for (int i = 0; i < 4; ++i) {
    const double *left = all.a[g + i / 2 * 8], *right = all.b[2 * q + i % 2];
    double sum = static_cast<double>(d[i]);
    for (int k = 0; k < 16; ++k) sum += left[k] * right[k];
    float cut = static_cast<float>(sum);
    if (std::isfinite(cut) && std::abs(static_cast<double>(cut)) > std::abs(sum)) cut = std::nextafter(cut, 0.0f);
    d[i] = cut;
  }
}

// As above, section "Matrix Fragments for mma.m16n8k32"; exact.
void Lane::mma(cuda::I8, int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Operands mine;
  std::copy(a, a + 4, mine.a);
  std::copy(b, b + 2, mine.b);
  const char* slots = exchange(&mine, sizeof mine);
  const Fragments& all = block_of_->fragments(thread_, slots, [](int lane, const Operands& of, Fragments& f) {
    auto number = [](uint32_t four, int i) { return static_cast<int32_t>(static_cast<int8_t>(four >> (i * 8))); };
    const int g = lane / 4, k = lane % 4 * 4;
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half) {
        for (int lower = 0; lower < 2; ++lower)
          f.a8[g + 8 * lower][k + i + 16 * half] = number(of.a[lower + half * 2], i);
        f.b8[g][k + i + 16 * half] = number(of.b[half], i);
      }
  });
  const int g = thread_ % 32 / 4, q = thread_ % 4;
  for (int i = 0; i < 4; ++i) {
    const int32_t *left = all.a8[g + i / 2 * 8], *right = all.b8[2 * q + i % 2];
    uint32_t sum = static_cast<uint32_t>(d[i]);
    for (int k = 0; k < 32; ++k) sum += static_cast<uint32_t>(left[k] * right[k]);
    d[i] = static_cast<int32_t>(sum);
  }
}

void run_grid(const Grid& grid, Order order, const std::function<void(Lane&)>& body) {
  if (grid.threads > 1024) throw std::logic_error("a block of more than 1024 threads");
  thread_local FibreStacks stacks;
  std::vector<int> lanes(static_cast<size_t>(grid.threads));
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i] = static_cast<int>(i);
  std::mt19937 shuffle(1);
  Block block(grid, body, stacks);
  for (int64_t y = 0; y < grid.blocks_y; ++y)
    for (int64_t x = 0; x < grid.blocks; ++x) {
      if (order == Order::Descending && x + y == 0) std::reverse(lanes.begin(), lanes.end());
      if (order == Order::Shuffled) std::shuffle(lanes.begin(), lanes.end(), shuffle);
      const bool back = order == Order::Descending;
      block.begin(back ? grid.blocks - 1 - x : x, back ? grid.blocks_y - 1 - y : y, lanes);
      block.run();
    }
}

}  // namespace reprise::simt
