// Ollama's chats and texts: a body as a GenerateCall. Pure; any thread.
#pragma once

#include <string_view>

#include "server/generate_call.h"

namespace reprise::server {

// /api/chat and /api/generate.
ParsedCall parse_ollama_chat(const OrderedJson& body, const ServedModel& model, const CallLimits& limits);
ParsedCall parse_ollama_generate(const OrderedJson& body, const ServedModel& model, const CallLimits& limits);

// What Ollama's clients call the served model: NAME, or NAME:latest.
bool names_served_model(std::string_view name, const ServedModel& model);

}  // namespace reprise::server
