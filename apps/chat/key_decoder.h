// KeyDecoder: the bytes that a terminal sends, as characters. UTF-8 becomes code points. The forms that terminals have
// for one key become the one that LineEditor binds; the sequences of all other keys vanish, and so does broken UTF-8,
// so that nothing of them ends up in a message. One thread at a time.
#pragma once

#include <deque>
#include <optional>
#include <string>

namespace reprise::apps {

class KeyDecoder {
 public:
  void push(char byte);
  std::optional<wchar_t> pop();

 private:
  void push_escape(char byte);
  void end_sequence(char last);
  void emit(const std::wstring& keys) { ready_.insert(ready_.end(), keys.begin(), keys.end()); }

  std::string pending_;  // of a sequence or a character that is not complete
  std::deque<wchar_t> ready_;
};

}  // namespace reprise::apps
