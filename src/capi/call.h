// Call: what a reprise_request asks for, checked and copied: prompt ids, sampling, what the answer is held to, and how
// its text is taken apart. The fields of chats are read as the server reads those of /v1/chat/completions. Plain
// values; any thread.
#pragma once

#include <cstddef>
#include <cstring>

#include "capi/failure.h"
#include "server/generate_call.h"

namespace reprise::capi {

struct Call {
  server::GenerateCall call;  // n answers to one prompt
  int logprobs = -1, prompt_logprobs = -1;
  void* context = nullptr;
};

// What the caller's structure says, of which the library may know less or more.
template <typename T>
Failure take(T& out, const T* given, const char* name) {
  size_t size = 0;
  if (!given) return Failure(invalid("{} is NULL", name), name);
  std::memcpy(&size, given, sizeof size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size < sizeof size)
    return Failure(invalid("{}: `size` is {}; allowed: {} (sizeof)", name, size, sizeof(T)),
                   std::string(name) + ".size");
  for (size_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0)
      return Failure(error(Code::Invalid, "{}: `size` is {}, of which this library knows {}, and the rest is not zero",
                           name, size, sizeof(T)),
                     std::string(name) + ".size");
  std::memcpy(static_cast<void*>(&out), given, size < sizeof(T) ? size : sizeof(T));
  out.size = sizeof(T);
  return {};
}

// What the reader of a request over HTTP found wrong, with the names of this interface.
Failure failure_of(const server::ApiError& e);

// "As the model's publisher says."
reprise_sampling default_sampling();

// The text; a null one of some size is an error.
Failure take_text(std::string& out, const reprise_text& given, const char* name);

Failure read_call(Call& out, const reprise_request* request, const server::ServedModel& model, uint64_t random_seed);
// The ids of a conversation alone.
Failure encode_chat(std::vector<int32_t>& out, const reprise_text& messages, const reprise_text& options,
                    const server::ServedModel& model);

}  // namespace reprise::capi
