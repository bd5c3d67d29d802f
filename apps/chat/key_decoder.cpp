#include "chat/key_decoder.h"

#include "text/utf8.h"

namespace reprise::apps {
namespace {

constexpr char kEscape = '\033';
constexpr size_t kLongestSequence = 32;

size_t utf8_size(unsigned char lead) { return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4; }

}  // namespace

std::optional<wchar_t> KeyDecoder::pop() {
  if (ready_.empty()) return std::nullopt;
  const wchar_t key = ready_.front();
  ready_.pop_front();
  return key;
}

void KeyDecoder::push(char byte) {
  const auto b = static_cast<unsigned char>(byte);
  if (!pending_.empty() && pending_[0] == kEscape) return push_escape(byte);
  if (!pending_.empty() && (b & 0xc0) != 0x80) pending_.clear();  // the character before was broken off
  if (byte == kEscape) {
    pending_ = byte;
    return;
  }
  if (b < 0x80) {
    ready_.push_back(b);
    return;
  }
  pending_ += byte;
  const auto lead = static_cast<unsigned char>(pending_[0]);
  if (lead < 0xc2 || lead > 0xf4) return pending_.clear();
  if (pending_.size() < utf8_size(lead)) return;
  if (text::is_valid_utf8(pending_)) ready_.push_back(static_cast<wchar_t>(text::code_point_at(pending_, 0).value));
  pending_.clear();
}

void KeyDecoder::push_escape(char byte) {
  const auto b = static_cast<unsigned char>(byte);
  if (pending_.size() == 1) {
    if (byte == '[' || byte == 'O') {
      pending_ += byte;
      return;
    }
    if (byte == kEscape) return;  // of rxvt's Alt with an arrow
    pending_.clear();
    if (b < 0x80)
      emit({L'\033', static_cast<wchar_t>(b)});
    else
      push(byte);  // there is nothing to do for Alt with such a letter
    return;
  }
  const bool linux_function_key = pending_ == "\033[[";
  if (pending_.size() == 2 && pending_[1] == '[' && byte == '[') {
    pending_ += byte;
  } else if (linux_function_key) {
    pending_.clear();
  } else if (b >= 0x20 && b < 0x40 && pending_.size() < kLongestSequence) {
    pending_ += byte;
  } else if (b >= 0x40 && b < 0x7f) {
    end_sequence(byte);
    pending_.clear();
  } else {
    pending_.clear();
    push(byte);
  }
}

// pending_ is ESC [ or ESC O and the parameters.
void KeyDecoder::end_sequence(char last) {
  const std::string parameters = pending_.substr(2);
  const bool modified = parameters.find(';') != std::string::npos && !parameters.ends_with(";2");  // Shift alone is not
  const std::string key = parameters.substr(0, parameters.find(';'));
  const auto plain = [&](char c) { emit({L'\033', L'[', static_cast<wchar_t>(c)}); };
  switch (last) {
    case 'A':
    case 'B':
    case 'H':
    case 'F': return plain(last);
    case 'C': return modified || pending_ == "\033O5" ? emit(L"\033f") : plain(last);
    case 'D': return modified || pending_ == "\033O5" ? emit(L"\033b") : plain(last);
    case 'M':  // Enter of the keypad
      if (pending_ == "\033O") emit(L"\r");
      return;
    case 'u':  // of terminals that tell Shift-Enter and Ctrl-Enter from Enter
      if (key == "13") emit(parameters.find(';') == std::string::npos ? L"\r" : L"\033\r");
      return;
    case '~': break;
    default: return;
  }
  if (key == "1" || key == "7") return plain('H');
  if (key == "4" || key == "8") return plain('F');
  if (key == "3") return modified ? emit(L"\033d") : emit(L"\033[3~");
  if (key == "200") return emit(L"\033[200~");
  if (key == "201") return emit(L"\033[201~");
  if (key == "27" && parameters.ends_with(";13")) return emit(L"\033\r");
}

}  // namespace reprise::apps
