// Where tests of the tokenizer find vocabularies and what HF tokenizers made of them (tests/data/tokenizer/README.md).
// Without the file of the default model a test skips and says why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace reprise::text {

// The bytes of a gzip file.
Result<std::string> read_gzip(const std::string& path);

std::string golden_folder();

Result<GgufTokenizer> read_gguf_metadata(const std::string& path);

// "qwen3", "deepseek_v3": the published tokenizer.json. "smollm2": the GGUF file of the default model, in
// $REPRISE_CACHE or where `reprise pull smollm2` puts it; "smollm2_as_json": the same written as tokenizer.json.
// "spm_llama", "spm_mistral", "unigram_words", "unigram_bytes": in the repository. "spm_gguf": the first of these as
// GGUF metadata, "unigram_gguf" the third, and "minilm_gguf" the published "minilm".
Result<Tokenizer> load_tokenizer(const std::string& name);

// The same; where the default model is missing, nothing, and the test is marked as skipped: the demo fetches it.
std::optional<Tokenizer> tokenizer_or_skip(const std::string& name);

struct Golden {
  std::vector<uint64_t> id_hashes;
  std::vector<uint32_t> id_counts;
  std::vector<uint64_t> text_hashes;  // 0: decoding gives back the string
};
Result<Golden> read_golden(const std::string& path);
Result<std::vector<std::string>> read_golden_strings();

uint64_t fnv1a(const void* data, size_t size);

}  // namespace reprise::text
