#include "checkpoint/generation_config.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_parts.h"
#include "checkpoint/gguf_tokenizer.h"
#include "checkpoint/limits.h"
#include "checkpoint/unique_json.h"

namespace reprise::checkpoint {
namespace {

constexpr size_t kMaxBytes = 16 << 20;

}  // namespace

SamplingDefaults sampling_defaults(const GenerationDefaults& published) {
  SamplingDefaults out;
  out.temperature = published.do_sample.value_or(true) ? published.temperature.value_or(out.temperature) : 0;
  out.top_p = published.top_p.value_or(out.top_p);
  out.top_k = published.top_k.value_or(out.top_k);
  out.min_p = published.min_p.value_or(out.min_p);
  out.repetition_penalty = published.repetition_penalty.value_or(out.repetition_penalty);
  return out;
}

Result<GenerationDefaults> parse_generation_config(const Json& config, std::string_view source) {
  if (!config.is_object()) return invalid("{}: not a JSON object", source);
  const FieldReader in(config, source);
  GenerationDefaults out;
  RETURN_IF_ERROR(read_token_list(in, "eos_token_id", out.eos_token_ids));
  RETURN_IF_ERROR(in.integer("bos_token_id", -1, kMaxTokenId, out.bos_token_id));
  RETURN_IF_ERROR(in.integer("pad_token_id", -1, kMaxTokenId, out.pad_token_id));
  if (out.bos_token_id == -1) out.bos_token_id.reset();
  if (out.pad_token_id == -1) out.pad_token_id.reset();
  RETURN_IF_ERROR(in.boolean("do_sample", out.do_sample));
  RETURN_IF_ERROR(in.number("temperature", 0.0, 100.0, out.temperature));
  RETURN_IF_ERROR(in.number("top_p", 0.0, 1.0, out.top_p));
  RETURN_IF_ERROR(in.integer("top_k", -1, kMaxTokenId, out.top_k));
  RETURN_IF_ERROR(in.number("min_p", 0.0, 1.0, out.min_p));
  RETURN_IF_ERROR(in.number("repetition_penalty", 0.01, 100.0, out.repetition_penalty));
  return out;
}

Result<GenerationDefaults> read_generation_config(const GgufFile& file) {
  Json config = Json::object();
  for (const auto& [key, name] : {std::pair{"general.sampling.temp", "temperature"},
                                  {"general.sampling.top_p", "top_p"},
                                  {"general.sampling.min_p", "min_p"},
                                  {"general.sampling.penalty_repeat", "repetition_penalty"}}) {
    ASSIGN_OR_RETURN(const auto v, file.number(key));
    if (v) config[name] = *v;
  }
  ASSIGN_OR_RETURN(const auto top_k, file.integer("general.sampling.top_k"));
  if (top_k) config["top_k"] = *top_k;
  ASSIGN_OR_RETURN(GenerationDefaults out, parse_generation_config(config, file.source()));
  if (!file.find_value("tokenizer.ggml.tokens")) return out;
  ASSIGN_OR_RETURN(const GgufTokenizer tokenizer, read_gguf_tokenizer(file));
  out.bos_token_id = tokenizer.bos_id;
  out.pad_token_id = tokenizer.pad_id;
  for (const auto& id : {tokenizer.eos_id, tokenizer.eot_id, tokenizer.eom_id})
    if (id && std::find(out.eos_token_ids.begin(), out.eos_token_ids.end(), *id) == out.eos_token_ids.end())
      out.eos_token_ids.push_back(*id);
  return out;
}

Result<GenerationDefaults> read_generation_config(const std::string& path) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) {
    const std::string file = path + "/generation_config.json";
    if (!std::filesystem::exists(file, ec)) return GenerationDefaults{};
    ASSIGN_OR_RETURN(const std::string text, read_file(file, kMaxBytes));
    ASSIGN_OR_RETURN(const Json config, parse_unique_json(text, file));
    return parse_generation_config(config, file);
  }
  ASSIGN_OR_RETURN(const GgufFile file, open_gguf_model(path));
  return read_generation_config(file);
}

}  // namespace reprise::checkpoint
