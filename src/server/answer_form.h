// read_answer_form: the fields of a request that say what its answer may be, in the forms of OpenAI (response_format),
// SGLang (regex, json_schema) and vLLM (structured_outputs, guided_*). At most one may be given. A plain function; any
// thread, with the Fields of the request it reads.
#pragma once

#include "server/answer_grammar.h"
#include "server/fields.h"

namespace reprise::server {

// nullopt: any text, or an error is in `f`. `ordered` is the same object as the fields', in the order of its keys:
// answers have the properties of a schema in its order.
std::optional<AnswerForm> read_answer_form(Fields& f, const OrderedJson& ordered);

}  // namespace reprise::server
