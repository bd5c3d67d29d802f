#include "text/tokenizer_data.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <cstring>

#include "api/gguf_tokenizer.h"
#include "base/base64.h"
#include "base/file.h"
#include "base/json.h"

namespace reprise::text {
namespace {

std::string environment(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

Result<Tokenizer> load_gguf(const std::string& path, bool by_json) {
  ASSIGN_OR_RETURN(const GgufTokenizer gguf, read_gguf_metadata(path));
  if (!by_json) return Tokenizer::from_gguf(gguf);
  ASSIGN_OR_RETURN(const Json json, tokenizer_json_from_gguf(gguf));
  return Tokenizer::from_json_text(json.dump());
}

// The metadata that a converter writes of a unigram model of tokenizer.json, whose special tokens have a score of 0.
Result<GgufTokenizer> unigram_metadata(const Json& json) {
  GgufTokenizer gguf;
  gguf.model = "t5";
  const Json& model = json["model"];
  for (const Json& piece : model["vocab"]) {
    gguf.tokens.push_back(piece[0].get<std::string>());
    gguf.scores.push_back(piece[1].get<float>());
    gguf.token_types.push_back(piece[1] == 0.0 ? 3 : 1);
  }
  gguf.unk = model["unk_id"].get<int64_t>();
  gguf.token_types.at(static_cast<size_t>(gguf.unk)) = 2;
  gguf.mask = static_cast<int64_t>(gguf.tokens.size()) - 1;
  // Converters fill up the vocabulary with such tokens.
  gguf.tokens.push_back("[PAD]");
  gguf.scores.push_back(-10000);
  gguf.token_types.push_back(5);
  gguf.charsmap = base64_bytes(json["normalizer"]["precompiled_charsmap"].get<std::string>());
  return gguf;
}

// The metadata that a converter writes of word pieces of tokenizer.json (conversion/bert.py of llama.cpp).
Result<GgufTokenizer> word_pieces_metadata(const Json& json) {
  GgufTokenizer gguf;
  gguf.model = "bert";
  const Json& vocab = json["model"]["vocab"];
  gguf.tokens.resize(vocab.size());
  gguf.token_types.assign(vocab.size(), 1);
  for (const Json& token : json["added_tokens"]) gguf.token_types.at(token["id"].get<size_t>()) = 3;
  for (const auto& [token, id] : vocab.items()) {
    std::string& out = gguf.tokens.at(id.get<size_t>());
    if (gguf.token_types.at(id.get<size_t>()) == 3)
      out = token;
    else
      out = token.starts_with("##") ? token.substr(2) : "\xE2\x96\x81" + token;
  }
  gguf.sep = vocab["[SEP]"].get<int64_t>();
  return gguf;
}

}  // namespace

Result<std::string> read_gzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return error(Code::NotFound, "{}: cannot be opened", path);
  std::string out;
  std::string block(1 << 20, '\0');
  int count = 0;
  while ((count = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0)
    out.append(block, 0, static_cast<size_t>(count));
  gzclose(file);
  if (count < 0) return invalid("{}: not a whole gzip file", path);
  return out;
}

Result<GgufTokenizer> read_gguf_metadata(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, checkpoint::GgufFile::open(path));
  ASSIGN_OR_RETURN(const auto read, checkpoint::read_gguf_tokenizer(file));
  return api::for_text(read);
}

std::string golden_folder() { return std::string(REPRISE_SOURCE_DIR) + "/tests/data/tokenizer"; }

Result<Tokenizer> load_tokenizer(const std::string& name) {
  if (name == "smollm2" || name == "smollm2_as_json")
    return load_gguf(environment("REPRISE_CACHE", environment("HOME", "") + "/.cache/reprise") +
                         "/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                     name == "smollm2_as_json");
  if (name == "spm_gguf") return load_gguf(golden_folder() + "/spm/spm_llama.gguf", false);
  if (name == "kimi") {
    const std::string folder = golden_folder() + "/tiktoken/";
    ASSIGN_OR_RETURN(const std::string ranks, read_file(folder + "tiktoken.model"));
    ASSIGN_OR_RETURN(const std::string config, read_file(folder + "tokenizer_config.json"));
    ASSIGN_OR_RETURN(const Json json, parse_json(config, "tokenizer_config.json"));
    return Tokenizer::from_tiktoken(ranks, json);
  }
  if (name == "minilm_gguf") {
    ASSIGN_OR_RETURN(const std::string text, read_gzip(golden_folder() + "/published/minilm.tokenizer.json.gz"));
    ASSIGN_OR_RETURN(const Json json, parse_json(text, name));
    ASSIGN_OR_RETURN(const GgufTokenizer gguf, word_pieces_metadata(json));
    return Tokenizer::from_gguf(gguf);
  }
  if (name == "unigram_gguf") {
    ASSIGN_OR_RETURN(const std::string text, read_gzip(golden_folder() + "/unigram/unigram_words.tokenizer.json.gz"));
    ASSIGN_OR_RETURN(const Json json, parse_json(text, name));
    ASSIGN_OR_RETURN(const GgufTokenizer gguf, unigram_metadata(json));
    return Tokenizer::from_gguf(gguf);
  }
  if (name.starts_with("unigram_")) {
    ASSIGN_OR_RETURN(const std::string text, read_gzip(golden_folder() + "/unigram/" + name + ".tokenizer.json.gz"));
    return Tokenizer::from_json_text(text);
  }
  const bool is_small = name.starts_with("spm_");
  const std::string path = is_small ? golden_folder() + "/spm/" + name + ".tokenizer.json"
                                    : golden_folder() + "/published/" + name + ".tokenizer.json.gz";
  ASSIGN_OR_RETURN(const std::string text, is_small ? read_file(path) : read_gzip(path));
  return Tokenizer::from_json_text(text);
}

std::optional<Tokenizer> tokenizer_or_skip(const std::string& name) {
  Result<Tokenizer> tokenizer = load_tokenizer(name);
  if (tokenizer) return std::move(*tokenizer);
  // The default model is fetched by the demo, not by the tests.
  const bool may_be_missing = name.starts_with("smollm2") && tokenizer.status().code() == Code::NotFound;
  [&] {
    if (!may_be_missing) FAIL() << tokenizer.status().message();
    GTEST_SKIP() << tokenizer.status().message();
  }();
  return std::nullopt;
}

Result<Golden> read_golden(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, read_gzip(path));
  if (bytes.size() < 16 || bytes.compare(0, 8, "RTOKGLD1") != 0) return invalid("{}: not a golden file", path);
  uint32_t count = 0;
  std::memcpy(&count, bytes.data() + 8, 4);
  if (bytes.size() != 16 + size_t{count} * 20) return invalid("{}: has {} bytes", path, bytes.size());
  Golden golden;
  golden.id_hashes.resize(count);
  golden.id_counts.resize(count);
  golden.text_hashes.resize(count);
  const char* at = bytes.data() + 16;
  std::memcpy(golden.id_hashes.data(), at, size_t{count} * 8);
  std::memcpy(golden.id_counts.data(), at + size_t{count} * 8, size_t{count} * 4);
  std::memcpy(golden.text_hashes.data(), at + size_t{count} * 12, size_t{count} * 8);
  return golden;
}

Result<std::vector<std::string>> read_golden_strings() {
  const std::string path = golden_folder() + "/strings.jsonl.gz";
  ASSIGN_OR_RETURN(const std::string bytes, read_gzip(path));
  std::vector<std::string> strings;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    ASSIGN_OR_RETURN(const Json line, parse_json(std::string_view(bytes).substr(at, end - at), path));
    strings.push_back(line.get<std::string>());
    at = end + 1;
  }
  return strings;
}

uint64_t fnv1a(const void* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  return hash;
}

}  // namespace reprise::text
