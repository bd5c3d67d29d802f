#include "spec/answer_store.h"

namespace reprise::spec {

void AnswerStore::add(std::string_view salt, std::span<const int32_t> answer) {
  const auto size = static_cast<int64_t>(answer.size()) + 1;
  if (size <= window_ || size > most_tokens_ || most_answers_ < 1) return;
  while (answers() >= most_answers_ || tokens_ + size > most_tokens_) drop_oldest();
  auto shelf = shelves_.find(salt);
  if (shelf == shelves_.end()) shelf = shelves_.emplace(std::string(salt), Shelf(window_)).first;
  Shelf& s = shelf->second;
  s.text.insert(s.text.end(), answer.begin(), answer.end());
  s.text.push_back(kBorder);
  s.index.extend(s.text);
  tokens_ += size;
  order_.push_back({shelf, size});
}

void AnswerStore::drop_oldest() {
  const Kept oldest = order_.front();
  order_.pop_front();
  tokens_ -= oldest.size;
  Shelf& s = oldest.shelf->second;
  s.first += oldest.size;
  const auto size = static_cast<int64_t>(s.text.size());
  if (s.first == size) {
    shelves_.erase(oldest.shelf);
  } else if (s.first > size / 2) {
    // Each token is moved once on average.
    s.text.erase(s.text.begin(), s.text.begin() + s.first);
    s.first = 0;
    s.index.clear();
    s.index.extend(s.text);
  }
}

}  // namespace reprise::spec
