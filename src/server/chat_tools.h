// The messages and tools of a chat request, as chat templates take them, each checked. Plain values of one request and
// plain functions; any thread, with the Fields of the request it reads.
#pragma once

#include <optional>
#include <string>

#include "server/answer_grammar.h"
#include "server/answer_splitter.h"
#include "server/fields.h"
#include "server/served_model.h"

namespace reprise::server {

constexpr size_t kMostTools = 128;  // of a request

struct ChatTools {
  OrderedJson list;                      // null: the template sees none
  ToolFormat format = ToolFormat::None;  // how calls are written in the answer
  std::string name;                      // of the one tool that must be called
  std::optional<AnswerForm> form;        // what the answer is held to, where a call must come
  bool in_system_prompt = false;         // the template shows no tools: tell_tools() does
  bool several = true;                   // one answer may call several
  bool or_form = false;                  // the answer is calls, or of another form that the request asks for
};

class ImageReader;

// Images of the parts go to `images`. Null: the messages come from another reader, and their images were read.
std::optional<OrderedJson> read_messages(Fields& f, const OrderedJson& body, const ServedModel& model,
                                         ImageReader* images);
ChatTools read_tools(Fields& f, const OrderedJson& body, const ServedModel& model);
// The messages for a template that shows no tools: these stand in the system turn, with the way to call them (Hermes'
// marks), earlier calls in the assistant's words and their results in the user's.
OrderedJson tell_tools(OrderedJson messages, const ChatTools& tools);
// The same without a system turn, which some templates refuse: it begins the user's first.
OrderedJson without_system(OrderedJson messages);
// Calls of tools that the messages tell of.
int64_t count_calls(const OrderedJson& messages);
// The messages for Mistral's templates, which refuse ids that are not short (ids.h): a call and its result have the
// same short id in place of another one. A call without an id gets one by its place, and a result without one is that
// of the first call that has none yet.
OrderedJson shorten_ids(OrderedJson messages);
// The messages for templates that do not take earlier calls as others do (ChatTemplate::past_calls): with arguments as
// texts, and words beside calls in a message of their own; or Granite's, with calls in the assistant's words.
OrderedJson write_past_calls(OrderedJson messages, const ServedModel& model);
// The messages for Phi-4-mini's template, which reads the tools from the system turn: a text of their functions.
OrderedJson place_tools(OrderedJson messages, const OrderedJson& tools);
// The messages for gpt-oss' template, which reads thoughts as "thinking". Before calls it takes one text that is not
// for the user: thoughts and words become one there.
OrderedJson name_thoughts(OrderedJson messages);
// The tools for a template that reads the description of each, which OpenAI's API leaves free.
OrderedJson describe_tools(OrderedJson tools);

}  // namespace reprise::server
