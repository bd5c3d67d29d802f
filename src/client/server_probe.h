// What a client must know of a server before it can load it: the model's name, its vocabulary, and whether it takes
// prompts as token ids. Asked over HTTP; works with this server, vLLM, SGLang and llama-server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "client/generation.h"

namespace reprise::client {

struct ServerFacts {
  std::string model;
  std::optional<int64_t> vocab_size;  // where the server tells it
};

// GET /v1/models, and /model_info for what is missing. An error names the server and what it said. `named_by`: what
// gives the model's name where the server does not, for the error.
Result<ServerFacts> probe_server(HttpCalls& http, const std::string& url, std::string_view named_by);

// The key as a header, when there is one.
HttpCallOptions call_options(const std::string& api_key, double timeout_s);

// Sends one call alone.
GenerationRecord call_once(HttpCalls& http, const GenerationCall& call, const GenerationStyle& style);

}  // namespace reprise::client
