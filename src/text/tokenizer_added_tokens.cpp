#include "text/tokenizer_added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace reprise::text {
namespace {

// Where the character that ends at `end` begins.
size_t character_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool touches_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word(code_point_at(text, character_before(text, begin)).value)) ||
         (end < text.size() && is_word(code_point_at(text, end).value));
}

}  // namespace

void AddedTokens::Trie::insert(std::string_view text, int32_t index) {
  uint32_t node = 0;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const auto [it, is_new] = edges.try_emplace((uint64_t{node} << 8) | byte, static_cast<uint32_t>(ends.size()));
    if (is_new) ends.push_back(-1);
    node = it->second;
  }
  if (text.empty()) return;
  first.set(static_cast<unsigned char>(text[0]));
  if (ends[node] < 0) ends[node] = index;
}

int32_t AddedTokens::Trie::longest(std::string_view text, size_t at, size_t* end) const {
  int32_t best = -1;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto it = edges.find((uint64_t{node} << 8) | static_cast<unsigned char>(text[i]));
    if (it == edges.end()) break;
    node = it->second;
    if (ends[node] >= 0) {
      best = ends[node];
      *end = i + 1;
    }
  }
  return best;
}

void AddedTokens::add(AddedToken token) {
  by_id_.emplace(token.id, tokens_.size());
  by_content_.emplace(token.content, tokens_.size());
  tokens_.push_back(std::move(token));
}

Status AddedTokens::finish(const Normalizer& normalizer) {
  // Special tokens come first, so that they win where two tokens normalize to the same text.
  for (const bool special : {true, false}) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const AddedToken& t = tokens_[i];
      if (t.special != special) continue;
      if (!t.normalized) {
        raw_.insert(t.content, static_cast<int32_t>(i));
        continue;
      }
      ASSIGN_OR_RETURN(const std::string content, normalizer.apply(t.content));
      normalized_.insert(content, static_cast<int32_t>(i));
    }
  }
  return Status::ok();
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

bool AddedTokens::is_special(int32_t id) const {
  const AddedToken* token = find(id);
  return token != nullptr && token->special;
}

void AddedTokens::cut(std::string_view text, Where where, bool parse_special, std::vector<Stretch>* out) const {
  const Trie& trie = where == Where::Raw ? raw_ : normalized_;
  size_t copied = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = 0;
    const int32_t index = trie.first[static_cast<unsigned char>(text[at])] ? trie.longest(text, at, &end) : -1;
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at;
    at = end;
    if (!parse_special && token.special) continue;
    if (token.single_word && touches_word(text, begin, end)) continue;
    // The token before may have swallowed white space that this one begins with.
    if (token.lstrip) begin = std::max(begin, copied);
    while (token.lstrip && begin > copied) {
      const size_t before = character_before(text, begin);
      if (!is_whitespace(code_point_at(text, before).value)) break;
      begin = before;
    }
    while (token.rstrip && end < text.size()) {
      const CodePoint c = code_point_at(text, end);
      if (!is_whitespace(c.value)) break;
      end += c.size;
    }
    if (copied < begin) out->push_back({-1, copied, begin});
    if (begin < end) out->push_back({token.id, begin, end});
    copied = end;
  }
  if (copied < text.size()) out->push_back({-1, copied, text.size()});
}

}  // namespace reprise::text
