#include "engine/rank_draws.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/draw_parts.h"

namespace reprise::engine {
namespace {

static_assert(sizeof(draw::Candidate) == sizeof(uint64_t));

// Words of a rank and row: what it sends for the draw, then the best tokens of the row as the model gave it.
constexpr int64_t kDrawnWords = 2 + 2 * draw::kMostCandidates, kToldWords = 2 + 2 * kMostTopTokens;

// The draw whose candidates are the tokens reported with a log-probability: they are weighed as they are.
constexpr Draw logprob_draw(int32_t count) {
  Draw d;
  d.scale = 1;
  d.top_k = count;
  return d;
}

}  // namespace

void DrawnRows::add(int64_t rows, const int32_t* known) {
  const size_t end = tokens.size() + static_cast<size_t>(rows);
  for (int64_t i = 0; i < rows; ++i) tokens.push_back(known ? known[i] : kUndecidedToken);
  logprobs.resize(end, 0);
  top_tokens.resize(end * static_cast<size_t>(kMostTopTokens), -1);
  top_logprobs.resize(end * static_cast<size_t>(kMostTopTokens), 0);
}

TensorView DrawnRows::view(std::string_view name) const {
  const auto rows = static_cast<int64_t>(tokens.size());
  const auto list = [&](auto& of, DType type) {
    return TensorView::dense(const_cast<void*>(static_cast<const void*>(of.data())), type, {rows});
  };
  const auto table = [&](auto& of, DType type) {
    return TensorView::dense(const_cast<void*>(static_cast<const void*>(of.data())), type, {rows, kMostTopTokens});
  };
  if (rows == 0) return {};
  if (name == "sampled") return list(tokens, DType::I32);
  if (name == "sampled.logprob") return list(logprobs, DType::F32);
  if (name == "sampled.top_tokens") return table(top_tokens, DType::I32);
  if (name == "sampled.top_logprobs") return table(top_logprobs, DType::F32);
  return {};
}

bool RankDraws::leaves_none(const Draw& draw, int64_t vocabulary) {
  return draw.logprobs < 0 && draw::surely_decided(draw, vocabulary);
}

RankDraws::RankDraws(std::shared_ptr<ranks::Member> member, std::vector<int64_t> borders)
    : member_(std::move(member)),
      borders_(std::move(borders)),
      rank_(member_->world().rank),
      ranks_(member_->world().size),
      blocks_(draw::blocks(vocabulary(), draw::kBlock)),
      scratch_(static_cast<size_t>(std::max(vocabulary(), ranks_ * draw::kMostCandidates))) {
  rows_.reserve(static_cast<size_t>(kRowsAtOnce));
  changed_.resize(static_cast<size_t>(kRowsAtOnce));
}

Result<std::unique_ptr<RankDraws>> RankDraws::make(std::shared_ptr<ranks::Member> member, MemoryPool& between,
                                                   std::vector<int64_t> borders) {
  std::unique_ptr<RankDraws> out(new RankDraws(std::move(member), std::move(borders)));
  const int64_t rows = kRowsAtOnce, ranks = out->ranks_;
  size_t words = 0;
  const auto place = [&](Place& p, int64_t count, int64_t of, int32_t* base) {
    p = {base ? base + words : nullptr, of};
    words += static_cast<size_t>((count * of + 15) / 16 * 16);
  };
  const auto lay_out = [&](int32_t* base) {
    words = 0;
    for (Exchanged& e : out->turns_) {
      place(e.tops, 2 * rows, ranks, base);
      place(e.sums, 2 * rows, out->blocks_, base);
      place(e.best, rows, ranks * (kDrawnWords + kToldWords), base);
      place(e.chosen, rows, ranks, base);
      place(e.whole, 1, out->vocabulary(), base);
    }
  };
  lay_out(nullptr);
  ASSIGN_OR_RETURN(out->memory_, between.allocate(words * sizeof(int32_t), "tokens drawn by ranks"));
  lay_out(out->memory_.as<int32_t>());
  return out;
}

int64_t RankDraws::row_bytes() const {
  return static_cast<int64_t>(sizeof(int32_t)) * (ranks_ + blocks_ + ranks_ * kDrawnWords);
}

int64_t RankDraws::own_row_bytes() const {
  return static_cast<int64_t>(sizeof(int32_t)) * (1 + draw::blocks(columns(), draw::kBlock) + kDrawnWords);
}

Status RankDraws::meet(const Place& place, int64_t rows, int64_t at, int64_t words) {
  constexpr uint64_t kWord = sizeof(int32_t);
  const auto bytes = [](int64_t n) { return static_cast<uint64_t>(n) * kWord; };
  const auto* begin = reinterpret_cast<const uint8_t*>(place.words);
  member_->meet(0, {.at = static_cast<uint64_t>(begin - member_->region().arena()),
                    .of = bytes(place.of),
                    .row_end = static_cast<uint64_t>(rows),
                    .first = bytes(at),
                    .width = bytes(words)});
  return member_->aborted() ? member_->lost() : Status::ok();
}

const float* RankDraws::tops_of(size_t i, bool plain) const {
  const Place& p = turns_[turn_].tops;
  return reinterpret_cast<const float*>(p.words) + static_cast<int64_t>(2 * i + (plain ? 1 : 0)) * p.of;
}

const float* RankDraws::sums_of(size_t i, bool plain) const {
  const Place& p = turns_[turn_].sums;
  return reinterpret_cast<const float*>(p.words) + static_cast<int64_t>(2 * i + (plain ? 1 : 0)) * p.of;
}

Status RankDraws::draw(const Rows& rows, size_t first, DrawnRows& out) {
  std::vector<size_t> which;
  for (size_t i = first; i < out.tokens.size(); ++i)
    if (out.tokens[i] == kUndecidedToken) which.push_back(i);
  const auto each = static_cast<size_t>(kRowsAtOnce);
  for (size_t i = 0; i < which.size(); i += each) {
    take_rows(rows, std::span(which).subspan(i, std::min(each, which.size() - i)), first);
    RETURN_IF_ERROR(draw_taken(out));
  }
  return Status::ok();
}

void RankDraws::take_rows(const Rows& from, std::span<const size_t> which, size_t first) {
  turn_ = 1 - turn_;
  rows_.clear();
  const auto n = static_cast<size_t>(columns());
  for (const size_t to : which) {
    Row row{.to = to, .draw = draw::of_row(from.draws.data(), static_cast<int64_t>(to - first))};
    row.logprobs = std::exchange(row.draw.logprobs, -1);
    row.plain = row.own = from.logits + (to - first) * n;
    if (row.draw.edited > 0) {
      std::vector<float>& changed = changed_[rows_.size()];
      changed.resize(n);
      const LogitEdit e = edit::of_row(from.edits.data(), row.draw.edited - 1);
      edit::mask_part(e, from.words.data(), from.logits + e.row * columns(), changed.data(), this->first(), columns());
      edit::apply_lists(changed.data(), this->first(), columns(), e, from.words.data());
      row.own = changed.data();
    }
    rows_.push_back(row);
  }
}

Status RankDraws::draw_taken(DrawnRows& out) {
  RETURN_IF_ERROR(find_tops());
  RETURN_IF_ERROR(add_weights());
  RETURN_IF_ERROR(send_best());
  const Place& best = turns_[turn_].best;
  auto* scratch = reinterpret_cast<draw::Candidate*>(scratch_.data());
  for (size_t i = 0; i < rows_.size(); ++i)
    out.tokens[rows_[i].to] = draw::merged_token(
        rows_[i].draw, vocabulary(), tops_of(i, false), sums_of(i, false),
        {best.words + static_cast<int64_t>(i) * best.of, ranks_, draw::kMostCandidates, kDrawnWords + kToldWords},
        scratch);
  for (const Row& row : rows_)
    if (int32_t& token = out.tokens[row.to]; token == kUndecidedToken) RETURN_IF_ERROR(draw_whole(row, token));
  return tell_logprobs(out);
}

Status RankDraws::find_tops() {
  const Place& p = turns_[turn_].tops;
  auto* scratch = reinterpret_cast<draw::Candidate*>(scratch_.data());
  auto* tops = reinterpret_cast<float*>(p.words);
  for (const Row& row : rows_) {
    tops[rank_] = draw::own_top(row.own, columns(), scratch);
    tops[p.of + rank_] =
        row.logprobs < 0 || row.own == row.plain ? tops[rank_] : draw::own_top(row.plain, columns(), scratch);
    tops += 2 * p.of;
  }
  return meet(p, 2 * static_cast<int64_t>(rows_.size()), rank_, 1);
}

Status RankDraws::add_weights() {
  const Place& p = turns_[turn_].sums;
  const int64_t at = first() / draw::kBlock, count = draw::blocks(columns(), draw::kBlock);
  const auto weigh = [&](const float* row, float top, float scale, float least, float* to) {
    for (int64_t b = 0; b < count; ++b) to[b] = draw::block_weight(row, b * draw::kBlock, columns(), top, scale, least);
  };
  auto* sums = reinterpret_cast<float*>(p.words) + at;
  for (size_t i = 0; i < rows_.size(); ++i, sums += 2 * p.of) {
    Row& row = rows_[i];
    const draw::Need need = draw::need_of(row.draw, vocabulary());
    float top = 0;
    if ((need == draw::Need::Sums || need == draw::Need::Share) && draw::top_of(tops_of(i, false), ranks_, top))
      weigh(row.own, top, row.draw.scale, need == draw::Need::Sums ? row.draw.min_p : 0.0f, sums);
    if (row.logprobs >= 0 && draw::top_of(tops_of(i, true), ranks_, row.top))
      weigh(row.plain, row.top, 1, 0, sums + p.of);
  }
  return meet(p, 2 * static_cast<int64_t>(rows_.size()), at, count);
}

Status RankDraws::send_best() {
  const Place& p = turns_[turn_].best;
  constexpr int64_t kWords = kDrawnWords + kToldWords;
  auto* scratch = reinterpret_cast<draw::Candidate*>(scratch_.data());
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    int32_t* words = p.words + static_cast<int64_t>(i) * p.of + rank_ * kWords;
    const auto send = [&](const float* logits, const Draw& d, bool plain, int64_t most, int32_t* to) {
      float top = 0;
      draw::Sent sent;
      if (draw::top_of(tops_of(i, plain), ranks_, top))
        sent = draw::send({logits, columns(), first(), vocabulary()}, d, top, sums_of(i, plain), most, scratch,
                          reinterpret_cast<draw::Candidate*>(to + 2));
      to[0] = sent.count;
      to[1] = sent.more;
    };
    send(row.own, row.draw, false, draw::kMostCandidates, words);
    words[kDrawnWords] = 0;
    const int32_t shown = std::min<int32_t>(row.logprobs, kMostTopTokens);
    if (shown > 0) send(row.plain, logprob_draw(shown), true, kMostTopTokens, words + kDrawnWords);
  }
  return meet(p, static_cast<int64_t>(rows_.size()), rank_ * kWords, kWords);
}

// All of the row that is drawn from, on all ranks.
Status RankDraws::draw_whole(const Row& row, int32_t& token) {
  whole_turn_ = 1 - whole_turn_;
  ++whole_rows_;
  const Place& p = turns_[whole_turn_].whole;
  std::memcpy(p.words + first(), row.own, static_cast<size_t>(columns()) * sizeof(float));
  RETURN_IF_ERROR(meet(p, 1, first(), columns()));
  token = draw::token(reinterpret_cast<const float*>(p.words), vocabulary(), row.draw,
                      reinterpret_cast<draw::Candidate*>(scratch_.data()));
  return Status::ok();
}

// The rank that has a token says its logit.
Status RankDraws::tell_logprobs(DrawnRows& out) {
  if (std::all_of(rows_.begin(), rows_.end(), [](const Row& r) { return r.logprobs < 0; })) return Status::ok();
  const Place& p = turns_[turn_].chosen;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const int64_t at = out.tokens[rows_[i].to] - first();
    const bool here = rows_[i].logprobs >= 0 && at >= 0 && at < columns();
    const float logit = here ? rows_[i].plain[at] : 0;
    std::memcpy(p.words + static_cast<int64_t>(i) * p.of + rank_, &logit, sizeof logit);
  }
  RETURN_IF_ERROR(meet(p, static_cast<int64_t>(rows_.size()), rank_, 1));
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].logprobs >= 0 && out.tokens[rows_[i].to] >= 0) tell_row(i, out);
  return Status::ok();
}

void RankDraws::tell_row(size_t i, DrawnRows& out) const {
  const Row& row = rows_[i];
  const Exchanged& e = turns_[turn_];
  const float* sums = sums_of(i, true);
  const double sum = std::log(draw::sum_of(blocks_, [&](int64_t b) { return sums[b]; }));
  const int64_t owner =
      std::upper_bound(borders_.begin(), borders_.end(), int64_t{out.tokens[row.to]}) - borders_.begin() - 1;
  float logit = 0;
  std::memcpy(&logit, e.chosen.words + static_cast<int64_t>(i) * e.chosen.of + owner, sizeof logit);
  out.logprobs[row.to] = draw::logprob(logit, row.top, sum);
  const draw::Received best{e.best.words + static_cast<int64_t>(i) * e.best.of + kDrawnWords, ranks_, kMostTopTokens,
                            kDrawnWords + kToldWords};
  int64_t taken[draw::kMostParts] = {};
  const int64_t shown = std::min<int64_t>(row.logprobs, kMostTopTokens);
  size_t to = row.to * static_cast<size_t>(kMostTopTokens);
  for (int64_t k = 0; k < shown; ++k, ++to) {
    const int64_t rank = best.next(taken);
    if (rank < 0) break;
    const draw::Candidate c = best.at(rank, taken[rank]++);
    out.top_tokens[to] = c.token;
    out.top_logprobs[to] = draw::logprob(c.value, row.top, sum);
  }
}

}  // namespace reprise::engine
