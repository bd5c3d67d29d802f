#include "server/harmony_reader.h"

#include <algorithm>

#include "base/json.h"
#include "server/ids.h"

namespace reprise::server {
namespace {

constexpr std::string_view kStartMark = "<|start|>", kChannelMark = "<|channel|>", kMessageMark = "<|message|>",
                           kConstrainMark = "<|constrain|>", kEndMark = "<|end|>", kReturnMark = "<|return|>",
                           kCallMark = "<|call|>", kRecipientMark = "to=", kHarmonyBlanks = " \t\r\n";
// What a header may begin with behind "<|start|>assistant", which the prompt ends with.
constexpr std::string_view kHeaderOpenings[] = {kStartMark, kChannelMark, kMessageMark, kConstrainMark, kRecipientMark};
// What ends a message; a new one may begin without an end.
constexpr std::string_view kMessageEndings[] = {kEndMark, kReturnMark, kCallMark, kStartMark, kChannelMark};
constexpr std::string_view kHeaderEndings[] = {kMessageMark, kEndMark, kReturnMark, kCallMark, kStartMark};

// The first of the marks in the text, and how much of the text is certainly before any of them.
struct FoundMark {
  size_t at = std::string_view::npos, sure = 0;
  std::string_view mark;
};
template <size_t kCount>
FoundMark first_mark(std::string_view text, const std::string_view (&marks)[kCount]) {
  FoundMark out;
  size_t keep = 0;
  for (const std::string_view mark : marks) {
    if (const size_t at = text.find(mark); at < out.at) out.at = at, out.mark = mark;
    for (size_t n = std::min(mark.size() - 1, text.size()); n > keep; --n)
      if (text.ends_with(mark.substr(0, n))) keep = n;
  }
  out.sure = out.at == std::string_view::npos ? text.size() - keep : out.at;
  return out;
}

// The word behind a mark: up to a blank or the next mark.
std::string_view word_behind(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + mark.size());
  return rest.substr(0, std::min(rest.find("<|"), rest.find_first_of(kHarmonyBlanks)));
}

}  // namespace

bool shows_harmony(std::string_view chat_template) {
  return chat_template.find(kChannelMark) != std::string_view::npos &&
         chat_template.find(kStartMark) != std::string_view::npos;
}

void HarmonyReader::begin(Kind kind) {
  kind_ = kind;
  place_ = Place::Body;
  fresh_ = true;
  body_.clear();
}

void HarmonyReader::add(std::string_view text, SplitText& out) {
  if (text.empty()) return;
  if (kind_ == Kind::Call) {
    body_ += text;
    return;
  }
  const bool thought = kind_ == Kind::Thought && reasoning_;
  std::string& to = thought ? out.reasoning : out.content;
  bool& before = thought ? thought_ : said_;
  if (fresh_ && before) to += '\n';
  to += text;
  before = true;
  fresh_ = false;
}

void HarmonyReader::end(SplitText& out) {
  if (kind_ != Kind::Call) return;
  const size_t first = body_.find_first_not_of(kHarmonyBlanks);
  const std::string text =
      first == std::string::npos ? "{}" : body_.substr(first, body_.find_last_not_of(kHarmonyBlanks) - first + 1);
  const auto json = parse_ordered_json(text, "a tool call");
  if (json && json->is_object()) {
    out.calls.push_back({make_id("call_"), function_, text});
    called_ = true;
    return;
  }
  kind_ = Kind::Said;
  add(header_ + body_, out);
}

bool HarmonyReader::walk_between() {
  const size_t first = held_.find_first_not_of(kHarmonyBlanks);
  if (first == std::string::npos) return false;
  const std::string_view text = std::string_view(held_).substr(first);
  for (const std::string_view opening : kHeaderOpenings) {
    if (text.size() < opening.size() && opening.starts_with(text)) return false;
    if (!text.starts_with(opening)) continue;
    held_.erase(0, first + (opening == kStartMark ? kStartMark.size() : 0));
    place_ = Place::Header;
    return true;
  }
  begin(Kind::Said);
  return true;
}

bool HarmonyReader::walk_header(SplitText& out) {
  const FoundMark found = first_mark(held_, kHeaderEndings);
  if (found.at == std::string_view::npos) return false;
  header_ = held_.substr(0, found.at);
  held_.erase(0, found.at);
  if (found.mark != kMessageMark) {
    begin(Kind::Said);
    add(header_, out);
    return true;
  }
  header_ += kMessageMark;
  held_.erase(0, kMessageMark.size());
  constexpr std::string_view kFunctions = "functions.";
  const std::string_view to = word_behind(header_, kRecipientMark), channel = word_behind(header_, kChannelMark);
  if (to.size() > kFunctions.size() && to.starts_with(kFunctions)) {
    function_ = to.substr(kFunctions.size());
    begin(Kind::Call);
  } else {
    // What goes to a tool of the model's own, as its browser, is no word to the user.
    begin(channel == "analysis" || !to.empty() ? Kind::Thought : Kind::Said);
  }
  return true;
}

bool HarmonyReader::walk_body(SplitText& out) {
  const FoundMark found = first_mark(held_, kMessageEndings);
  add(std::string_view(held_).substr(0, found.sure), out);
  held_.erase(0, found.sure);
  if (found.at == std::string_view::npos) return false;
  end(out);
  if (found.mark != kStartMark && found.mark != kChannelMark) held_.erase(0, found.mark.size());
  place_ = Place::Between;
  return true;
}

bool HarmonyReader::walk(SplitText& out) {
  switch (place_) {
    case Place::Between: return walk_between();
    case Place::Header: return walk_header(out);
    case Place::Body: return walk_body(out);
  }
  return false;
}

void HarmonyReader::push(std::string_view piece, SplitText& out) {
  held_ += piece;
  while (walk(out)) {
  }
}

void HarmonyReader::finish(SplitText& out) {
  if (place_ == Place::Body) {
    add(held_, out);
    end(out);
  } else if (held_.find_first_not_of(kHarmonyBlanks) != std::string::npos) {
    begin(Kind::Said);
    add(held_, out);
  }
  held_.clear();
}

}  // namespace reprise::server
