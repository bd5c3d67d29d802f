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
  double not_before = 0;  // when the next step may go on
  bool runs = false;

  bool ended() const { return next == steps->size(); }
  const SharedStep& step() const { return (*steps)[next]; }
};

class Clock {
 public:
  Clock(const std::vector<std::vector<SharedStep>>& streams, double begin) : begin_(begin) {
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
      all.cube += l.step().share.cube;
      all.vector += l.step().share.vector;
      all.bandwidth += l.step().share.bandwidth;
    }
    const Share& own = lane.step().share;
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
          case SharedStep::Kind::Work:
            l.runs = true;
            l.left = s.micros;
            continue;
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

  void advance(double until) {
    const double passed = until - now_;
    std::vector<double> done;
    for (const Lane& l : lanes_) done.push_back(l.runs ? passed * rate(l) : 0);
    now_ = until;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane& l = lanes_[i];
      if (!l.runs) continue;
      l.left -= done[i];
      if (l.left > kDone) continue;
      l.runs = false;
      l.not_before = now_;
      ++l.next;
    }
  }

  double begin_, now_ = 0;  // since then
  std::vector<Lane> lanes_;
  std::map<const void*, double> marks_;
  std::set<const void*> recorded_later_;
};

}  // namespace

std::vector<double> shared_ends(const std::vector<std::vector<SharedStep>>& streams, double begin) {
  return Clock(streams, begin).run();
}

}  // namespace ascend_sim
