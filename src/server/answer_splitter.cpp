#include "server/answer_splitter.h"

#include <algorithm>

#include "server/dialect_readers.h"
#include "server/ids.h"

namespace reprise::server {
namespace {

constexpr std::string_view kBlank = kCallBlanks, kPython = "<|python_start|>";

// Length of the longest end of `text` that begins `mark`.
size_t begun(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(mark.size() - 1, text.size()); n > 0; --n)
    if (text.ends_with(mark.substr(0, n))) return n;
  return 0;
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
    : options_(std::move(options)),
      all_marks_(call_marks(options_.tools)),
      in_answer_(options_.begins_in_answer && !options_.begins_in_thought) {
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
  if (without_blanks(text).size() > 0) may_think_ = may_answer_ = false;
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

std::string AnswerSplitter::name_of(const NamedCall& call) {
  if (!call.id.empty()) return call.id;
  if (options_.short_ids || options_.tools == ToolFormat::Mistral) return make_short_id();
  if (!options_.earlier_calls) return make_id("call_");
  return fmt::format("functions.{}:{}", call.name, (*options_.earlier_calls)++);
}

bool AnswerSplitter::call(std::string_view text, SplitText& out) {
  const auto json = parse_ordered_json(without_blanks(text), "a tool call");
  if (!json || !json->is_object() || !json->contains("name") || !(*json)["name"].is_string()) return false;
  const char* key = json->contains("arguments") ? "arguments" : "parameters";
  NamedCall c{(*json)["name"].get<std::string>(), {}};
  const OrderedJson arguments = json->contains(key) ? (*json)[key] : OrderedJson::object();
  c.arguments = arguments.is_string() ? arguments.get<std::string>() : arguments.dump();
  out.calls.push_back({name_of(c), std::move(c.name), std::move(c.arguments)});
  called_ = true;
  return true;
}

bool AnswerSplitter::call_dialect(std::string_view text, SplitText& out) {
  static const OrderedJson none;
  auto calls = read_dialect(options_.tools, text, options_.list ? *options_.list : none);
  if (!calls) return false;
  for (NamedCall& c : *calls) {
    std::string id = name_of(c);
    out.calls.push_back({std::move(id), std::move(c.name), std::move(c.arguments)});
  }
  return called_ = true;
}

// What stood between the marks. Hermes' marks have one call between them, those of Falcon3 a list.
bool AnswerSplitter::call_marked(std::string_view text, SplitText& out) {
  const bool one = options_.tools == ToolFormat::Hermes && !without_blanks(text).starts_with('[');
  return one ? call(text, out) : call_dialect(text, out);
}

bool AnswerSplitter::call_whole(SplitText& out) {
  const std::string_view text = without_blanks(held_);
  if (options_.tools == ToolFormat::Arguments) {
    if (!parse_json(text, "arguments")) return false;
    out.calls.push_back({name_of({options_.tool, {}}), options_.tool, std::string(text)});
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
    const std::string_view mark = options_.thought.begin;
    if (head.size() < mark.size() && mark.starts_with(head)) return false;
    may_open_ = false;
    if (head.starts_with(mark)) {
      held_.erase(0, first + mark.size());
      return true;
    }
  }
  const std::string_view mark = options_.thought.end;
  const size_t end = text.find(mark);
  const size_t sure = end != std::string_view::npos ? end : text.size() - begun(text, mark);
  think(text.substr(0, sure), out);
  if (end == std::string_view::npos) {
    held_.erase(0, sure);
    return false;
  }
  held_.erase(0, end + mark.size());
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

bool AnswerSplitter::knows_first() {
  const size_t first = held_.find_first_not_of(kBlank);
  if (first == std::string::npos) return false;
  const std::string_view head = std::string_view(held_).substr(first);
  bool begins = false;
  for (const CallMarks& m : all_marks_) {
    if (head.size() < m.begin.size() && m.begin.starts_with(head)) return false;
    begins |= head.starts_with(m.begin);
  }
  if (!begins) all_marks_ = {};
  options_.calls_alone = false;
  return true;
}

AnswerSplitter::Found AnswerSplitter::find_mark() const {
  const std::string_view text = held_;
  const ThoughtMarks& t = options_.thought;
  Found out;
  const auto look = [&](std::string_view mark, const CallMarks* call) {
    if (const size_t at = text.find(mark); at < out.at) {
      out.at = at;
      out.mark = mark;
      out.call = call;
    }
    out.keep = std::max(out.keep, begun(text, mark));
  };
  // Only what comes first is a thought, or the mark of what is said.
  const auto may_be_first = [&](std::string_view mark) {
    const size_t at = text.find(mark);
    return at == std::string_view::npos || without_blanks(text.substr(0, at)).empty();
  };
  const bool words = !t.answer.empty() && (options_.reasoning || t.special);
  if (options_.reasoning && may_think_ && may_be_first(t.begin)) look(t.begin, nullptr);
  if (words && !in_answer_ && may_answer_ && may_be_first(t.answer)) look(t.answer, nullptr);
  if (words && in_answer_) look(t.answer_end, nullptr);
  for (const CallMarks& m : all_marks_) look(m.begin, &m);
  return out;
}

bool AnswerSplitter::walk_content(SplitText& out) {
  if (!knows_beginning(held_)) return false;
  if (place_ == Place::Whole) return true;
  if (options_.calls_alone && !called_ && !knows_first()) return false;
  const ThoughtMarks& t = options_.thought;
  const Found found = find_mark();
  if (found.at == std::string_view::npos) {
    size_t sure = held_.size() - found.keep;
    // Blanks before the mark that ends the answer's words are no part of them.
    while (in_answer_ && sure > 0 && kBlank.find(held_[sure - 1]) != std::string_view::npos) --sure;
    const std::string text = held_.substr(0, sure);
    held_.erase(0, sure);
    say(text, out);
    return false;
  }
  std::string sure = held_.substr(0, found.at);
  held_.erase(0, found.at + found.mark.size());
  if (found.call) {
    say(sure, out);
    marks_ = *found.call;
    place_ = Place::Call;
  } else if (in_answer_ && found.mark == t.answer_end) {
    say(sure.substr(0, sure.find_last_not_of(kBlank) + 1), out);
    in_answer_ = false;
    trim_ = true;
  } else if (found.mark == t.answer) {
    in_answer_ = trim_ = true;
    may_think_ = may_answer_ = false;
  } else {
    place_ = Place::Thought;
    trim_ = true;
  }
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
