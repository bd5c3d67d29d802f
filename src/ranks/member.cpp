#include "ranks/member.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/spin.h"
#include "ranks/past_caches.h"

namespace reprise::ranks {
namespace {

using Clock = std::chrono::steady_clock;

// A meeting of ranks that run takes well below a microsecond, and a kernel's imbalance some tens of them.
constexpr int kSpins = 2000;
constexpr int kSpinsShared = 50;  // where ranks share processors
// A thread that gave way so often waits for one that does not run at all.
constexpr int kYields = 1000;
constexpr std::chrono::microseconds kNap{50};
// Between steps a follower spins so long, then sleeps until it is woken.
constexpr std::chrono::microseconds kAwake{50};
// A rank may read a large model from a slow disk.
constexpr std::chrono::minutes kStart{60};
constexpr timespec kDoze{0, 200'000'000};

void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &kDoze, nullptr, 0);
}

}  // namespace

Result<std::shared_ptr<Member>> Member::join(std::shared_ptr<Region> region, World world,
                                             std::chrono::milliseconds timeout) {
  RETURN_IF_ERROR(check_world(world));
  if (region->control().size != world.size)
    return invalid("rank {}: a world of {} ranks was asked for, the front made one of {}", world.rank, world.size,
                   region->control().size);
  return std::shared_ptr<Member>(new Member(std::move(region), world, timeout));
}

Member::Member(std::shared_ptr<Region> region, World world, std::chrono::milliseconds timeout)
    : region_(std::move(region)), world_(world), timeout_(timeout), met_(new Count[kMaxThreads]) {
  spins_ = own_processors() ? kSpins : kSpinsShared;
}

// A part of each rank is written, all meet, and each rank reads those of all, as behind a product that is cut.
double Member::exchange_us(bool past_caches) {
  constexpr int64_t kBytes = int64_t{32} << 10;
  constexpr int kRounds = 48, kUnheard = 8;  // the first find the memory untouched
  const int64_t all_bytes = kBytes * world_.size;
  std::vector<uint8_t> mine(static_cast<size_t>(kBytes)), all(static_cast<size_t>(all_bytes));
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    const auto begin = Clock::now();
    // Two places take turns, so that one meeting is enough.
    uint8_t* place = region_->arena() + (i % 2) * all_bytes;
    PastCaches(past_caches, kBytes).copy(place + world_.rank * kBytes, mine.data(), kBytes);
    meet(0);
    std::memcpy(all.data(), place, all.size());
    if (i >= kUnheard) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  meet(0);  // read by all
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void Member::choose_copies() {
  past_caches_ = false;
  if (!PastCaches::kAvailable || world_.size == 1 || !world_.one_host() || !own_processors()) return;
  // In turn, and the best of each: other work can only make a time worse.
  double in_caches = exchange_us(false), past_them = exchange_us(true);
  in_caches = std::min(in_caches, exchange_us(false));
  past_them = std::min(past_them, exchange_us(true));
  past_caches_ = past_them < in_caches;
  // The other threads have met as often.
  for (int t = 1; t < kMaxThreads; ++t) met_[t].value = met_[0].value;
}

void Member::meet(int thread, const Part& part) {
  Control& c = region_->control();
  const uint64_t epoch = ++met_[thread].value;
  if (thread == 0) {
    if (!world_.one_host()) c.line[world_.rank].part[epoch & 1] = part;
    c.line[world_.rank].epoch.store(epoch, std::memory_order_release);
  }
  const auto begin = thread == 0 ? Clock::now() : Clock::time_point();
  for (int r = 0; r < world_.size; ++r) {
    if (r == world_.rank) continue;
    const std::atomic<uint64_t>& other = c.line[r].epoch;
    int spins = 0;
    while (other.load(std::memory_order_acquire) < epoch) {
      if (++spins < spins_) {
        spin_pause();
        continue;
      }
      if (c.aborted.load(std::memory_order_relaxed) != 0) return;
      if (spins < spins_ + kYields)
        ::sched_yield();
      else
        std::this_thread::sleep_for(kNap);
    }
  }
  if (thread != 0) return;
  std::atomic<uint64_t>& waited = c.line[world_.rank].waited_ns;  // this thread's alone
  waited.store(waited.load(std::memory_order_relaxed) + static_cast<uint64_t>((Clock::now() - begin).count()),
               std::memory_order_relaxed);
}

std::vector<Member::Standing> Member::standings() const {
  std::vector<Standing> out;
  for (int r = 0; r < world_.size; ++r) {
    const Control::Line& line = region_->control().line[r];
    out.push_back({line.epoch.load(std::memory_order_relaxed),
                   static_cast<double>(line.waited_ns.load(std::memory_order_relaxed)) * 1e-9});
  }
  return out;
}

// Yields, then naps: what is waited for here is another rank's step or its start.
template <typename Ready>
Status Member::wait(const Ready& ready, std::chrono::milliseconds timeout, const std::string& what) {
  const auto begin = Clock::now();
  for (int round = 0; !ready(); ++round) {
    if (aborted()) return lost();
    if (round < spins_) {
      spin_pause();
    } else if (round < spins_ + kYields) {
      ::sched_yield();
    } else {
      if (Clock::now() - begin > timeout) {
        abort(fmt::format("rank {} waited {} s for {}", world_.rank,
                          std::chrono::duration_cast<std::chrono::seconds>(timeout).count(), what));
        return lost();
      }
      std::this_thread::sleep_for(kNap);
    }
  }
  return aborted() ? lost() : Status::ok();
}

Status Member::publish(StepMessage message, std::span<const uint8_t> staged) {
  Control& c = region_->control();
  if (aborted()) return lost();
  if (!staged.empty()) {
    message.staged_at = static_cast<uint64_t>(staged.data() - region_->arena());
    message.staged_bytes = staged.size();
  }
  c.message = message;
  c.step.store(++steps_, std::memory_order_release);
  c.ring();
  return Status::ok();
}

void Member::want(uint64_t message) {
  Control& c = region_->control();
  c.wanted.store(message, std::memory_order_release);
  c.ring();
}

void Member::have(uint64_t message) { region_->control().given.store(message, std::memory_order_release); }

Status Member::await_followers() {
  const Control& c = region_->control();
  for (int r = 0; r < world_.size; ++r) {
    if (r == world_.rank) continue;
    RETURN_IF_ERROR(wait([&] { return c.line[r].done.load(std::memory_order_acquire) >= steps_; }, timeout_,
                         fmt::format("rank {} to end step {} (`dist_timeout`)", r, steps_)));
  }
  return Status::ok();
}

Result<StepMessage> Member::next() {
  Control& c = region_->control();
  const auto published = [&] { return c.step.load(std::memory_order_acquire) > steps_; };
  const auto wanted = [&] { return c.wanted.load(std::memory_order_acquire); };
  const auto awake = Clock::now() + kAwake;
  while (!published()) {
    if (const uint64_t message = wanted(); message > awaited_) {
      awaited_ = message;
      StepMessage await;
      await.kind = StepMessage::Kind::Await;
      await.size = static_cast<int64_t>(message);
      return await;
    }
    if (aborted()) return lost();
    if (Clock::now() < awake) {
      spin_pause();
      continue;
    }
    const uint32_t bell = c.bell.load(std::memory_order_seq_cst);
    if (!published() && wanted() <= awaited_) futex_wait(c.bell, bell);
  }
  ++steps_;
  return c.message;
}

void Member::done() { region_->control().line[world_.rank].done.store(steps_, std::memory_order_release); }

Result<std::vector<std::string>> Member::show(std::string_view card) {
  Control& c = region_->control();
  Control::Card& mine = c.card[world_.rank];
  if (card.size() > sizeof mine.text) return error(Code::Internal, "a card of {} bytes", card.size());
  // Odd: shown; even: everybody's read. A card is written again when all have read it.
  const auto all = [&](uint64_t count, std::string_view what) -> Status {
    for (int r = 0; r < world_.size; ++r)
      RETURN_IF_ERROR(wait([&] { return c.line[r].cards.load(std::memory_order_acquire) >= count; },
                           std::max<std::chrono::milliseconds>(timeout_, kStart),
                           fmt::format("rank {} to {}", r, what)));
    return Status::ok();
  };
  RETURN_IF_ERROR(all(cards_, "start"));
  if (!card.empty()) std::memcpy(mine.text, card.data(), card.size());
  mine.bytes = static_cast<uint32_t>(card.size());
  c.line[world_.rank].cards.store(cards_ + 1, std::memory_order_release);
  RETURN_IF_ERROR(all(cards_ + 1, "start"));
  std::vector<std::string> out;
  for (int r = 0; r < world_.size; ++r)
    out.emplace_back(c.card[r].text, std::min<size_t>(c.card[r].bytes, sizeof mine.text));
  cards_ += 2;
  c.line[world_.rank].cards.store(cards_, std::memory_order_release);
  return out;
}

Status Member::agree(std::string_view what, std::string_view value) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all, show(value));
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0]) return invalid("{}: rank {} has {}, rank 0 has {}", what, r, all[r], all[0]);
  return Status::ok();
}

Status Member::spread(std::span<char> bytes) {
  ASSIGN_OR_RETURN(const auto cards, show(world_.front() ? std::string_view(bytes.data(), bytes.size()) : ""));
  if (cards[0].size() != bytes.size())
    return error(Code::Internal, "rank 0 spreads {} bytes, rank {} takes {}", cards[0].size(), world_.rank,
                 bytes.size());
  std::memcpy(bytes.data(), cards[0].data(), bytes.size());
  return Status::ok();
}

Status Member::await(const std::function<bool()>& ready, const std::string& what) {
  return wait(ready, timeout_, what);
}

void Member::abort(std::string_view reason) { region_->control().abort(reason); }

bool Member::ended_in_order() const {
  return steps_ > 0 && !aborted() && region_->control().message.kind == StepMessage::Kind::Stop;
}

Status Member::lost() const {
  const std::string reason = region_->control().reason_text();
  return error(Code::DeviceLost, "{}", reason.empty() ? "a rank ended" : reason);
}

}  // namespace reprise::ranks
