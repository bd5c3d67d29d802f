#include "server/answer_splitter.h"

#include <algorithm>

#include "server/ids.h"

namespace reprise::server {
namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";
constexpr std::string_view kBlank = " \t\r\n", kPython = "<|python_start|>";

// Length of the longest end of `text` that begins `mark`.
size_t begun(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(mark.size() - 1, text.size()); n > 0; --n)
    if (text.ends_with(mark.substr(0, n))) return n;
  return 0;
}

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The first semicolon from `begin` on that is not in a string; the text's end when there is none.
size_t end_of_json(std::string_view text, size_t begin) {
  bool in_string = false;
  for (size_t i = begin; i < text.size(); ++i) {
    if (in_string && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      in_string = !in_string;
    else if (text[i] == ';' && !in_string)
      return i;
  }
  return text.size();
}

}  // namespace

AnswerSplitter::AnswerSplitter(SplitOptions options)
    : options_(std::move(options)), marks_(call_marks(options_.tools)) {
  if (options_.harmony) harmony_.emplace(options_.reasoning);
  trim_ = options_.reasoning || options_.tools != ToolFormat::None;
  if (options_.begins_in_thought && options_.reasoning) {
    place_ = Place::Thought;
    trim_ = may_open_ = true;
  } else if (options_.tools == ToolFormat::List || options_.tools == ToolFormat::Arguments) {
    place_ = Place::Whole;
  }
}

void AnswerSplitter::say(std::string_view text, SplitText& out) {
  if (trim_) {
    const size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return;
    text.remove_prefix(first);
    trim_ = false;
  }
  if (without_blanks(text).size() > 0) may_think_ = false;
  out.content += text;
}

void AnswerSplitter::think(std::string_view text, SplitText& out) {
  if (trim_) {
    const size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return;
    text.remove_prefix(first);
    trim_ = false;
  }
  const size_t last = text.find_last_not_of(kBlank);
  if (last == std::string_view::npos) {
    blank_ += text;
    return;
  }
  out.reasoning += blank_;
  out.reasoning += text.substr(0, last + 1);
  blank_ = text.substr(last + 1);
}

bool AnswerSplitter::call(std::string_view text, SplitText& out) {
  const auto json = parse_ordered_json(without_blanks(text), "a tool call");
  if (!json || !json->is_object() || !json->contains("name") || !(*json)["name"].is_string()) return false;
  const char* key = json->contains("arguments") ? "arguments" : "parameters";
  ToolCall c;
  c.id = make_id("call_");
  c.name = (*json)["name"].get<std::string>();
  const OrderedJson arguments = json->contains(key) ? (*json)[key] : OrderedJson::object();
  c.arguments = arguments.is_string() ? arguments.get<std::string>() : arguments.dump();
  out.calls.push_back(std::move(c));
  called_ = true;
  return true;
}

bool AnswerSplitter::call_dialect(std::string_view text, SplitText& out) {
  static const OrderedJson none;
  auto calls = read_dialect(options_.tools, text, options_.list ? *options_.list : none);
  if (!calls) return false;
  for (NamedCall& c : *calls) out.calls.push_back({make_id("call_"), std::move(c.name), std::move(c.arguments)});
  return called_ = true;
}

// What stood between the marks.
bool AnswerSplitter::call_marked(std::string_view text, SplitText& out) {
  return options_.tools == ToolFormat::Hermes ? call(text, out) : call_dialect(text, out);
}

bool AnswerSplitter::call_whole(SplitText& out) {
  const std::string_view text = without_blanks(held_);
  if (options_.tools == ToolFormat::Arguments) {
    if (!parse_json(text, "arguments")) return false;
    out.calls.push_back({make_id("call_"), options_.tool, std::string(text)});
    called_ = true;
    return true;
  }
  if (options_.tools == ToolFormat::List) {
    const auto json = parse_ordered_json(text, "tool calls");
    if (!json || !json->is_array() || json->empty()) return false;
    bool all = true;
    for (const OrderedJson& e : *json) all &= call(e.dump(), out);
    return all;
  }
  if (options_.tools == ToolFormat::Pythonic) return call_dialect(text, out);
  // Llama's: objects between semicolons; a semicolon may also be in a text.
  SplitText found;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = end_of_json(text, begin);
    if (!call(text.substr(begin, end - begin), found)) return called_ = false;
    begin = end + 1;
  }
  if (found.calls.empty()) return false;
  for (ToolCall& c : found.calls) out.calls.push_back(std::move(c));
  return true;
}

void AnswerSplitter::walk(SplitText& out) {
  bool goes_on = true;
  while (goes_on) switch (place_) {
      case Place::Whole: return;
      case Place::Call: goes_on = walk_call(out); break;
      case Place::Thought: goes_on = walk_thought(out); break;
      case Place::Content: goes_on = walk_content(out); break;
    }
}

bool AnswerSplitter::walk_call(SplitText& out) {
  const std::string_view text = held_;
  const size_t end = marks_.end.empty() ? std::string_view::npos : text.find(marks_.end);
  if (end == std::string_view::npos) return false;
  if (call_marked(text.substr(0, end), out))
    trim_ = true;
  else
    say(std::string(marks_.begin) + std::string(text.substr(0, end)) + std::string(marks_.end), out);
  held_.erase(0, end + marks_.end.size());
  place_ = Place::Content;
  return true;
}

bool AnswerSplitter::walk_thought(SplitText& out) {
  const std::string_view text = held_;
  if (may_open_) {
    const size_t first = text.find_first_not_of(kBlank);
    const std::string_view head = first == std::string_view::npos ? std::string_view() : text.substr(first);
    if (head.size() < kThink.size() && kThink.starts_with(head)) return false;
    may_open_ = false;
    if (head.starts_with(kThink)) {
      held_.erase(0, first + kThink.size());
      return true;
    }
  }
  const size_t end = text.find(kThinkEnd);
  const size_t sure = end != std::string_view::npos ? end : text.size() - begun(text, kThinkEnd);
  think(text.substr(0, sure), out);
  if (end == std::string_view::npos) {
    held_.erase(0, sure);
    return false;
  }
  held_.erase(0, end + kThinkEnd.size());
  blank_.clear();
  trim_ = true;
  may_think_ = false;
  place_ =
      options_.tools == ToolFormat::List || options_.tools == ToolFormat::Arguments ? Place::Whole : Place::Content;
  return true;
}

// An object at its very beginning may be a call in Llama's way, a list one in Python's. False: more is needed.
bool AnswerSplitter::knows_beginning(std::string_view text) {
  if ((options_.tools != ToolFormat::Llama && options_.tools != ToolFormat::Pythonic) || !may_think_) return true;
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return false;
  const std::string_view head = text.substr(first);
  const bool python = options_.tools == ToolFormat::Pythonic;
  if (python && head.size() < kPython.size() && kPython.starts_with(head)) return false;
  if (python ? head[0] == '[' || head.starts_with(kPython) : head[0] == '{') place_ = Place::Whole;
  return true;
}

bool AnswerSplitter::walk_content(SplitText& out) {
  const std::string_view text = held_;
  if (!knows_beginning(text)) return false;
  if (place_ == Place::Whole) return true;
  if (options_.calls_alone && !called_) {
    const size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return false;
    const std::string_view head = text.substr(first);
    if (head.size() < marks_.begin.size() && marks_.begin.starts_with(head)) return false;
    if (!head.starts_with(marks_.begin)) marks_ = {};
    options_.calls_alone = false;
  }
  size_t at = std::string_view::npos, keep = 0;
  std::string_view mark;
  const auto look = [&](std::string_view m, bool on) {
    if (!on) return;
    if (const size_t found = text.find(m); found < at) {
      at = found;
      mark = m;
    }
    keep = std::max(keep, begun(text, m));
  };
  // Only what comes first is a thought.
  const bool blank_so_far =
      may_think_ && text.substr(0, text.find(kThink)).find_first_not_of(kBlank) == std::string_view::npos;
  look(kThink, options_.reasoning && may_think_ && (blank_so_far || text.find(kThink) == std::string_view::npos));
  look(marks_.begin, !marks_.begin.empty());
  if (at == std::string_view::npos) {
    const std::string sure(text.substr(0, text.size() - keep));
    held_.erase(0, sure.size());
    say(sure, out);
    return false;
  }
  const std::string sure(text.substr(0, at));
  const bool thought = mark == kThink;
  held_.erase(0, at + mark.size());
  if (!thought) say(sure, out);
  place_ = thought ? Place::Thought : Place::Call;
  trim_ = thought || trim_;
  return true;
}

SplitText AnswerSplitter::push(std::string_view piece) {
  SplitText out;
  if (harmony_) {
    harmony_->push(piece, out);
    return out;
  }
  held_ += piece;
  walk(out);
  return out;
}

SplitText AnswerSplitter::finish() {
  SplitText out;
  if (harmony_) {
    harmony_->finish(out);
    return out;
  }
  if (place_ == Place::Whole) {
    if (!call_whole(out)) {
      out.calls.clear();
      say(held_, out);
    }
  } else if (place_ == Place::Thought) {
    think(held_, out);
  } else if (place_ == Place::Call) {
    // A call without an end mark goes on to the end of the answer; of others nothing is sure.
    if (!marks_.end.empty() || !call_marked(held_, out)) say(std::string(marks_.begin) + held_, out);
  } else {
    say(held_, out);
  }
  held_.clear();
  return out;
}

}  // namespace reprise::server
