// HarmonyReader: takes apart an answer in OpenAI's harmony format, which is a sequence of messages:
//
//   <|start|>assistant to=functions.NAME<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>
//
// The channel says what a message is: analysis is a thought, final and commentary are said; one to a function is a
// call, wherever the recipient stands in the header. The prompt ends within the first header. An answer without any
// header, as one that is held to a form, is said as it is. So is what breaks the format: nothing of an answer is lost.
// Text that may be the beginning of a mark is held back, so the parts do not depend on how the text was cut into
// pieces. One answer, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/split_text.h"

namespace reprise::server {

class HarmonyReader {
 public:
  // Thoughts are apart, or said as well.
  explicit HarmonyReader(bool reasoning) : reasoning_(reasoning) {}

  void push(std::string_view piece, SplitText& out);
  // The end of the answer. A call that is no complete JSON object is said.
  void finish(SplitText& out);
  bool called() const { return called_; }
  bool thinking() const { return place_ == Place::Body && kind_ == Kind::Thought; }

 private:
  enum class Place : uint8_t { Between, Header, Body };  // Between: where a header may begin
  enum class Kind : uint8_t { Said, Thought, Call };

  // From one place to the next; false: what is held says no more yet.
  bool walk(SplitText& out);
  bool walk_between();
  bool walk_header(SplitText& out);
  bool walk_body(SplitText& out);
  void begin(Kind kind);
  void add(std::string_view text, SplitText& out);
  void end(SplitText& out);

  bool reasoning_;
  Place place_ = Place::Between;
  Kind kind_ = Kind::Said;
  std::string held_;
  std::string header_, function_, body_;  // of the message, where it is a call
  bool fresh_ = true;                     // nothing of the message was given out yet
  bool said_ = false, thought_ = false;   // an earlier message, or this one, has added to these
  bool called_ = false;
};

// A chat template writes its messages in this format.
bool shows_harmony(std::string_view chat_template);

}  // namespace reprise::server
