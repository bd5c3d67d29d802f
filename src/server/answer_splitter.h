// AnswerSplitter: takes the text of a chat answer apart while it arrives: what the model thought, the tools it calls,
// and what it says. Text that may be the beginning of a mark is held back, so the parts do not depend on how the text
// was cut into pieces. One answer, one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/harmony_reader.h"
#include "server/named_call.h"
#include "server/split_text.h"
#include "server/thought_marks.h"
#include "server/tool_dialects.h"

namespace reprise::server {

struct SplitOptions {
  bool reasoning = false;          // the marks of thoughts are marks
  bool begins_in_thought = false;  // the prompt ended with one, or the model always thinks first
  ToolFormat tools = ToolFormat::None;
  std::string tool = {};                         // of Arguments
  std::shared_ptr<const OrderedJson> list = {};  // the request's tools; null: none
  bool calls_alone = false;                      // an answer that does not begin with a call has none
  bool harmony = false;  // the answer is in messages of that format, and so are its thoughts and calls
  ThoughtMarks thought = {};
  bool begins_in_answer = false;  // the prompt ended with the mark of what is said
  // The calls are named as Kimi names them, functions.NAME:INDEX, and this many came before.
  std::optional<int64_t> earlier_calls = {};
  bool short_ids = false;  // the model's template takes no others (ids.h), in whatever form the call is
};

class AnswerSplitter {
 public:
  explicit AnswerSplitter(SplitOptions options);

  SplitText push(std::string_view piece);
  // The end of the answer. A call that is not complete, or not JSON, comes out as content.
  SplitText finish();
  bool called() const { return harmony_ ? harmony_->called() : called_; }
  bool thinking() const { return harmony_ ? harmony_->thinking() : place_ == Place::Thought; }

 private:
  enum class Place : uint8_t { Content, Thought, Call, Whole };

  void walk(SplitText& out);
  // From one place to the next; false: what is held says no more yet.
  bool walk_call(SplitText& out);
  bool walk_thought(SplitText& out);
  bool walk_content(SplitText& out);
  bool knows_beginning(std::string_view text);
  void say(std::string_view text, SplitText& out);
  void think(std::string_view text, SplitText& out);
  // The first of these marks in what is held.
  struct Found {
    size_t at = std::string_view::npos;
    std::string_view mark;
    const CallMarks* call = nullptr;
    size_t keep = 0;  // bytes at the end that may begin one
  };
  Found find_mark() const;
  // Whether an answer that is a call or has none is one, as far as is known; false: more is needed.
  bool knows_first();
  std::string name_of(const NamedCall& call);
  bool call(std::string_view json, SplitText& out);
  bool call_dialect(std::string_view text, SplitText& out);
  bool call_marked(std::string_view text, SplitText& out);
  bool call_whole(SplitText& out);

  SplitOptions options_;
  std::optional<HarmonyReader> harmony_;
  std::span<const CallMarks> all_marks_;
  CallMarks marks_;  // of the call that began
  Place place_ = Place::Content;
  std::string held_;
  std::string blank_;      // at the end of a thought, dropped when nothing follows
  bool trim_ = false;      // blanks at the beginning of what comes next are dropped
  bool may_think_ = true;  // nothing was said yet
  bool called_ = false;
  bool may_answer_ = true;  // the mark of the answer's words may come
  bool in_answer_ = false;  // it came, and its end is awaited
  bool may_open_ = false;   // a thought that was begun for the model may still begin with the mark
};

}  // namespace reprise::server
