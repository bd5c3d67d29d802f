// CallForm: calls of tools as a form that an answer can be held to: the marks of the model's own way to call, names of
// the request's tools, and arguments of their schemas. A plain value; any thread.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "server/tool_dialects.h"
#include "text/grammar/rules.h"

namespace reprise::server {

struct CallForm {
  ToolFormat format = ToolFormat::Hermes;  // one that has_call_form()
  OrderedJson tools;                       // OpenAI's list of functions, checked
  bool several = true;                     // in one answer

  // The same for the same form.
  std::string key() const;
};

// Calls of this format stand between marks of plain text. Special tokens are never allowed in an answer that is held to
// a form, and where the whole answer is the call, nothing tells it from an answer of a schema.
bool has_call_form(ToolFormat format);

// The schema of a tool's arguments. Arguments are an object, even where the schema names another type; a tool without
// such a schema takes none.
OrderedJson parameters_of(const OrderedJson& function);

// Adds the calls between two nodes of a rule. Where a grammar cannot be made of a tool's schema, its arguments are any.
Status add_calls(const CallForm& form, text::grammar::RuleBuilder* rules, text::grammar::NodeId from,
                 text::grammar::NodeId to);

}  // namespace reprise::server
