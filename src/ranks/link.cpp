#include "ranks/link.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <thread>

namespace reprise::ranks {
namespace {

constexpr size_t kMostBytes = size_t{1} << 31;  // of a message
constexpr std::chrono::milliseconds kBeat{250};

}  // namespace

// What Kind::Lines says of one rank.
struct Link::LineState {
  int32_t rank;
  uint32_t unused;
  uint64_t done, waited_ns;
};

Link::Link(Region& region, const World& world, std::vector<int32_t> leaders, const reprise_wire& wire,
           std::chrono::milliseconds timeout)
    : region_(region),
      world_(world),
      leaders_(std::move(leaders)),
      leader_(leaders_[static_cast<size_t>(world.rank)]),
      wire_(wire),
      timeout_(timeout) {
  for (int r = 0; r < world_.size; ++r) {
    const int leader = leaders_[static_cast<size_t>(r)];
    if (leader == leader_) {
      local_.push_back(r);
      continue;
    }
    const auto known = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& p) { return p.leader == leader; });
    Peer& peer = known != peers_.end() ? *known : peers_.emplace_back();
    peer.leader = leader;
    peer.ranks.push_back(r);
    peer.heard = Clock::now();
    peer.host = fmt::format("the host of rank {}", leader);
  }
  char name[256] = "";
  (void)::gethostname(name, sizeof name - 1);
  say(Kind::Hello, world_.rank, 0, {{name, std::strlen(name)}});
}

void Link::abort(const std::string& reason) { control().abort(reason); }

void Link::say(Kind kind, int rank, uint64_t number, const std::vector<std::pair<const void*, size_t>>& parts) {
  Frame frame;
  frame.kind = kind;
  frame.rank = rank;
  frame.number = number;
  for (const auto& [data, size] : parts) frame.bytes += size;
  if (frame.bytes + sizeof frame >= kMostBytes) return abort(fmt::format("a message of {} bytes", frame.bytes));
  auto bytes = std::make_shared<std::vector<uint8_t>>(sizeof frame + frame.bytes);
  std::memcpy(bytes->data(), &frame, sizeof frame);
  size_t at = sizeof frame;
  for (const auto& [data, size] : parts) {
    if (size) std::memcpy(bytes->data() + at, data, size);
    at += size;
  }
  beat_ = Clock::now();
  if (broken_) return;
  for (const Peer& peer : peers_) {
    void* operation = wire_.send(peer.leader, bytes->data(), bytes->size());
    if (!operation) {
      broken_ = true;
      return abort(fmt::format("nothing can be sent to {}", peer.host));
    }
    outgoing_.push_back({bytes, operation});
  }
}

bool Link::finish_sends() {
  const size_t before = outgoing_.size();
  for (auto it = outgoing_.begin(); it != outgoing_.end();) {
    const int done = wire_.done(it->sending);
    if (done < 0 && !broken_) {
      broken_ = true;
      abort("the connection to another host failed");
    }
    it = done == 0 ? it + 1 : outgoing_.erase(it);
  }
  return outgoing_.size() != before;
}

// What the front is about to run, with the inputs that it has staged. It publishes nothing before all have done that.
bool Link::send_step() {
  Control& c = control();
  if (!is_local(0)) return false;
  const uint64_t step = c.step.load(std::memory_order_acquire);
  if (step == steps_) return false;
  const StepMessage message = c.message;
  const bool inside = message.staged_bytes <= region_.arena_bytes() &&
                      message.staged_at <= region_.arena_bytes() - message.staged_bytes;
  if (!inside) {
    abort("a step's inputs lie outside of what ranks share");
    return false;
  }
  say(Kind::Step, 0, step, {{&message, sizeof message}, {region_.arena() + message.staged_at, message.staged_bytes}});
  steps_ = step;
  return true;
}

// The collective at which all ranks of this host have arrived. They may have left it already, for the next one.
bool Link::send_parts() {
  Control& c = control();
  const uint64_t epoch = epochs_ + 1;
  for (const int r : local_)
    if (c.line[r].epoch.load(std::memory_order_acquire) < epoch) return false;
  std::vector<std::pair<const void*, size_t>> out;
  std::vector<std::vector<uint32_t>> rows;
  out.reserve(local_.size());
  rows.reserve(local_.size());
  for (const int r : local_) {
    const Part& part = c.line[r].part[epoch & 1];
    out.emplace_back(&part, sizeof part);
    if (!part.fits(region_)) {
      abort(fmt::format("collective {}: the part of rank {} lies outside of what ranks share", epoch, r));
      return false;
    }
    uint8_t* base = region_.arena() + part.at;
    if (!part.owned) {
      for (uint64_t row = part.row_begin; row < part.row_end && part.width > 0; ++row)
        out.emplace_back(base + row * part.of + part.first, part.width);
      continue;
    }
    std::vector<uint32_t>& mine = rows.emplace_back();
    const uint64_t mark = owner_mark(epoch, r);
    const uint64_t* marks = region_.marks(epoch);
    for (uint64_t row = part.row_begin; row < part.row_end; ++row)
      if (marks[row] == mark) mine.push_back(static_cast<uint32_t>(row));
    mine.insert(mine.begin(), static_cast<uint32_t>(mine.size()));
    out.emplace_back(mine.data(), mine.size() * sizeof(uint32_t));
    for (size_t i = 1; i < mine.size(); ++i) out.emplace_back(base + mine[i] * part.of, part.of);
  }
  say(Kind::Parts, leader_, epoch, out);
  epochs_ = epoch;
  return true;
}

bool Link::send_lines() {
  std::vector<LineState> changed;
  for (const int r : local_) {
    const Control::Line& line = control().line[r];
    const uint64_t done = line.done.load(std::memory_order_acquire);
    if (done == done_[static_cast<size_t>(r)]) continue;
    done_[static_cast<size_t>(r)] = done;
    changed.push_back({r, 0, done, line.waited_ns.load(std::memory_order_relaxed)});
  }
  if (changed.empty()) return false;
  say(Kind::Lines, leader_, 0, {{changed.data(), changed.size() * sizeof(LineState)}});
  return true;
}

// An odd count: a card is shown; an even one: all others are read. A rank cannot show the next before it was read here,
// so its text is that of the last odd count.
bool Link::send_cards() {
  bool moved = false;
  for (const int r : local_) {
    const uint64_t count = control().line[r].cards.load(std::memory_order_acquire);
    uint64_t& sent = cards_[static_cast<size_t>(r)];
    if (count == sent) continue;
    const Control::Card& card = control().card[r];
    const bool shown = (count + 1) / 2 != (sent + 1) / 2;
    say(Kind::Card, r, count, {{card.text, shown ? std::min<size_t>(card.bytes, sizeof card.text) : 0}});
    sent = count;
    moved = true;
  }
  return moved;
}

bool Link::send_abort() {
  if (told_ || control().aborted.load(std::memory_order_acquire) == 0) return false;
  told_ = true;
  const std::string reason = control().reason_text();
  say(Kind::Abort, world_.rank, 0, {{reason.data(), reason.size()}});
  return true;
}

void Link::beat() {
  const auto now = Clock::now();
  if (now - beat_ > std::min<Clock::duration>(kBeat, timeout_ / 4)) say(Kind::Beat, world_.rank, 0);
  for (const Peer& peer : peers_)
    if (now - peer.heard > timeout_ && control().aborted.load() == 0)
      abort(fmt::format("{} has not been heard of for {:.3g} s (`dist_timeout`)", peer.host,
                        std::chrono::duration<double>(now - peer.heard).count()));
}

// Takes what has come whole, and begins to receive what comes next.
bool Link::listen(Peer& peer) {
  if (broken_) return false;
  bool moved = false;
  if (!peer.receiving) {
    const int64_t bytes = wire_.next(peer.leader);
    if (bytes == -1) return false;
    if (bytes >= static_cast<int64_t>(kMostBytes)) {
      broken_ = true;
      abort(fmt::format("{}: a message of {} bytes", peer.host, bytes));
      return false;
    }
    if (bytes >= 0) {
      peer.message.resize(static_cast<size_t>(bytes));
      peer.receiving = wire_.receive(peer.leader, peer.message.data(), peer.message.size());
    }
    if (!peer.receiving) {
      broken_ = true;
      abort(fmt::format("{} cannot be reached any more", peer.host));
      return false;
    }
    moved = true;
  }
  const int done = wire_.done(peer.receiving);
  if (done == 0) return moved;
  peer.receiving = nullptr;
  peer.heard = Clock::now();
  Status taken = done > 0 ? take(peer) : error(Code::DeviceLost, "a message was cut off");
  if (!taken.is_ok()) {
    broken_ |= done < 0;
    abort(fmt::format("{}: {}", peer.host, taken.message()));
  }
  return true;
}

Status Link::take(Peer& peer) {
  Frame frame;
  const std::vector<uint8_t>& message = peer.message;
  if (message.size() < sizeof frame) return invalid("a message of {} bytes", message.size());
  std::memcpy(&frame, message.data(), sizeof frame);
  const uint8_t* data = message.data() + sizeof frame;
  const size_t bytes = message.size() - sizeof frame;
  if (frame.magic != Frame::kMagic || frame.bytes != bytes) return invalid("a message that is none");
  if (frame.protocol != Control::kProtocol)
    return invalid("it speaks version {} of the protocol of ranks, this program {}; start one build on all hosts",
                   frame.protocol, Control::kProtocol);
  const auto text = [&] { return std::string(reinterpret_cast<const char*>(data), std::min<size_t>(bytes, 400)); };
  switch (frame.kind) {
    case Kind::Hello: peer.host = fmt::format("host {} (rank {})", text(), peer.leader); return Status::ok();
    case Kind::Step: return take_step(peer, frame, data, bytes);
    case Kind::Parts: return take_parts(peer, frame, data, bytes);
    case Kind::Lines: return take_lines(peer, data, bytes);
    case Kind::Card: return take_card(peer, frame, data, bytes);
    case Kind::Abort:
      control().abort(text());
      told_ = peers_.size() == 1;
      return Status::ok();
    case Kind::Beat: return Status::ok();
  }
  return invalid("a message of kind {}", static_cast<uint32_t>(frame.kind));
}

Status Link::take_step(const Peer& peer, const Frame& frame, const uint8_t* data, size_t bytes) {
  if (peer.ranks.front() != 0) return invalid("a step that is not the front's");
  StepMessage message;
  if (bytes < sizeof message) return invalid("a step of {} bytes", bytes);
  std::memcpy(&message, data, sizeof message);
  if (message.staged_bytes != bytes - sizeof message || message.staged_bytes > region_.arena_bytes() ||
      message.staged_at > region_.arena_bytes() - message.staged_bytes)
    return invalid("a step with {} bytes of inputs at {}", message.staged_bytes, message.staged_at);
  if (message.staged_bytes > 0)
    std::memcpy(region_.arena() + message.staged_at, data + sizeof message, message.staged_bytes);
  control().message = message;
  control().step.store(frame.number, std::memory_order_release);
  control().ring();
  return Status::ok();
}

// A rank there has written its part because everybody was past the collective before, so it may be written here too.
Status Link::take_parts(const Peer& peer, const Frame& frame, const uint8_t* data, size_t bytes) {
  const uint8_t* end = data + bytes;
  const auto next = [&](void* to, size_t size) {
    if (static_cast<size_t>(end - data) < size) return false;
    if (size > 0) std::memcpy(to, data, size);  // an empty list has no address
    data += size;
    return true;
  };
  const auto cut = [&] { return invalid("collective {}: a message of {} bytes ends too early", frame.number, bytes); };
  for (const int r : peer.ranks) {
    Part part;
    if (!next(&part, sizeof part)) return cut();
    if (!part.fits(region_)) return invalid("collective {}: the part of rank {} does not fit", frame.number, r);
    const bool empty = part.row_begin == part.row_end;  // then nothing of the part is checked
    uint8_t* base = empty ? nullptr : region_.arena() + part.at;
    if (!part.owned) {
      if (empty || part.width == 0) continue;
      for (uint64_t row = part.row_begin; row < part.row_end; ++row)
        if (!next(base + row * part.of + part.first, part.width)) return cut();
      continue;
    }
    uint32_t count = 0;
    if (!next(&count, sizeof count)) return cut();
    if (static_cast<size_t>(end - data) / sizeof(uint32_t) < count) return cut();
    std::vector<uint32_t> rows(count);
    if (!next(rows.data(), count * sizeof(uint32_t))) return cut();
    for (const uint32_t row : rows)
      if (row < part.row_begin || row >= part.row_end || !next(base + row * part.of, part.of)) return cut();
  }
  if (data != end) return invalid("collective {}: {} bytes too many", frame.number, end - data);
  for (const int r : peer.ranks) control().line[r].epoch.store(frame.number, std::memory_order_release);
  return Status::ok();
}

Status Link::take_lines(const Peer& peer, const uint8_t* data, size_t bytes) {
  for (; bytes >= sizeof(LineState); bytes -= sizeof(LineState), data += sizeof(LineState)) {
    LineState state;
    std::memcpy(&state, data, sizeof state);
    if (std::find(peer.ranks.begin(), peer.ranks.end(), state.rank) == peer.ranks.end())
      return invalid("it speaks for rank {}", state.rank);
    control().line[state.rank].waited_ns.store(state.waited_ns, std::memory_order_relaxed);
    control().line[state.rank].done.store(state.done, std::memory_order_release);
  }
  return bytes == 0 ? Status::ok() : invalid("{} bytes too many", bytes);
}

Status Link::take_card(const Peer& peer, const Frame& frame, const uint8_t* data, size_t bytes) {
  if (std::find(peer.ranks.begin(), peer.ranks.end(), frame.rank) == peer.ranks.end())
    return invalid("it speaks for rank {}", frame.rank);
  Control::Card& card = control().card[frame.rank];
  Control::Line& line = control().line[frame.rank];
  if (bytes > sizeof card.text) return invalid("a card of {} bytes", bytes);
  if ((frame.number + 1) / 2 != (line.cards.load(std::memory_order_relaxed) + 1) / 2) {
    if (bytes > 0) std::memcpy(card.text, data, bytes);
    card.bytes = static_cast<uint32_t>(bytes);
  }
  line.cards.store(frame.number, std::memory_order_release);
  return Status::ok();
}

bool Link::turn() {
  bool moved = false;
  for (Peer& peer : peers_) moved |= listen(peer);
  moved |= send_step();
  while (send_parts()) moved = true;
  moved |= send_lines();
  moved |= send_cards();
  moved |= send_abort();
  moved |= finish_sends();
  beat();
  return moved;
}

void Link::flush(std::chrono::milliseconds time) {
  const auto end = Clock::now() + time;
  while (!broken_ && Clock::now() < end)
    if (!turn() && outgoing_.empty()) return;
}

}  // namespace reprise::ranks
