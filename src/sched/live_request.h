// LiveRequest: a request between add() and its end, with its sequence, sampler and pages. Internal to this folder; the
// scheduler's thread owns it.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/sequence.h"
#include "kv/radix_cache.h"
#include "sched/request.h"

namespace reprise::sched {

struct LiveRequest {
  LiveRequest(RequestId id, Request r, std::span<const int32_t> eos)
      : id(id),
        sequence(tokens_read(r), r.second_kind),
        sampler(r.sampling, r.prompt, eos, r.constraint.get()),
        request(std::move(r)) {
    if (request.adapter) sequence.set_adapter(request.adapter->slot);
    sequence.set_images(request.images);
    result.prompt_tokens = sequence.size();
  }
  LiveRequest(const LiveRequest&) = delete;
  LiveRequest& operator=(const LiveRequest&) = delete;

  // One token to go: it decodes. Otherwise it reads its prompt, or what it had before it was preempted.
  bool decodes() const { return sequence.uncached() == 1 && !wants_prompt(); }
  // The last token of a prompt that is scored is only predicted.
  static std::vector<int32_t> tokens_read(const Request& r) {
    return {r.prompt.begin(), r.prompt.end() - (r.score_from ? 1 : 0)};
  }
  // Logits of the prompt are still wanted.
  bool wants_prompt() const {
    if (request.score_from) return sequence.uncached() > 0;
    return request.prompt_logprobs && !prompt_reported &&
           sequence.cached() < static_cast<int64_t>(request.prompt.size());
  }

  // Tokens of the prompt in front of the first whose logits are wanted.
  int64_t unscored() const {
    return request.score_from ? std::max<int64_t>(0, *request.score_from - 1 - sequence.cached()) : 0;
  }

  // Tokens of its answer that steps in flight have yet to give, in front of the one behind its sequence.
  int64_t ahead() const { return sequence.size() - result.prompt_tokens - result.completion_tokens; }
  // Whether a token may come behind those and the next one.
  bool goes_on() const { return result.completion_tokens + ahead() + 1 < most_new_tokens; }

  // What the prefix cache knows its tokens by: themselves, but for rows of images, which have numbers of their own.
  std::span<const int32_t> key() const {
    if (request.images.empty()) return sequence.tokens();
    const auto prompt = static_cast<ptrdiff_t>(request.prompt.size());
    image_key.resize(request.prompt.size());
    image_key.insert(image_key.end(), sequence.tokens().begin() + prompt, sequence.tokens().end());
    return image_key;
  }

  int64_t most_tokens() const { return result.prompt_tokens + most_new_tokens; }

  // Whose turn it takes.
  uint64_t call() const { return request.call != 0 ? request.call : kOwnCalls + id; }

  static constexpr uint64_t kOwnCalls = uint64_t{1} << 63;
  RequestId id;
  engine::Sequence sequence;
  engine::Sampler sampler;
  Request request;
  int64_t most_new_tokens = 0;
  int64_t shared_pages = 0;  // the first pages of the sequence that belong to the cache
  // The first tokens whose keys and values are known to be good: they came from the cache, or logits that were checked
  // followed from them. Only these go into the cache.
  int64_t checked = 0;
  int64_t rank = 0;  // while it waits: its place by the policy, of those with the same priority
  kv::RadixCache::Lease lease;
  bool prompt_cached = false;  // the prompt was put into the cache
  // States that were kept behind so many of its tokens, in their order; the cache gets them with the pages.
  struct KeptState {
    int64_t tokens = 0;
    kv::SlotId slot = kv::kZeroSlot;
    bool until_next = false;  // the next one that is kept takes its place
  };
  std::vector<KeptState> kept;
  std::vector<SampledToken> prompt_logprobs;
  bool prompt_reported = false;            // and given to the sink
  int64_t scored = 0;                      // so many first tokens of the prompt have their scores, or get none
  bool drafts_begun = false;               // the drafter knows of it
  std::vector<int32_t> drafts;             // of the step that runs
  bool predicted = false;                  // they are from the client's prediction
  mutable std::vector<int32_t> image_key;  // of a request with images: key() of the prompt, and what follows it
  RequestResult result;
};

using LivePtr = std::unique_ptr<LiveRequest>;

// Where states are kept on the way through a prompt: behind every so many tokens, and at the last border of a page in
// front of its last token. Multiples of a page.
constexpr int64_t kKeptStateTokens = 1024;
inline int64_t last_state_border(const engine::Sequence& s) {
  return (s.size() - 1) / kv::kPageTokens * kv::kPageTokens;
}
// The next of these, INT64_MAX behind all.
inline int64_t next_state_border(const engine::Sequence& s) {
  const int64_t last = last_state_border(s);
  if (s.cached() >= last) return INT64_MAX;
  return std::min(last, (s.cached() / kKeptStateTokens + 1) * kKeptStateTokens);
}

// Drafts that may come behind its next token where states are kept: a step ends no further than one token in front of
// the next border of a page, whose state a step of that token leaves. None where its prompt is shared by this step at a
// border, with a state that may be another sequence's.
inline int64_t drafts_to_border(const LiveRequest& r) {
  const int64_t end = (r.sequence.cached() + 1) % kv::kPageTokens;
  return end == 0 && !r.prompt_cached ? 0 : kv::kPageTokens - 1 - end;
}

}  // namespace reprise::sched
