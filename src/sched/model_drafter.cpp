#include "sched/model_drafter.h"

#include <algorithm>
#include <set>

#include "base/elapsed.h"
#include "base/log.h"

namespace reprise::sched {
namespace {

using engine::StepItem;
using engine::StepOutput;

constexpr int64_t kMostBehind = 8;
constexpr double kModelWeight = 1.0 / 64, kTextWeight = 1.0 / 16;

}  // namespace

ModelDrafter::ModelDrafter(engine::Executor& model, const ModelDrafterOptions& options)
    : model_(model),
      options_(options),
      most_rows_(std::min({model.max_verify_rows() > 1 ? model.max_verify_rows() : INT64_MAX, model.max_step_rows(),
                           model.max_step_tokens()})),
      // Without steps of several rows of a text, all but its last token is read before.
      most_behind_(model.max_verify_rows() > 1 ? std::min(kMostBehind, most_rows_) : 1),
      head_(model.reads_source()),
      cache_(model.kv_pool()),
      rates_(options.most_drafts, kModelWeight) {}

ModelDrafter::~ModelDrafter() {
  for (auto& entry : texts_) give_back(entry.second);
}

void ModelDrafter::begin(const spec::Start& start) {
  texts_.insert_or_assign(start.id,
                          Text{.salt = std::string(start.salt), .rates = spec::PlaceRates(rates_, kTextWeight)});
}

bool ModelDrafter::foresee(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) {
  for (size_t i = 0; i < wishes.size(); ++i) {
    out[i].clear();
    const auto found = texts_.find(wishes[i].id);
    if (found == texts_.end() || found->second.strange) continue;
    const auto size = static_cast<int64_t>(wishes[i].tokens.size());
    found->second.rates.survival(std::min(wishes[i].most, model_.context_length() - size + 1), out[i].survival);
  }
  return true;
}

void ModelDrafter::propose(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) {
  ++turn_;
  chains_.clear();
  for (size_t i = 0; i < wishes.size(); ++i) {
    out[i].clear();
    const auto found = texts_.find(wishes[i].id);
    if (found == texts_.end() || wishes[i].most <= 0) continue;
    Text& text = found->second;
    // A chain of k drafts has keys and values of the text and of k - 1 of them.
    const auto size = static_cast<int64_t>(wishes[i].tokens.size());
    const int64_t most = std::min(wishes[i].most, model_.context_length() - size + 1);
    if (most <= 0) continue;
    text.turn = turn_;  // first: a search for pages must not take its own
    if (!begin_text(text, wishes[i])) continue;
    chains_.push_back({&text, &wishes[i], &out[i], most, {wishes[i].pages, text.sequence.size()}});
  }
  if (const Status ok = read(chains_); !ok.is_ok()) return fail(ok);
  keep_ready(chains_);
  if (const Status ok = make_drafts(); !ok.is_ok()) return fail(ok);
  for (Chain& c : chains_) c.text->rates.survival(static_cast<int64_t>(c.out->tokens.size()), c.out->survival);
}

// A head's row of a token is of the token before it as well, so the first one has none; whose keys are alike is a
// matter of that token, too.
bool ModelDrafter::begin_text(Text& text, const spec::Wish& wish) {
  if (!head_) return follow(text, wish.tokens);
  if (wish.tokens.size() < 2) return false;
  if (text.agreed == 0 && text.sequence.size() == 0 && text.first != wish.tokens[0]) {
    text.first = wish.tokens[0];
    text.salt += fmt::format("\n{}", text.first);
  }
  return follow(text, wish.tokens.subspan(1));
}

// The sequence becomes the request's text; what was guessed and is not part of it goes. False: it cannot.
bool ModelDrafter::follow(Text& text, std::span<const int32_t> tokens) {
  if (text.strange) return false;
  engine::Sequence& s = text.sequence;
  const auto agreed = static_cast<size_t>(text.agreed);
  const int64_t known = text.agreed + kv::common_prefix(std::span(s.tokens()).subspan(agreed), tokens.subspan(agreed));
  s.rewind(known);
  for (const int32_t token : tokens.subspan(static_cast<size_t>(known))) {
    text.strange |= token < 0 || token >= model_.vocab_size();
    s.append(token);
  }
  text.agreed = s.size();
  if (text.strange) {
    give_back(text);
    return false;
  }
  if (head_) s.set_cached(std::min(s.cached(), text.sound));
  s.set_cached(std::min(s.cached(), s.size() - 1));  // the last row is needed
  if (s.pages().empty()) look_up(text);
  text.sound = s.cached();
  return true;
}

// What the cache knows of a text that has no pages.
void ModelDrafter::look_up(Text& text) {
  if (!options_.prefix_cache) return;
  engine::Sequence& s = text.sequence;
  kv::RadixCache::Match match = cache_.match(text.salt, std::span(s.tokens()).first(static_cast<size_t>(s.size() - 1)));
  s.pages() = std::move(match.pages);
  s.set_cached(match.tokens);
  text.shared_pages = static_cast<int64_t>(s.pages().size());
  text.lease = std::move(match.lease);
  if (!match.partial_lease || !hold(text, match.tokens + match.partial_tokens)) return;
  if (model_.copy_page(match.partial_page, s.pages().back()).is_ok()) s.set_cached(match.tokens + match.partial_tokens);
}

// Pages for so many tokens; first of the cache, then of texts that take no part. False: there are none.
bool ModelDrafter::hold(Text& text, int64_t tokens) {
  auto& pages = text.sequence.pages();
  kv::KvPool& pool = model_.kv_pool();
  const int64_t need = kv::pages_for(tokens) - static_cast<int64_t>(pages.size());
  if (need <= 0) return true;
  while (pool.free_pages() < need)
    if (cache_.evict(need - pool.free_pages()) == 0 && !drop_idle()) return false;
  auto fresh = pool.allocate(need);
  if (!fresh.is_ok()) return false;
  pages.insert(pages.end(), fresh->begin(), fresh->end());
  return true;
}

// The text that was drafted for the longest ago and is not now gives up its pages.
bool ModelDrafter::drop_idle() {
  Text* idle = nullptr;
  for (auto& entry : texts_) {
    Text& t = entry.second;
    if (!t.sequence.pages().empty() && t.turn < turn_ && (!idle || t.turn < idle->turn)) idle = &t;
  }
  if (!idle) return false;
  give_back(*idle);
  return true;
}

// What is the request's own goes to the cache, if it is to be kept, and the other pages to the pool.
void ModelDrafter::give_back(Text& text, bool keep) {
  engine::Sequence& s = text.sequence;
  if (keep && options_.prefix_cache && !s.pages().empty()) {
    const auto good = static_cast<size_t>(std::min(head_ ? text.sound : s.cached(), text.agreed));
    cache_.insert(text.salt, std::span(s.tokens()).first(good), s.pages(), text.shared_pages, true);
  } else {
    model_.kv_pool().release(std::span(s.pages()).subspan(static_cast<size_t>(text.shared_pages)));
  }
  text.lease.reset();
  s.forget();
  s.rewind(0);
  text.agreed = text.shared_pages = text.sound = 0;
  text.shared = false;
}

// One step for texts of which more than a round's tokens are to be computed, up to their last token each.
Status ModelDrafter::read(std::span<Chain> chains) {
  const bool others = std::any_of(chains.begin(), chains.end(),
                                  [&](const Chain& c) { return c.text->sequence.uncached() <= most_behind_; });
  int64_t room = model_.max_step_tokens();
  if (others) room = std::min(room, options_.read_tokens);
  items_.clear();
  for (Chain& c : chains) {
    engine::Sequence& s = c.text->sequence;
    if (s.uncached() <= most_behind_) continue;
    const int64_t count = std::min(room, s.uncached() - 1);
    if (count <= 0 || static_cast<int64_t>(items_.size()) == model_.max_step_rows()) break;
    if (!hold(*c.text, s.cached() + count)) continue;
    items_.push_back({.sequence = &s, .count = count, .source = head_ ? &c.source : nullptr});
    room -= count;
    tokens_read_ += static_cast<uint64_t>(count);
  }
  if (items_.empty()) return Status::ok();
  ASSIGN_OR_RETURN(const engine::Ticket ticket, model_.submit(items_, StepOutput::NextTokens));
  RETURN_IF_ERROR(model_.wait(ticket).status());
  for (Chain& c : chains) {
    Text& t = *c.text;
    t.sound = t.sequence.cached();
    if (t.shared || t.sequence.uncached() != 1 || !options_.prefix_cache) continue;
    const auto cached = std::span(t.sequence.tokens()).first(static_cast<size_t>(t.sequence.cached()));
    auto in = cache_.insert(t.salt, cached, t.sequence.pages(), t.shared_pages, false);
    t.shared_pages = in.pages;
    t.lease = std::move(in.lease);
    t.shared = true;
  }
  return Status::ok();
}

// The chains that the first round takes in: as many rows as the model's step has, with pages for what they will hold.
void ModelDrafter::keep_ready(std::vector<Chain>& chains) {
  int64_t room = most_rows_;
  std::erase_if(chains, [&](Chain& c) {
    const engine::Sequence& s = c.text->sequence;
    if (s.uncached() > std::min(most_behind_, room) || !hold(*c.text, s.size() + c.most - 1)) return true;
    room -= s.uncached();
    return false;
  });
}

// The next row of a chain. Its text's last tokens, where they are several, are rows of a decode step like drafts.
StepItem ModelDrafter::item_of(Chain& c, bool sampled) const {
  engine::Sequence& s = c.text->sequence;
  const int64_t count = s.uncached();
  if (c.asked == 0) {
    c.behind.assign(s.tokens().end() - (count - 1), s.tokens().end());
    s.rewind(s.size() - (count - 1));
  }
  StepItem item{.sequence = &s, .count = count, .logits = sampled ? count : 1, .certain = true};
  if (c.asked == 0) item.drafts = c.behind;
  c.source.leave = c.asked + 1 < c.most;
  if (head_) item.source = &c.source;
  if (!sampled) return item;
  item.draw = c.wish->draw.value_or(Draw{});
  item.draw->position += c.asked - (count - 1);
  item.draw->logprobs = -1;
  return item;
}

// As many rounds as the longest chain has drafts. Where the executor computes by itself and its tokens are the text's,
// each is submitted before the one in front of it is waited for.
Status ModelDrafter::make_drafts() {
  const bool ahead = model_.overlaps() && model_.target_ids().empty();
  auto last = Clock::now();
  for (size_t n = 0;; ++n) {
    Round &now = rounds_[n % rounds_.size()], &before = rounds_[(n + 1) % rounds_.size()];
    ASSIGN_OR_RETURN(const bool more, submit_round(now));
    Round& due = ahead ? before : now;
    if (due.ticket != 0) {
      RETURN_IF_ERROR(take_round(due));
      const double took = seconds_since(std::exchange(last, Clock::now())) * 1e6;
      round_us_ += round_us_ > 0 ? (took - round_us_) / 16 : took;
    }
    if (!more) break;
  }
  for (Chain& c : chains_)
    if (c.broken) give_back(*c.text, false);
  return Status::ok();
}

// False: no chain wants a further draft.
Result<bool> ModelDrafter::submit_round(Round& round) {
  const auto wants = [](const Chain& c) { return c.asked < c.most; };
  const auto drawn = [&](const Chain& c) { return wants(c) && c.wish->draw && c.wish->draw->scale > 0; };
  // Where its tokens are not the other model's, one number draws another one in each.
  const bool sampled =
      model_.has_sampled_steps() && model_.target_ids().empty() && std::any_of(chains_.begin(), chains_.end(), drawn);
  items_.clear();
  round.rows.clear();
  int64_t row = 0;
  for (Chain& c : chains_) {
    if (!wants(c)) continue;
    engine::Sequence& s = c.text->sequence;
    if (c.asked > 0 && s.uncached() == 0) s.append_pending();
    items_.push_back(item_of(c, sampled));
    row += items_.back().logits;
    round.rows.push_back({&c, row - 1});
  }
  if (items_.empty()) return false;
  ASSIGN_OR_RETURN(round.ticket, model_.submit(items_, sampled ? StepOutput::Sampled : StepOutput::NextTokens));
  for (const Round::Row& r : round.rows) {
    Chain& c = *r.chain;
    engine::Sequence& s = c.text->sequence;
    if (c.asked++ > 0) continue;
    for (const int32_t token : c.behind) s.append(token);
    s.commit(static_cast<int64_t>(c.behind.size()));
    c.text->sound = s.cached();
  }
  return true;
}

// Waits for it; its drafts go to the proposals, and to the texts as far as further ones follow.
Status ModelDrafter::take_round(Round& round) {
  ASSIGN_OR_RETURN(const engine::StepResult result, model_.wait(std::exchange(round.ticket, 0)));
  const std::span<const int32_t> ids = model_.target_ids();
  for (const auto& [chain, row] : round.rows) {
    Chain& c = *chain;
    engine::Sequence& s = c.text->sequence;
    if (static_cast<int64_t>(c.out->tokens.size()) >= c.most) continue;
    int32_t token = result.tokens[static_cast<size_t>(row)];
    if (token < 0) {
      // What the next round, which is under way, makes of it is left alone, and the text is read anew.
      c.broken = c.asked > static_cast<int64_t>(c.out->tokens.size()) + 1;
      c.most = static_cast<int64_t>(c.out->tokens.size());
      continue;
    }
    if (!ids.empty()) token = ids[static_cast<size_t>(token)];
    c.out->tokens.push_back(token);
    const auto made = static_cast<int64_t>(c.out->tokens.size());
    if (s.pending())
      s.resolve(s.size() - 1, token);
    else if (made == c.asked && made < c.most)
      s.append(token);
  }
  return Status::ok();
}

// Nothing of these texts is known any more, nor proposed, and what the step left in the cache is not trusted.
void ModelDrafter::fail(const Status& why) {
  if (!std::exchange(failed_, true))
    log::warning("a step of the draft model failed, and gave no drafts: {}", why.message());
  // In the order of their submission.
  if (rounds_[0].ticket > rounds_[1].ticket) std::swap(rounds_[0], rounds_[1]);
  for (Round& r : rounds_)
    if (r.ticket != 0) (void)model_.wait(std::exchange(r.ticket, 0));
  for (Chain& c : chains_) {
    c.out->clear();
    give_back(*c.text, false);
  }
  cache_.clear();
}

void ModelDrafter::judged(uint64_t id, int64_t verified, int64_t accepted) {
  const auto found = texts_.find(id);
  if (found == texts_.end()) return;
  found->second.rates.saw(verified, accepted);
  rates_.saw(verified, accepted);
}

void ModelDrafter::end(uint64_t id, std::span<const int32_t> answer) {
  const auto found = texts_.find(id);
  if (found == texts_.end()) return;
  give_back(found->second);
  texts_.erase(found);
}

Status ModelDrafter::check_integrity() const {
  RETURN_IF_ERROR(model_.kv_pool().check_integrity());
  RETURN_IF_ERROR(cache_.check_integrity());
  std::set<kv::PageId> own;
  for (const auto& [id, t] : texts_) {
    const auto& pages = t.sequence.pages();
    for (size_t i = static_cast<size_t>(t.shared_pages); i < pages.size(); ++i)
      if (!own.insert(pages[i]).second)
        return error(Code::Internal, "page {} is held twice, also by request {}", pages[i], id);
    if (t.agreed > t.sequence.size()) return error(Code::Internal, "request {}: {} tokens", id, t.sequence.size());
  }
  const kv::KvPool& pool = model_.kv_pool();
  const auto used = static_cast<int64_t>(own.size()) + cache_.held_pages();
  if (used + pool.free_pages() != pool.total_pages())
    return error(Code::Internal, "{} pages are used and {} free, of {}", used, pool.free_pages(), pool.total_pages());
  return Status::ok();
}

}  // namespace reprise::sched
