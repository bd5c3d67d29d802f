// ModelDrafter: a second, smaller model of the same vocabulary guesses how texts go on. As spec::Drafter.
//
// It has KV pages of its own on the model's executor. A request's text is read into them when its first drafts are
// wanted, a bounded part in each step where others have drafts to make; what it has in common with earlier texts of its
// salt is not read again. Then each round of a proposal is one step of the model, over all requests that want a further
// draft. Where the executor computes by itself, a round is submitted while the one before it runs and takes its tokens
// from that one's result on the device, so the device does not wait for the host between rounds. A draft is drawn with
// the request's seed and the place in its text, as the token itself will be, so two models that agree draw alike. Of
// drafts that did not come true nothing stays but keys behind the text, which are written again.
//
// The model may be a head that drafts from the hidden states of the model that answers (models/draft_head.h). Its text
// is then the request's without the first token, and its rows are read from the request's pages in that model. What it
// computed of its own rows is computed again from that model's as soon as they are there.
//
// A step of the model that fails costs its drafts, and no answer. One per scheduler, on the scheduler's thread;
// the executor outlives it.
#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/executor.h"
#include "kv/radix_cache.h"
#include "spec/drafter.h"
#include "spec/place_rates.h"

namespace reprise::sched {

struct ModelDrafterOptions {
  int64_t most_drafts = 7;    // of a proposal
  int64_t read_tokens = 256;  // of texts that are read beside others that have drafts to make
  bool prefix_cache = true;
};

class ModelDrafter final : public spec::Drafter {
 public:
  ModelDrafter(engine::Executor& model, const ModelDrafterOptions& options);
  ~ModelDrafter() override;

  void begin(const spec::Start& start) override;
  void propose(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) override;
  bool foresee(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) override;
  double round_us() const override { return round_us_; }
  void judged(uint64_t id, int64_t verified, int64_t accepted) override;
  void end(uint64_t id, std::span<const int32_t> answer) override;
  void flush() override { cache_.clear(); }

  // For tests: pages are owned once.
  Status check_integrity() const;
  uint64_t tokens_read() const { return tokens_read_; }  // of texts; further tokens are rounds

 private:
  struct Text {
    std::string salt;
    engine::Sequence sequence{std::vector<int32_t>()};  // the text, and what was guessed last
    spec::PlaceRates rates;
    int64_t agreed = 0;        // its first tokens that are the request's
    int64_t sound = 0;         // of a head: its first rows that came of the other model's
    int64_t shared_pages = 0;  // the first pages, which belong to the cache
    kv::RadixCache::Lease lease = {};
    int32_t first = -1;    // of a head: the token in front of the text
    bool shared = false;   // others may begin with it
    bool strange = false;  // the model does not know one of its tokens
    uint64_t turn = 0;     // of its last proposal
  };
  // A proposal that is being made.
  struct Chain {
    Text* text = nullptr;
    const spec::Wish* wish = nullptr;
    spec::Proposal* out = nullptr;
    int64_t most = 0;
    models::SourceRows source = {};    // of a head
    std::vector<int32_t> behind = {};  // of the first round: the tokens behind the first of those it computes
    int64_t asked = 0;                 // drafts that rounds were submitted for
    bool broken = false;               // a round took a token that is none
  };
  // One step, for the next draft of each chain that wants one.
  struct Round {
    engine::Ticket ticket = 0;  // 0: it was waited for
    struct Row {
      Chain* chain;
      int64_t row;  // of the step's result
    };
    std::vector<Row> rows = {};
  };

  bool begin_text(Text& text, const spec::Wish& wish);
  bool follow(Text& text, std::span<const int32_t> tokens);
  void look_up(Text& text);
  bool hold(Text& text, int64_t tokens);
  bool drop_idle();
  void give_back(Text& text, bool keep = true);
  Status read(std::span<Chain> chains);
  void keep_ready(std::vector<Chain>& chains);
  Status make_drafts();
  Result<bool> submit_round(Round& round);
  Status take_round(Round& round);
  engine::StepItem item_of(Chain& chain, bool sampled) const;
  void fail(const Status& why);

  engine::Executor& model_;
  ModelDrafterOptions options_;
  int64_t most_rows_, most_behind_;  // of a round, and of one text in it: more of it are read before
  const bool head_;                  // it reads rows of the other model
  kv::RadixCache cache_;             // before the texts, whose leases are its
  std::unordered_map<uint64_t, Text> texts_;
  spec::PlaceRates rates_;
  std::vector<Chain> chains_;  // kept to avoid allocating per step; so the items and the rounds
  std::vector<engine::StepItem> items_;
  std::array<Round, 2> rounds_;  // in flight; they take turns
  double round_us_ = 0;          // a moving average
  uint64_t turn_ = 0, tokens_read_ = 0;
  bool failed_ = false;  // which was said once
};

}  // namespace reprise::sched
