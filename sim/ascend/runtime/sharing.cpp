#include "ascend/runtime/sharing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace ascend_sim {
namespace {

constexpr double kDone = 1e-6;  // what is left then is a rounding error
constexpr double kNever = std::numeric_limits<double>::infinity();

struct Lane {
  const std::vector<SharedStep>* steps = nullptr;
  size_t next = 0;
  double left = 0;        // of the work that runs
  double whole = 0;       // all of that work
  double not_before = 0;  // when the next step may go on
  bool runs = false;
  Share share{};     // of the work that runs
  double moves = 0;  // bytes from memory while it runs

  bool ended() const { return next == steps->size(); }
  const SharedStep& step() const { return (*steps)[next]; }
};

// What prefetches brought, by how much had passed through the cache when each began: the least recently used goes
// first.
class Resident {
 public:
  explicit Resident(const L2Cache& cache) : cache_(cache) {}

  void pass(double bytes) { passed_ += bytes; }
  void fill(const void* of, Range range, double part) {
    if (cache_.bytes <= 0) return;
    auto [it, fresh] = filled_.try_emplace(of, Filled{range, passed_});
    it->second.range.end = range.begin + static_cast<uintptr_t>(part * static_cast<double>(range.end - range.begin));
  }
  // Bytes of the ranges that are there.
  double of(const std::vector<Range>& ranges) const {
    double bytes = 0;
    for (const auto& [step, f] : filled_) {
      if (passed_ - f.at > cache_.bytes) continue;
      for (const Range& r : ranges) {
        const uintptr_t begin = std::max(r.begin, f.range.begin), end = std::min(r.end, f.range.end);
        if (begin < end) bytes += static_cast<double>(end - begin);
      }
    }
    return bytes;
  }

 private:
  struct Filled {
    Range range;
    double at = 0;
  };
  L2Cache cache_;
  double passed_ = 0;
  std::map<const void*, Filled> filled_;  // by step
};

class Clock {
 public:
  Clock(const std::vector<std::vector<SharedStep>>& streams, double begin, const L2Cache& cache)
      : begin_(begin), cache_(cache), resident_(cache) {
    for (const auto& steps : streams) {
      lanes_.push_back({&steps});
      for (const SharedStep& s : steps)
        if (s.kind == SharedStep::Kind::Record) recorded_later_.insert(s.mark);
    }
  }

  std::vector<double> run() {
    while (true) {
      while (start_what_can()) {
      }
      double until = kNever;
      for (const Lane& l : lanes_) {
        if (l.runs) until = std::min(until, now_ + l.left / rate(l));
        if (!l.runs && !l.ended() && l.not_before > now_) until = std::min(until, l.not_before);
      }
      if (until == kNever) break;
      advance(until);
    }
    std::vector<double> ends;
    for (const Lane& l : lanes_) ends.push_back(begin_ + l.not_before);
    return ends;
  }

 private:
  // How fast the lane's work goes on beside the others.
  double rate(const Lane& lane) const {
    Share all;
    for (const Lane& l : lanes_) {
      if (!l.runs) continue;
      all.cube += l.share.cube;
      all.vector += l.share.vector;
      all.bandwidth += l.share.bandwidth;
    }
    const Share& own = lane.share;
    double slowest = 1;
    if (own.cube > 0) slowest = std::max(slowest, all.cube);
    if (own.vector > 0) slowest = std::max(slowest, all.vector);
    if (own.bandwidth > 0) slowest = std::max(slowest, all.bandwidth);
    return 1 / slowest;
  }

  // Goes past everything that takes no time now; whether anything moved.
  bool start_what_can() {
    bool moved = false;
    for (Lane& l : lanes_) {
      while (!l.runs && !l.ended() && l.not_before <= now_) {
        const SharedStep& s = l.step();
        if (s.kind == SharedStep::Kind::Wait && !marks_.contains(s.mark) && recorded_later_.contains(s.mark)) break;
        moved = true;
        switch (s.kind) {
          case SharedStep::Kind::Work: start(l, s); continue;
          case SharedStep::Kind::Until: l.not_before = std::max(now_, s.micros - begin_); break;
          case SharedStep::Kind::Record: marks_[s.mark] = now_; break;
          case SharedStep::Kind::Wait:
            l.not_before = std::max(now_, marks_.contains(s.mark) ? marks_[s.mark] + s.micros : now_);
            break;
        }
        ++l.next;
      }
    }
    return moved;
  }

  void start(Lane& l, const SharedStep& s) {
    l.runs = true;
    l.left = l.whole = s.micros;
    l.share = s.share;
    l.moves = s.reading.bytes + static_cast<double>(s.fills.end - s.fills.begin);
    const Reading& r = s.reading;
    const double cached = r.bytes > 0 ? std::min(resident_.of(r.from), r.bytes) : 0;
    if (cached <= 0) return;
    const double memory = r.memory * (1 - cached / r.bytes);
    l.left = l.whole = std::max(r.least, r.start + std::max(r.compute, memory + cached * cache_.micros_per_byte));
    l.share.bandwidth = memory / l.whole;
    l.moves = r.bytes - cached;
  }

  // What passed through the cache, and what a prefetch has brought by now.
  void note(const Lane& l, double done) {
    if (l.whole > 0) resident_.pass(l.moves * done / l.whole);
    const SharedStep& s = l.step();
    const double brings = l.whole - s.before_filling, passed = l.whole - l.left - s.before_filling;
    if (s.fills.begin < s.fills.end && brings > 0 && passed > 0)
      resident_.fill(&s, s.fills, std::min(1.0, passed / brings));
  }

  void advance(double until) {
    const double passed = until - now_;
    std::vector<double> done;
    for (const Lane& l : lanes_) done.push_back(l.runs ? passed * rate(l) : 0);
    now_ = until;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane& l = lanes_[i];
      if (!l.runs) continue;
      l.left -= done[i];
      note(l, done[i]);
      if (l.left > kDone) continue;
      l.runs = false;
      l.not_before = now_;
      ++l.next;
    }
  }

  double begin_, now_ = 0;  // since then
  L2Cache cache_;
  Resident resident_;
  std::vector<Lane> lanes_;
  std::map<const void*, double> marks_;
  std::set<const void*> recorded_later_;
};

}  // namespace

std::vector<double> shared_ends(const std::vector<std::vector<SharedStep>>& streams, double begin,
                                const L2Cache& cache) {
  return Clock(streams, begin, cache).run();
}

}  // namespace ascend_sim
