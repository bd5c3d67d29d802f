// The calls of a serving benchmark: prompts and lengths from a seed or a file. The same settings give the same calls on
// every machine. Plain functions.
//
//   random         lengths uniform in [len x ratio, len], prompts random
//   sharegpt-like  lengths as conversations with assistants have them: log-normal, prompts of 90 tokens in the middle
//   and
//                  answers of 130, both cut at 1024; prompts random
//   gsm8k          grade-school questions behind solved ones, from a file; --random-output-len tokens at most
//   file           JSON lines with "prompt" (text or token ids) and perhaps "max_tokens"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/generation.h"

namespace reprise::measurement {

struct PromptOptions {
  std::string dataset = "random";
  std::string path;  // of gsm8k and file
  int64_t count = 100;
  int64_t input_len = 1024, output_len = 128;
  double range_ratio = 1;
  int64_t shots = 5;
  uint64_t seed = 1;
  bool ids = true;  // random prompts as token ids, else as text
  int64_t vocab_size = 1000;
};

// A file with fewer lines than `count` is read again from its beginning.
Result<std::vector<client::GenerationCall>> serving_calls(const PromptOptions& options);

}  // namespace reprise::measurement
