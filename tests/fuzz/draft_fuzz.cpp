// The drafters, over any course of requests: what they propose fits the wish, and chances fall; the latest of the
// longest matches is what is gone on from; the store of answers keeps its bounds.
#include <algorithm>
#include <map>
#include <memory>

#include "base/check.h"
#include "spec/ngram_drafter.h"
#include "spec/suffix_drafter.h"

namespace {

using reprise::spec::AnswerStore;
using reprise::spec::NgramDrafter;
using reprise::spec::Proposal;
using reprise::spec::SpecOptions;
using reprise::spec::SuffixDrafter;
using Tokens = std::vector<int32_t>;

struct Input {
  const uint8_t* at;
  const uint8_t* end;
  uint8_t next() { return at < end ? *at++ : 0; }
};

struct Text {
  Tokens tokens;
  size_t prompt = 0;
  Tokens prediction;
};

void check(const Proposal& p, int64_t most) {
  CHECK(static_cast<int64_t>(p.tokens.size()) <= most && p.tokens.size() == p.survival.size());
  for (size_t i = 0; i < p.tokens.size(); ++i) {
    CHECK(p.tokens[i] >= 0, "a border was proposed");
    CHECK(p.survival[i] > 0 && p.survival[i] <= (i > 0 ? p.survival[i - 1] : 1));
  }
}

// A match of the whole window is nothing that the drafter may pass over.
void check_found(const Text& t, const Proposal& p, const SpecOptions& o, int64_t most) {
  const auto n = t.tokens.size(), g = static_cast<size_t>(o.shortest_match);
  if (most == 0 || n < g + 1 || !t.prediction.empty() || !p.tokens.empty()) return;
  for (size_t end = g; end < n; ++end)
    CHECK(!std::equal(t.tokens.begin() + static_cast<ptrdiff_t>(end - g),
                      t.tokens.begin() + static_cast<ptrdiff_t>(end), t.tokens.end() - static_cast<ptrdiff_t>(g)) ||
              n > 60,
          "a match that ends at {} of {} was not found", end, n);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in{data, data + size};
  SpecOptions o;
  o.shortest_match = 1 + in.next() % 4;
  o.longest_match = o.shortest_match + in.next() % 8;
  o.suffix_depth = o.shortest_match + in.next() % 8;
  o.suffix_factor = 0.5 + in.next() % 4;
  o.suffix_answers = in.next() % 6;
  o.suffix_tokens = 1 + in.next();
  const int32_t letters = 2 + in.next() % 6;
  NgramDrafter ngram(o);
  SuffixDrafter suffix(o);
  std::map<uint64_t, Text> texts;
  while (in.at < in.end) {
    const uint8_t what = in.next();
    const uint64_t id = what / 8 % 4;
    const auto text = texts.find(id);
    switch (what % 8) {
      case 0: {
        if (text != texts.end()) break;
        Text t;
        for (int i = in.next() % 32; i >= 0; --i) t.tokens.push_back(in.next() % letters);
        for (int i = in.next() % 16; i > 0; --i) t.prediction.push_back(in.next() % letters);
        t.prompt = t.tokens.size();
        for (auto* d : {static_cast<reprise::spec::Drafter*>(&ngram), static_cast<reprise::spec::Drafter*>(&suffix)})
          d->begin({id, t.prediction, what & 128 ? "a" : "b"});
        texts[id] = std::move(t);
        break;
      }
      case 1: {
        const auto answer = text == texts.end()
                                ? std::span<const int32_t>()
                                : std::span<const int32_t>(text->second.tokens).subspan(text->second.prompt);
        ngram.end(id, answer);
        suffix.end(id, answer);
        texts.erase(id);
        CHECK(suffix.store().answers() <= o.suffix_answers && suffix.store().tokens() <= o.suffix_tokens);
        break;
      }
      case 2: {
        const int64_t verified = in.next() % 8, accepted = verified == 0 ? 0 : in.next() % (verified + 1);
        ngram.judged(id, verified, accepted);
        suffix.judged(id, verified, accepted);
        break;
      }
      default: {
        if (text == texts.end()) break;
        text->second.tokens.push_back(in.next() % letters);
        const int64_t most = what % 8 - 3;
        const reprise::spec::Wish wish{id, text->second.tokens, most};
        Proposal p;
        ngram.propose({&wish, 1}, {&p, 1});
        check(p, most);
        check_found(text->second, p, o, most);
        suffix.propose({&wish, 1}, {&p, 1});
        check(p, most);
      }
    }
  }
  return 0;
}
