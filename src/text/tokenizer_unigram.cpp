#include "text/tokenizer_unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/utf8.h"

namespace reprise::text {
namespace {

constexpr double kUnknownPenalty = 10;  // below the worst token

// The best way to the place behind a token.
struct Arrival {
  double score = 0;
  int32_t id = -1;  // of the token; -1: no way leads here yet
  size_t begin = 0;

  void offer(double other, int32_t token, size_t from) {
    if (id >= 0 && other <= score) return;
    *this = {other, token, from};
  }
};

}  // namespace

Result<UnigramModel> UnigramModel::create(const Vocabulary& vocabulary, std::vector<double> scores, int32_t unk_id,
                                          bool byte_fallback, std::vector<uint8_t> pieces) {
  if (!vocabulary.has(unk_id)) return invalid("unk_id {} is not the id of one of {} tokens", unk_id, scores.size());
  UnigramModel model;
  double worst = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < scores.size(); ++id) {
    if (!std::isfinite(scores[id])) return invalid("vocab[{}]: the score is not a finite number", id);
    if (!pieces.empty() && pieces[id] == 0) continue;
    worst = std::min(worst, scores[id]);
    model.longest_ = std::max(model.longest_, vocabulary.token(static_cast<int32_t>(id)).size());
  }
  if (!std::isfinite(worst)) return invalid("text becomes none of {} tokens", scores.size());
  model.scores_ = std::move(scores);
  model.pieces_ = std::move(pieces);
  model.unknown_score_ = worst - kUnknownPenalty;
  model.unk_id_ = unk_id;
  for (int byte = 0; byte_fallback && byte < 256; ++byte)
    model.byte_ids_.push_back(vocabulary.find(fmt::format("<0x{:02X}>", byte)));
  return model;
}

int32_t UnigramModel::find(const Vocabulary& vocabulary, std::string_view piece) const {
  const int32_t id = vocabulary.find(piece);
  return id < 0 || pieces_.empty() || pieces_[static_cast<size_t>(id)] != 0 ? id : -1;
}

void UnigramModel::encode(const Vocabulary& vocabulary, std::string_view word, std::vector<int32_t>* out) const {
  std::vector<Arrival> best(word.size() + 1);  // by byte
  for (size_t at = 0; at < word.size();) {
    const double here = best[at].score;
    const size_t one = at + code_point_at(word, at).size;
    bool known = false;  // the character by itself
    for (size_t end = one; end - at <= longest_; end += code_point_at(word, end).size) {
      const int32_t id = find(vocabulary, word.substr(at, end - at));
      if (id >= 0) best[end].offer(scores_[static_cast<size_t>(id)] + here, id, at);
      known |= id >= 0 && end == one;
      if (end == word.size()) break;
    }
    if (!known) best[one].offer(unknown_score_ + here, unk_id_, at);
    at = one;
  }

  std::vector<std::string_view> pieces;  // the last one first
  bool joins = false;                    // the piece before was unknown, and so grows
  for (size_t end = word.size(); end > 0; end = best[end].begin) {
    const bool unknown = best[end].id == unk_id_;
    const size_t begin = best[end].begin;
    if (unknown && joins)
      pieces.back() = word.substr(begin, end - begin + pieces.back().size());
    else
      pieces.push_back(word.substr(begin, end - begin));
    joins = unknown;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) append_piece(vocabulary, *piece, out);
}

void UnigramModel::append_piece(const Vocabulary& vocabulary, std::string_view piece, std::vector<int32_t>* out) const {
  if (const int32_t id = find(vocabulary, piece); id >= 0) {
    out->push_back(id);
    return;
  }
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (byte_ids_.empty() || std::any_of(piece.begin(), piece.end(), [&](char byte) { return id_of(byte) < 0; })) {
    out->push_back(unk_id_);
    return;
  }
  for (const char byte : piece) out->push_back(id_of(byte));
}

}  // namespace reprise::text
