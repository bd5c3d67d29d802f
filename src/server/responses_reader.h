// OpenAI's Responses: a body as a GenerateCall. Nothing is kept between requests, so the whole conversation comes with
// each. Pure; any thread.
#pragma once

#include "server/generate_call.h"

namespace reprise::server {

// By which the model calls a tool of a namespace; "": of none.
std::string joined_tool_name(const std::string& space, const std::string& name);

ParsedCall parse_response(const OrderedJson& body, const ServedModel& model, const CallLimits& limits);

}  // namespace reprise::server
