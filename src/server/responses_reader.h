// OpenAI's Responses: a body as a GenerateCall. Nothing is kept between requests, so the whole conversation comes with
// each. Pure; any thread.
#pragma once

#include "server/generate_call.h"

namespace reprise::server {

ParsedCall parse_response(const OrderedJson& body, const ServedModel& model, const CallLimits& limits);

}  // namespace reprise::server
