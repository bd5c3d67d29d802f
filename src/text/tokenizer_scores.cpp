#include "text/tokenizer_scores.h"

#include <cmath>
#include <queue>

#include "text/utf8.h"

namespace reprise::text {

Result<ScoreModel> ScoreModel::create(const Vocabulary& vocabulary, std::vector<float> scores,
                                      std::vector<uint8_t> mergeable, int32_t unk_id) {
  for (size_t id = 0; id < scores.size(); ++id) {
    if (std::isnan(scores[id])) return invalid("token {} has a score that is not a number", id);
  }
  ScoreModel model;
  model.scores_ = std::move(scores);
  model.mergeable_ = std::move(mergeable);
  model.unk_id_ = unk_id;
  for (int byte = 0; byte < 256; ++byte) {
    model.byte_ids_.push_back(vocabulary.find(fmt::format("<0x{:02X}>", byte)));
    if (model.byte_ids_.back() < 0 && unk_id < 0)
      return invalid("the vocabulary has neither a token <0x{:02X}> nor an unknown token", byte);
  }
  return model;
}

int32_t ScoreModel::find(const Vocabulary& vocabulary, std::string_view text) const {
  const int32_t id = vocabulary.find(text);
  return id >= 0 && mergeable_[static_cast<size_t>(id)] ? id : -1;
}

void ScoreModel::encode(const Vocabulary& vocabulary, std::string_view text, std::vector<int32_t>* out) const {
  struct Symbol {
    uint32_t begin;
    uint32_t size;  // 0 once joined to the left
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    float score;
    int32_t left;
    uint32_t size;  // of the joined text, which tells stale candidates
    bool operator<(const Candidate& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const auto index = static_cast<int32_t>(symbols.size());
    at += c.size;
    symbols.push_back({static_cast<uint32_t>(at - c.size), c.size, index - 1, at < text.size() ? index + 1 : -1});
  }
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };

  std::priority_queue<Candidate> candidates;
  const auto propose = [&](int32_t left) {
    if (left < 0 || symbol(left).next < 0) return;
    const uint32_t size = symbol(left).size + symbol(symbol(left).next).size;
    const int32_t id = find(vocabulary, text.substr(symbol(left).begin, size));
    if (id >= 0) candidates.push({scores_[static_cast<size_t>(id)], left, size});
  };
  for (size_t i = 0; i < symbols.size(); ++i) propose(static_cast<int32_t>(i));
  while (!candidates.empty()) {
    const Candidate c = candidates.top();
    candidates.pop();
    Symbol& left = symbol(c.left);
    if (left.size == 0 || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    if (left.size + right.size != c.size) continue;
    left.size = c.size;
    right.size = 0;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = c.left;
    propose(c.left);
    propose(left.previous);
  }

  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbol(i).next) {
    const std::string_view piece = text.substr(symbol(i).begin, symbol(i).size);
    if (const int32_t id = find(vocabulary, piece); id >= 0) {
      out->push_back(id);
      continue;
    }
    for (char byte : piece) {
      const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
      out->push_back(id >= 0 ? id : unk_id_);
    }
  }
}

}  // namespace reprise::text
