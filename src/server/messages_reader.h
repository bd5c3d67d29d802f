// Anthropic's Messages: a body as a GenerateCall. The conversation is written as OpenAI's chats have it, which is what
// chat templates take; each thing wrong is named as the client wrote it. Pure; any thread.
#pragma once

#include "server/generate_call.h"

namespace reprise::server {

ParsedCall parse_messages(const OrderedJson& body, const ServedModel& model, const CallLimits& limits);
// The same conversation, of which only the prompt is wanted: no max_tokens is asked for.
ParsedCall parse_messages_to_count(const OrderedJson& body, const ServedModel& model, const CallLimits& limits);

}  // namespace reprise::server
