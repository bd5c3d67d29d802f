#include "text/grammar/token_table.h"

#include <algorithm>
#include <numeric>

namespace reprise::text::grammar {
namespace {

constexpr size_t kMaxTokenBytes = UINT16_MAX;

}  // namespace

Result<TokenTable::Shared> TokenTable::from_tokenizer(const Tokenizer& tokenizer, std::span<const int32_t> end_tokens,
                                                      size_t size) {
  auto vocabulary = static_cast<size_t>(tokenizer.vocab_size());
  if (size == 0) size = vocabulary;
  for (; vocabulary > size; --vocabulary) {  // special tokens take no part
    const auto last = static_cast<int64_t>(vocabulary) - 1;
    if (tokenizer.id_to_token(last) && !tokenizer.is_special(last))
      return invalid("a mask of {} tokens for a vocabulary of {}", size, vocabulary);
  }
  std::vector<std::string> tokens(size);
  for (size_t id = 0; id < vocabulary; ++id) {
    if (tokenizer.is_special(static_cast<int64_t>(id)) || static_cast<int64_t>(id) == tokenizer.unk_id()) continue;
    ASSIGN_OR_RETURN(tokens[id], tokenizer.token_bytes(static_cast<int64_t>(id)));
  }
  return from_bytes(std::move(tokens), end_tokens);
}

Result<TokenTable::Shared> TokenTable::from_bytes(std::vector<std::string> tokens,
                                                  std::span<const int32_t> end_tokens) {
  auto table = std::make_shared<TokenTable>();
  for (const int32_t id : end_tokens) {
    if (id < 0 || static_cast<size_t>(id) >= tokens.size())
      return invalid("end token {} is not one of the {} tokens", id, tokens.size());
    tokens[static_cast<size_t>(id)].clear();
  }
  std::vector<int32_t> order;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty() && tokens[id].size() <= kMaxTokenBytes) order.push_back(static_cast<int32_t>(id));
  }
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int compared = tokens[static_cast<size_t>(a)].compare(tokens[static_cast<size_t>(b)]);
    return compared != 0 ? compared < 0 : a < b;
  });
  table->same_bytes_.assign(tokens.size(), -1);
  std::vector<uint32_t> path;  // the nodes of the token before
  std::string_view before;
  int32_t before_id = -1;
  std::vector<Node>& nodes = table->nodes_;
  for (const int32_t id : order) {
    const std::string_view token = tokens[static_cast<size_t>(id)];
    const auto common = static_cast<size_t>(
        std::mismatch(before.begin(), before.end(), token.begin(), token.end()).first - before.begin());
    if (common == token.size()) {  // sorted, so the same bytes again
      table->same_bytes_[static_cast<size_t>(before_id)] = id;
    } else {
      for (; path.size() > common; path.pop_back()) nodes[path.back()].skip = static_cast<uint32_t>(nodes.size());
      for (size_t i = common; i < token.size(); ++i) {
        path.push_back(static_cast<uint32_t>(nodes.size()));
        nodes.push_back({0, -1, static_cast<uint16_t>(i), static_cast<uint8_t>(token[i])});
      }
      nodes.back().token = id;
      table->max_depth_ = std::max(table->max_depth_, token.size());
    }
    before = token;
    before_id = id;
  }
  for (const uint32_t n : path) nodes[n].skip = static_cast<uint32_t>(nodes.size());
  table->end_tokens_.assign(end_tokens.begin(), end_tokens.end());
  table->tokens_ = std::move(tokens);
  return Shared(std::move(table));
}

bool TokenTable::is_end(int32_t id) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), id) != end_tokens_.end();
}

}  // namespace reprise::text::grammar
