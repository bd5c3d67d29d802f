#include "text/tokenizer_bpe.h"

#include <algorithm>
#include <bit>

#include "text/utf8.h"

namespace reprise::text {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr char32_t kSmall = 0x200;
// Up to here one scan for the lowest rank is cheaper than a heap.
constexpr size_t kShortWord = 48;

}  // namespace

void BpeModel::reserve(size_t merges) { grow(std::bit_ceil(merges * 2 + 16)); }

size_t BpeModel::slot_of(uint64_t pair) const {
  const size_t mask = merges_.size() - 1;
  size_t slot = (pair * 0x9E3779B97F4A7C15u >> 20) & mask;
  while (merges_[slot].pair != pair && merges_[slot].pair != UINT64_MAX) slot = (slot + 1) & mask;
  return slot;
}

void BpeModel::grow(size_t slots) {
  if (slots <= merges_.size()) return;
  const std::vector<Merge> old = std::move(merges_);
  merges_.assign(slots, Merge{});
  for (const Merge& m : old) {
    if (m.pair != UINT64_MAX) merges_[slot_of(m.pair)] = m;
  }
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const Merge& m = merges_[slot_of(pair_of(left, right))];
  return m.pair == UINT64_MAX ? nullptr : &m;
}

Status BpeModel::add_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right, uint32_t rank) {
  const int32_t left_id = vocabulary.find(left);
  const int32_t right_id = vocabulary.find(right);
  if (left_id < 0 || right_id < 0)
    return invalid("merges \"{}\" and \"{}\", but \"{}\" is not in the vocabulary", left, right,
                   left_id < 0 ? left : right);
  const std::string& prefix = options_.subword_prefix;
  merged_ = left;
  merged_ += right.starts_with(prefix) ? right.substr(prefix.size()) : right;
  const int32_t made = vocabulary.find(merged_);
  if (made < 0) return invalid("merges \"{}\" and \"{}\", but \"{}\" is not in the vocabulary", left, right, merged_);
  if ((used_ + 1) * 2 > merges_.size()) grow(std::bit_ceil(merges_.size() * 2 + 16));
  Merge& m = merges_[slot_of(pair_of(left_id, right_id))];
  if (m.pair == UINT64_MAX) ++used_;
  m = {pair_of(left_id, right_id), rank, made};
  return Status::ok();
}

void BpeModel::finish(const Vocabulary& vocabulary) {
  if (merges_.empty()) grow(16);
  unk_id_ = options_.unk_token.empty() ? -1 : vocabulary.find(options_.unk_token);
  small_.assign(kSmall, -1);
  std::string one;
  for (char32_t c = 0; c < kSmall; ++c) {
    one.clear();
    append_utf8(c, &one);
    small_[c] = vocabulary.find(one);
  }
  if (!options_.byte_fallback) return;
  for (int byte = 0; byte < 256; ++byte) byte_ids_.push_back(vocabulary.find(fmt::format("<0x{:02X}>", byte)));
}

// The ids of the word's characters.
Status BpeModel::start(const Vocabulary& vocabulary, std::string_view word, BpeScratch* scratch) const {
  std::vector<int32_t>& ids = scratch->ids;
  ids.clear();
  const bool plain = options_.subword_prefix.empty() && options_.word_suffix.empty();
  bool unknown_pending = false;
  for (size_t at = 0; at < word.size();) {
    const CodePoint c = code_point_at(word, at);
    const std::string_view character = word.substr(at, c.size);
    std::string_view token = character;
    if (!plain) {
      scratch->buffer.clear();
      if (at > 0) scratch->buffer += options_.subword_prefix;
      scratch->buffer += character;
      if (at + c.size == word.size()) scratch->buffer += options_.word_suffix;
      token = scratch->buffer;
    }
    at += c.size;
    const int32_t id = plain && c.value < kSmall ? small_[c.value] : vocabulary.find(token);
    if (id >= 0) {
      if (unknown_pending) ids.push_back(unk_id_);
      unknown_pending = false;
      ids.push_back(id);
      continue;
    }
    if (options_.byte_fallback) {
      const auto byte_id = [&](char b) { return byte_ids_[static_cast<unsigned char>(b)]; };
      if (std::all_of(token.begin(), token.end(), [&](char b) { return byte_id(b) >= 0; })) {
        for (char b : token) ids.push_back(byte_id(b));
        continue;
      }
    }
    if (options_.unk_token.empty()) continue;
    if (unk_id_ < 0)
      return invalid("\"{}\" is not in the vocabulary, and neither is the unknown token \"{}\"", character,
                     options_.unk_token);
    if (unknown_pending && !options_.fuse_unk) ids.push_back(unk_id_);
    unknown_pending = true;
  }
  if (unknown_pending) ids.push_back(unk_id_);
  return Status::ok();
}

void BpeModel::merge_short(BpeScratch* scratch) const {
  std::vector<int32_t>& ids = scratch->ids;
  std::vector<uint32_t>& ranks = scratch->ranks;  // of the merge of i and i + 1
  std::vector<int32_t>& made = scratch->made;
  size_t size = ids.size();
  ranks.assign(size, kNoRank);
  made.assign(size, -1);
  const auto look_up = [&](size_t i) {
    const Merge* m = find_merge(ids[i], ids[i + 1]);
    ranks[i] = m ? m->rank : kNoRank;
    made[i] = m ? m->made : -1;
  };
  for (size_t i = 0; i + 1 < size; ++i) look_up(i);
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (made[best] < 0) break;
    ids[best] = made[best];
    for (size_t i = best + 1; i + 1 < size; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      made[i] = made[i + 1];
    }
    --size;
    if (best + 1 < size) {
      look_up(best);
    } else {
      ranks[best] = kNoRank;
      made[best] = -1;
    }
    if (best > 0) look_up(best - 1);
  }
  ids.resize(size);
}

void BpeModel::merge_long(BpeScratch* scratch) const {
  using Candidate = BpeScratch::Candidate;
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  std::vector<int32_t>& ids = scratch->ids;
  std::vector<BpeScratch::Symbol>& symbols = scratch->symbols;
  std::vector<Candidate>& heap = scratch->heap;
  const auto count = static_cast<int32_t>(ids.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i)
    symbols.push_back({ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  const auto symbol = [&](int32_t i) -> BpeScratch::Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto propose = [&](int32_t left) {
    if (left < 0 || symbol(left).next < 0) return false;
    const Merge* m = find_merge(symbol(left).id, symbol(symbol(left).next).id);
    if (m) heap.push_back({m->rank, left, m->made});
    return m != nullptr;
  };
  for (int32_t i = 0; i < count; ++i) propose(i);
  std::make_heap(heap.begin(), heap.end(), worse);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Candidate c = heap.back();
    heap.pop_back();
    BpeScratch::Symbol& left = symbol(c.left);
    if (left.id < 0 || left.next < 0) continue;
    // Either neighbour may have changed since this was proposed.
    const Merge* m = find_merge(left.id, symbol(left.next).id);
    if (m == nullptr || m->made != c.made || m->rank != c.rank) continue;
    BpeScratch::Symbol& right = symbol(left.next);
    left.id = c.made;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = c.left;
    if (propose(c.left)) std::push_heap(heap.begin(), heap.end(), worse);
    if (propose(left.previous)) std::push_heap(heap.begin(), heap.end(), worse);
  }
  ids.clear();
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = symbol(i).next) ids.push_back(symbol(i).id);
}

Status BpeModel::encode(const Vocabulary& vocabulary, std::string_view word, BpeScratch* scratch,
                        std::vector<int32_t>* out) const {
  if (word.empty()) return Status::ok();
  if (options_.ignore_merges) {
    if (const int32_t id = vocabulary.find(word); id >= 0) {
      out->push_back(id);
      return Status::ok();
    }
  }
  RETURN_IF_ERROR(start(vocabulary, word, scratch));
  if (scratch->ids.size() > kShortWord) {
    merge_long(scratch);
  } else if (scratch->ids.size() > 1) {
    merge_short(scratch);
  }
  out->insert(out->end(), scratch->ids.begin(), scratch->ids.end());
  return Status::ok();
}

}  // namespace reprise::text
