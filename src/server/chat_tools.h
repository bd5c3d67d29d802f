// The messages and tools of a chat request, as chat templates take them, each checked.
#pragma once

#include <optional>
#include <string>

#include "server/answer_grammar.h"
#include "server/answer_splitter.h"
#include "server/fields.h"
#include "server/served_model.h"

namespace reprise::server {

struct ChatTools {
  OrderedJson list;                      // null: the template sees none
  ToolFormat format = ToolFormat::None;  // how calls are written in the answer
  std::string name;                      // of the one tool that must be called
  std::optional<AnswerForm> form;        // what the answer is held to, where a call must come
};

std::optional<OrderedJson> read_messages(Fields& f, const OrderedJson& body, const ServedModel& model);
ChatTools read_tools(Fields& f, const OrderedJson& body, const ServedModel& model);
// The prompt has opened a thought that the answer goes on with.
bool ends_in_thought(std::string_view prompt);

}  // namespace reprise::server
