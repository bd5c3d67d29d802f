#include "device/recorded_order.h"

#include <algorithm>
#include <random>

namespace reprise {

Status RecordedOrder::known(uint8_t stream) const {
  if (stream < kMaxGraphStreams) return Status::ok();
  return error(Code::Internal, "a recording has no stream {}; allowed: 0 to {}", stream, kMaxGraphStreams - 1);
}

Status RecordedOrder::launch(uint8_t stream) {
  RETURN_IF_ERROR(known(stream));
  if (!takes_part_[stream])
    return error(Code::Internal, "launch {} is on stream {}, which has waited for nothing yet", launches_.size(),
                 stream);
  launches_.push_back({stream, at_[stream]});
  ++at_[stream][stream];
  several_ = several_ || stream != 0;
  return Status::ok();
}

Status RecordedOrder::record(uint8_t stream, uint32_t mark) {
  RETURN_IF_ERROR(known(stream));
  if (!takes_part_[stream])
    return error(Code::Internal, "mark {} is on stream {}, which has waited for nothing yet", mark, stream);
  marks_[mark] = at_[stream];
  return Status::ok();
}

Status RecordedOrder::wait(uint8_t stream, uint32_t mark) {
  RETURN_IF_ERROR(known(stream));
  const auto it = marks_.find(mark);
  if (it == marks_.end()) return error(Code::Internal, "stream {} waits for mark {}, not recorded yet", stream, mark);
  for (size_t s = 0; s < it->second.size(); ++s) at_[stream][s] = std::max(at_[stream][s], it->second[s]);
  takes_part_[stream] = true;
  ++waits_;
  return Status::ok();
}

Status RecordedOrder::finish() const {
  for (size_t s = 1; s < at_.size(); ++s)
    if (at_[0][s] < at_[s][s])
      return error(Code::Internal, "stream {} is not joined: stream 0 waits for {} of its {} launches", s, at_[0][s],
                   at_[s][s]);
  return Status::ok();
}

RecordedOrder::Queues RecordedOrder::queues() const {
  Queues queues;
  for (uint32_t i = 0; i < launches_.size(); ++i) queues[launches_[i].stream].push_back(i);
  return queues;
}

bool RecordedOrder::ready(uint32_t launch, const Clock& done) const {
  const Clock& before = launches_[launch].before;
  return std::equal(before.begin(), before.end(), done.begin(), [](uint32_t b, uint32_t d) { return b <= d; });
}

std::vector<uint32_t> RecordedOrder::order(uint64_t seed) const {
  std::minstd_rand random(static_cast<unsigned>(seed));
  const Queues queue = queues();
  Clock done{};
  std::vector<uint32_t> out;
  while (out.size() < launches_.size()) {
    std::vector<uint8_t> ready_streams;
    for (uint8_t s = 0; s < kMaxGraphStreams; ++s)
      if (done[s] < queue[s].size() && ready(queue[s][done[s]], done)) ready_streams.push_back(s);
    CHECK(!ready_streams.empty(), "a wait follows its record, so something can always go on");
    const uint8_t s = seed == 0   ? ready_streams.back()
                      : seed == 1 ? ready_streams.front()
                                  : ready_streams[random() % ready_streams.size()];
    out.push_back(queue[s][done[s]++]);
  }
  return out;
}

std::vector<RecordedOrder::Stage> RecordedOrder::stages() const {
  const Queues queue = queues();
  Clock done{};
  const auto can_begin = [&](uint8_t s, const Clock& behind) {
    return done[s] < queue[s].size() && ready(queue[s][done[s]], behind);
  };
  std::vector<Stage> out;
  for (size_t left = launches_.size(); left > 0;) {
    std::vector<uint8_t> begin;
    for (uint8_t s = 0; s < kMaxGraphStreams; ++s)
      if (can_begin(s, done)) begin.push_back(s);
    CHECK(!begin.empty(), "a wait follows its record, so something can always go on");
    const auto another = [&](const Clock& behind) {
      for (uint8_t s = 0; s < kMaxGraphStreams; ++s)
        if (s != begin[0] && can_begin(s, behind)) return true;
      return false;
    };
    Stage stage;
    Clock behind = done;
    for (const uint8_t s : begin) {
      Clock own = done;
      // A stream by itself goes on until another one can begin.
      while (own[s] < queue[s].size() && ready(queue[s][own[s]], own) && (begin.size() > 1 || !another(own)))
        stage[s].push_back(queue[s][own[s]++]);
      behind[s] = own[s];
      left -= stage[s].size();
    }
    done = behind;
    out.push_back(std::move(stage));
  }
  return out;
}

}  // namespace reprise
