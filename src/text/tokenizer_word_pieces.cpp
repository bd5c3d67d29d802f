#include "text/tokenizer_word_pieces.h"

#include <algorithm>

#include "text/utf8.h"

namespace reprise::text {

WordPieceModel::WordPieceModel(WordPieceOptions options, const Vocabulary& vocabulary) : options_(std::move(options)) {
  for (int32_t id = 0; id < vocabulary.size(); ++id)
    if (vocabulary.has(id)) longest_ = std::max(longest_, vocabulary.token(id).size());
}

void WordPieceModel::encode(const Vocabulary& vocabulary, std::string_view word, std::vector<int32_t>* out) const {
  std::vector<size_t> ends;  // of the word's characters
  for (size_t at = 0; at < word.size();) ends.push_back(at += code_point_at(word, at).size);
  const size_t first = out->size();
  const auto unknown = [&] {
    out->resize(first);
    out->push_back(options_.unk_id);
  };
  if (static_cast<int64_t>(ends.size()) > options_.max_characters) return unknown();
  std::string piece;
  size_t begin = 0;
  for (size_t c = 0; c < ends.size();) {
    piece.assign(begin > 0 ? options_.prefix : "");
    const size_t before = piece.size();
    piece += word.substr(begin, longest_);
    size_t end = ends.size();
    int32_t id = -1;
    for (; end > c && id < 0; --end) {
      const size_t bytes = ends[end - 1] - begin;
      if (bytes > longest_) continue;
      id = vocabulary.find(std::string_view(piece).substr(0, before + bytes));
    }
    if (id < 0) return unknown();
    out->push_back(id);
    c = end + 1;
    begin = ends[end];
  }
}

}  // namespace reprise::text
