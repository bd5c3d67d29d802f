#include "checkpoint/gguf_tokenizer.h"

namespace reprise::checkpoint {
namespace {

constexpr uint64_t kMaxTokens = 10'000'000;

Result<const GgufValue*> strings_of(const GgufFile& file, std::string_view key) {
  const GgufValue* v = file.find_value(key);
  if (v && !v->is_array_of(GgufValueType::String))
    return invalid("{}: metadata \"{}\" is not an array of strings", file.source(), key);
  return v;
}

Status check_count(const GgufFile& file, std::string_view key, uint64_t count, size_t tokens) {
  if (count == tokens) return Status::ok();
  return invalid("{}: metadata \"{}\" has {} elements, but there are {} tokens", file.source(), key, count, tokens);
}

Status read_kinds(const GgufFile& file, GgufTokenizer& out) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  const GgufValue* v = file.find_value(kKey);
  if (!v) return Status::ok();
  if (v->type != GgufValueType::Array || !GgufValue::is_integer_type(v->element))
    return invalid("{}: metadata \"{}\" is not an array of integers", file.source(), kKey);
  RETURN_IF_ERROR(check_count(file, kKey, v->count, out.tokens.size()));
  out.kinds.reserve(v->count);
  for (uint64_t i = 0; i < v->count; ++i) {
    const auto kind = v->as_int(i);
    if (!kind.is_ok() || *kind < 0 || *kind > 6)
      return invalid("{}: metadata \"{}\": token {} has a kind outside 0 to 6", file.source(), kKey, i);
    out.kinds.push_back(static_cast<GgufTokenKind>(*kind));
  }
  return Status::ok();
}

Status read_scores(const GgufFile& file, GgufTokenizer& out) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  const GgufValue* v = file.find_value(kKey);
  if (!v) return Status::ok();
  if (!v->is_array_of(GgufValueType::F32) && !v->is_array_of(GgufValueType::F64))
    return invalid("{}: metadata \"{}\" is not an array of floats", file.source(), kKey);
  RETURN_IF_ERROR(check_count(file, kKey, v->count, out.tokens.size()));
  out.scores.reserve(v->count);
  for (uint64_t i = 0; i < v->count; ++i) {
    ASSIGN_OR_RETURN(const double score, v->as_double(i));
    out.scores.push_back(static_cast<float>(score));
  }
  return Status::ok();
}

Status read_charsmap(const GgufFile& file, GgufTokenizer& out) {
  constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
  const GgufValue* v = file.find_value(kKey);
  if (!v) return Status::ok();
  if (!v->is_array_of(GgufValueType::U8) && !v->is_array_of(GgufValueType::I8))
    return invalid("{}: metadata \"{}\" is not an array of bytes", file.source(), kKey);
  out.charsmap.emplace(v->bytes.begin(), v->bytes.end());
  return Status::ok();
}

Status read_id(const GgufFile& file, std::string_view key, size_t tokens, std::optional<int64_t>& out) {
  ASSIGN_OR_RETURN(out, file.integer(key));
  if (!out || (*out >= 0 && static_cast<uint64_t>(*out) < tokens)) return Status::ok();
  // Converters write -1 or its unsigned form for "none".
  if (*out == -1 || *out == 0xffffffff) {
    out.reset();
    return Status::ok();
  }
  return invalid("{}: metadata \"{}\" is {}; allowed: 0 to {}", file.source(), key, *out, tokens - 1);
}

}  // namespace

Result<GgufTokenizer> read_gguf_tokenizer(const GgufFile& file) {
  GgufTokenizer out;
  ASSIGN_OR_RETURN(const GgufValue* tokens, strings_of(file, "tokenizer.ggml.tokens"));
  if (!tokens) return error(Code::NotFound, "{}: no metadata \"tokenizer.ggml.tokens\"", file.source());
  if (tokens->count == 0 || tokens->count > kMaxTokens)
    return invalid("{}: {} tokens; allowed: 1 to {}", file.source(), tokens->count, kMaxTokens);
  out.tokens.assign(tokens->strings.begin(), tokens->strings.end());
  ASSIGN_OR_RETURN(const GgufValue* merges, strings_of(file, "tokenizer.ggml.merges"));
  if (merges) out.merges.assign(merges->strings.begin(), merges->strings.end());
  RETURN_IF_ERROR(read_kinds(file, out));
  RETURN_IF_ERROR(read_scores(file, out));
  RETURN_IF_ERROR(read_charsmap(file, out));

  struct Text {
    std::string_view key;
    std::string GgufTokenizer::*member;
  };
  for (const Text& t : {Text{"tokenizer.ggml.model", &GgufTokenizer::model},
                        {"tokenizer.ggml.pre", &GgufTokenizer::pre},
                        {"tokenizer.chat_template", &GgufTokenizer::chat_template}}) {
    ASSIGN_OR_RETURN(auto text, file.string(t.key));
    if (text) out.*t.member = std::move(*text);
  }
  struct Id {
    std::string_view key;
    std::optional<int64_t> GgufTokenizer::*member;
  };
  for (const Id& id : {Id{"tokenizer.ggml.bos_token_id", &GgufTokenizer::bos_id},
                       {"tokenizer.ggml.eos_token_id", &GgufTokenizer::eos_id},
                       {"tokenizer.ggml.eot_token_id", &GgufTokenizer::eot_id},
                       {"tokenizer.ggml.eom_token_id", &GgufTokenizer::eom_id},
                       {"tokenizer.ggml.unknown_token_id", &GgufTokenizer::unk_id},
                       {"tokenizer.ggml.padding_token_id", &GgufTokenizer::pad_id},
                       {"tokenizer.ggml.seperator_token_id", &GgufTokenizer::sep_id},
                       {"tokenizer.ggml.mask_token_id", &GgufTokenizer::mask_id}})
    RETURN_IF_ERROR(read_id(file, id.key, out.tokens.size(), out.*id.member));
  struct Flag {
    std::string_view key;
    std::optional<bool> GgufTokenizer::*member;
  };
  for (const Flag& flag : {Flag{"tokenizer.ggml.add_bos_token", &GgufTokenizer::add_bos},
                           {"tokenizer.ggml.add_eos_token", &GgufTokenizer::add_eos},
                           {"tokenizer.ggml.add_sep_token", &GgufTokenizer::add_sep},
                           {"tokenizer.ggml.add_space_prefix", &GgufTokenizer::add_space_prefix},
                           {"tokenizer.ggml.remove_extra_whitespaces", &GgufTokenizer::remove_extra_whitespaces}}) {
    ASSIGN_OR_RETURN(out.*flag.member, file.boolean(flag.key));
  }

  constexpr std::string_view kNamed = "tokenizer.chat_template.";
  for (const GgufEntry& e : file.metadata())
    if (e.key.starts_with(kNamed) && e.value.type == GgufValueType::String)
      out.chat_templates.emplace(e.key.substr(kNamed.size()), e.value.text);
  return out;
}

}  // namespace reprise::checkpoint
