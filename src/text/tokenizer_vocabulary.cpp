#include "text/tokenizer_vocabulary.h"

#include <bit>
#include <functional>

namespace reprise::text {

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  spans_.reserve(tokens);
  bytes_.reserve(bytes);
  grow(std::bit_ceil(tokens * 2 + 16));
}

size_t Vocabulary::slot_of(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>{}(token)&mask;
  while (slots_[slot] >= 0 && this->token(slots_[slot]) != token) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow(size_t slots) {
  if (slots <= slots_.size()) return;
  const std::vector<int32_t> old = std::move(slots_);
  slots_.assign(slots, -1);
  for (int32_t id : old) {
    if (id >= 0) slots_[slot_of(token(id))] = id;
  }
}

Status Vocabulary::add(std::string_view token, int64_t id) {
  if (id < 0 || id > kMaxId) return invalid("token \"{}\" has id {}; ids lie between 0 and {}", token, id, kMaxId);
  if (has(id)) return invalid("tokens \"{}\" and \"{}\" share id {}", this->token(static_cast<int32_t>(id)), token, id);
  if (bytes_.size() + token.size() >= kNone) return invalid("the vocabulary has more than {} bytes", kNone);
  if (static_cast<size_t>(id) >= spans_.size()) spans_.resize(static_cast<size_t>(id) + 1);
  spans_[static_cast<size_t>(id)] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(token.size())};
  bytes_ += token;
  if ((used_ + 1) * 2 > slots_.size()) grow(std::bit_ceil(slots_.size() * 2 + 16));
  const size_t slot = slot_of(token);
  if (slots_[slot] < 0) {
    slots_[slot] = static_cast<int32_t>(id);
    ++used_;
  }
  return Status::ok();
}

int32_t Vocabulary::find(std::string_view token) const { return slots_.empty() ? -1 : slots_[slot_of(token)]; }

std::string_view Vocabulary::token(int32_t id) const {
  const Span s = spans_[static_cast<size_t>(id)];
  return std::string_view(bytes_).substr(s.offset, s.size);
}

}  // namespace reprise::text
