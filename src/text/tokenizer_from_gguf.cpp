// Tokenizer::from_gguf: the tokenizer metadata of GGUF files. They name how words are cut instead of describing it;
// what each name means follows the tokenizer.json of the models that use it.
#include <algorithm>
#include <iterator>

#include "text/bert_characters.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace reprise::text {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

constexpr std::string_view kSpacePiece = "\xE2\x96\x81";  // U+2581, SentencePiece's space
// Values of tokenizer.ggml.model: each is the only name of its model.
constexpr std::string_view kUnigram = "t5", kWordPieces = "bert";
constexpr std::string_view kGoesOn = "##";  // in front of a piece that does not begin a word

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSeed =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// As the model's own code has it. Words of Chinese characters first, and other words end where such a one begins.
constexpr std::string_view kKimiK2 =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
// Letters of the European scripts, in the ranges that DeepSeek's first tokenizers list.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1})"
    R"(\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5})"
    R"(\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a})"
    R"(\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b})"
    R"(\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc})"
    R"(\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107})"
    R"(\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139})"
    R"(\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4})"
    R"(\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787})"
    R"(\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a})"
    R"(\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2})"
    R"(\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)";

struct Pre {
  std::string_view name;
  // Applied one after the other to what the ones before left whole.
  std::vector<std::string_view> patterns;
  bool single_digits = false;  // every digit is a word, before the patterns
  bool ignore_merges = false;
  bool nfc = false;
  bool add_bos = false;  // where the file is silent
};

const std::vector<Pre>& known_pres() {
  static const std::vector<Pre> pres = {
      {.name = "default", .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {.name = "gpt-2", .patterns = {kGpt2}},
      {.name = "gpt2", .patterns = {kGpt2}},
      {.name = "olmo", .patterns = {kGpt2}},
      {.name = "mpt", .patterns = {kGpt2}},
      {.name = "exaone4", .patterns = {kGpt2}},
      {.name = "phi-2", .patterns = {kGpt2}},
      {.name = "smollm", .patterns = {kGpt2}, .single_digits = true},
      {.name = "starcoder", .patterns = {kGpt2}, .single_digits = true},
      {.name = "refact", .patterns = {kGpt2}, .single_digits = true},
      {.name = "command-r", .patterns = {kGpt2}, .single_digits = true, .nfc = true},
      {.name = "codeshell", .patterns = {kGpt2}, .single_digits = true},
      {.name = "exaone", .patterns = {kGpt2}, .single_digits = true},
      {.name = "llama-bpe", .patterns = {kCl100k}, .ignore_merges = true, .add_bos = true},
      {.name = "llama3", .patterns = {kCl100k}, .ignore_merges = true, .add_bos = true},
      {.name = "llama-v3", .patterns = {kCl100k}, .ignore_merges = true, .add_bos = true},
      {.name = "falcon3", .patterns = {kCl100k}, .ignore_merges = true, .add_bos = true},
      {.name = "pixtral", .patterns = {kCl100k}, .ignore_merges = true, .add_bos = true},
      {.name = "smaug-bpe", .patterns = {kCl100k}, .ignore_merges = true},
      {.name = "chatglm-bpe", .patterns = {kCl100k}, .ignore_merges = true},
      {.name = "glm4", .patterns = {kCl100k}, .ignore_merges = true},
      {.name = "dbrx", .patterns = {kCl100k}},
      {.name = "qwen2", .patterns = {kQwen2}, .nfc = true},
      {.name = "deepseek-r1-qwen", .patterns = {kQwen2}, .nfc = true},
      {.name = "stablelm2", .patterns = {kQwen2}, .nfc = true},
      {.name = "hunyuan", .patterns = {kQwen2}, .ignore_merges = true},
      {.name = "qwen35", .patterns = {kQwen35}, .nfc = true},
      {.name = "seed-coder", .patterns = {kSeed}},
      {.name = "deepseek-llm",
       .patterns = {R"([\r\n])", kDeepseekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
                    R"([一-龥ࠀ-一가-퟿]+)", R"(\p{N}+)"}},
      {.name = "deepseek-coder",
       .patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([一-龥ࠀ-一가-퟿]+)"},
       .single_digits = true},
      {.name = "deepseek-v3", .patterns = {R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+", kDeepseekV3}},
      {.name = "hunyuan-dense", .patterns = {R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+", kDeepseekV3}},
      {.name = "kimi-k2", .patterns = {kKimiK2}, .ignore_merges = true},
      {.name = "tekken", .patterns = {kTekken}, .ignore_merges = true, .add_bos = true},
      {.name = "mistral", .patterns = {kTekken}, .ignore_merges = true, .add_bos = true},
      {.name = "gpt-4o", .patterns = {kGpt4o}, .ignore_merges = true},
      {.name = "llama4", .patterns = {kGpt4o}, .ignore_merges = true, .add_bos = true},
      {.name = "minimax-m2", .patterns = {kGpt4o}},
  };
  return pres;
}

Result<const Pre*> find_pre(const std::string& name) {
  std::string names;
  for (const Pre& pre : known_pres()) {
    if (pre.name == (name.empty() ? "default" : name)) return &pre;
    names += (names.empty() ? "" : ", ") + std::string(pre.name);
  }
  return Status(Code::Unsupported,
                fmt::format("tokenizer.ggml.pre: \"{}\" is not supported; supported are {}", name, names));
}

Status check_lengths(const GgufTokenizer& gguf) {
  const size_t count = gguf.tokens.size();
  if (count == 0) return invalid("tokenizer.ggml.tokens: is empty");
  if (count > static_cast<size_t>(Vocabulary::kMaxId))
    return invalid("tokenizer.ggml.tokens: has {} tokens; at most {} are allowed", count, Vocabulary::kMaxId);
  if (!gguf.token_types.empty() && gguf.token_types.size() != count)
    return invalid("tokenizer.ggml.token_type: has {} entries for {} tokens", gguf.token_types.size(), count);
  for (size_t i = 0; i < gguf.token_types.size(); ++i) {
    if (gguf.token_types[i] < 0 || gguf.token_types[i] > kByte)
      return invalid("tokenizer.ggml.token_type[{}]: {} is not a type; they lie between 0 and {}", i,
                     gguf.token_types[i], int{kByte});
  }
  struct Named {
    std::string_view key;
    int64_t id;
  };
  for (const Named& n : {Named{"bos_token_id", gguf.bos}, Named{"eos_token_id", gguf.eos},
                         Named{"unknown_token_id", gguf.unk}, Named{"padding_token_id", gguf.pad},
                         Named{"seperator_token_id", gguf.sep}, Named{"mask_token_id", gguf.mask}}) {
    if (n.id < -1 || n.id >= static_cast<int64_t>(count))
      return invalid("tokenizer.ggml.{}: {} is not the id of one of {} tokens", n.key, n.id, count);
  }
  return Status::ok();
}

int32_t type_of(const GgufTokenizer& gguf, size_t id) {
  return gguf.token_types.empty() ? kNormal : gguf.token_types[id];
}

// Files of word pieces have U+2581 in front of those that begin a word, where the model has "##" in front of the
// others. Control tokens stand as they are, and in older files all names in brackets (BertModel of llama.cpp's
// conversion/bert.py).
bool is_piece(const GgufTokenizer& gguf, size_t id) {
  const std::string& token = gguf.tokens[id];
  return type_of(gguf, id) != kControl && !(token.starts_with('[') && token.ends_with(']'));
}
std::string piece_of_word(const GgufTokenizer& gguf, size_t id) {
  const std::string& token = gguf.tokens[id];
  if (!is_piece(gguf, id)) return token;
  return token.starts_with(kSpacePiece) ? token.substr(kSpacePiece.size()) : std::string(kGoesOn) + token;
}

Status read_tokens(const GgufTokenizer& gguf, TokenizerParts* parts) {
  const bool pieces = gguf.model == kWordPieces;
  size_t bytes = 0;
  for (const std::string& token : gguf.tokens) bytes += token.size() + (pieces ? kGoesOn.size() : 0);
  parts->vocabulary.reserve(gguf.tokens.size(), bytes);
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const std::string& token = gguf.tokens[id];
    if (!is_valid_utf8(token)) return invalid("tokenizer.ggml.tokens[{}]: is not valid UTF-8", id);
    const Status added = parts->vocabulary.add(pieces ? piece_of_word(gguf, id) : token, static_cast<int64_t>(id));
    if (!added) return added.at("tokenizer.ggml.tokens");
  }
  return Status::ok();
}

// The white space that added tokens swallow. No file says it; the families are known by tokens that no other has. Those
// of Phi-4 swallow it on both sides, those of Phi-3 and Phi-4-mini behind them, except the marks of a text.
enum class Swallows { Nothing, Behind, Around };
Swallows swallows(const GgufTokenizer& gguf) {
  constexpr std::string_view kTurns[] = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"};
  size_t turns = 0;
  for (const std::string& token : gguf.tokens) {
    if (!token.starts_with("<|")) continue;
    if (token == "<|im_sep|>") return Swallows::Around;
    turns += std::find(std::begin(kTurns), std::end(kTurns), token) != std::end(kTurns);
  }
  return turns < std::size(kTurns) ? Swallows::Nothing : Swallows::Behind;
}
bool swallows_behind(Swallows what, std::string_view token) {
  constexpr std::string_view kTexts[] = {"<s>", "<unk>", "<|endoftext|>", "<|endofprompt|>"};
  const bool of_text = std::find(std::begin(kTexts), std::end(kTexts), token) != std::end(kTexts);
  return what == Swallows::Around || (what == Swallows::Behind && !of_text);
}

// Control, unknown and user-defined tokens are found in the text as they stand.
Status read_added_tokens(const GgufTokenizer& gguf, TokenizerBuilder* builder) {
  const Swallows what = swallows(gguf);
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const int32_t type = type_of(gguf, id);
    if (type != kControl && type != kUnknown && type != kUserDefined) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = gguf.model == kWordPieces ? piece_of_word(gguf, id) : gguf.tokens[id];
    token.special = type != kUserDefined;
    // No file says so: the mask of XLM-RoBERTa swallows the space in front of it.
    token.lstrip = what == Swallows::Around || (gguf.model == kUnigram && token.id == gguf.mask);
    token.rstrip = swallows_behind(what, token.content);
    // Files may repeat a token to fill up the vocabulary; the first one counts.
    if (token.content.empty() || builder->parts().vocabulary.find(token.content) != token.id) continue;
    const Status added = builder->add_token(std::move(token));
    if (!added) return added.at("tokenizer.ggml.tokens");
  }
  return Status::ok();
}

Status add_words(const Pre& pre, bool space_in_front, TokenizerParts* parts) {
  if (pre.nfc) parts->normalizer.add_form(NormalForm::Nfc);
  if (pre.single_digits) parts->pre_tokenizer.add_digits(true);
  for (std::string_view pattern : pre.patterns) {
    ASSIGN_OR_RETURN(TextPattern compiled, TextPattern::regex(pattern));
    parts->pre_tokenizer.add_split(std::move(compiled), PreTokenizer::Behavior::Isolated, false);
  }
  parts->pre_tokenizer.add_byte_level(space_in_front, false);
  parts->decoder.add_byte_level();
  return Status::ok();
}

Status read_byte_level(const GgufTokenizer& gguf, const Pre& pre, TokenizerParts* parts) {
  BpeOptions options;
  options.ignore_merges = pre.ignore_merges;
  BpeModel model(std::move(options));
  model.reserve(gguf.merges.size());
  for (size_t i = 0; i < gguf.merges.size(); ++i) {
    const std::string_view line = gguf.merges[i];
    // A token may begin with a space only in the left half's place, so the separator is the first space behind it.
    const size_t space = line.find(' ', 1);
    const Status added = space == std::string_view::npos
                             ? invalid("must be two tokens with a space between, not \"{}\"", line)
                             : model.add_merge(parts->vocabulary, line.substr(0, space), line.substr(space + 1),
                                               static_cast<uint32_t>(i));
    if (!added) return added.at(fmt::format("tokenizer.ggml.merges[{}]", i));
  }
  model.finish(parts->vocabulary);
  parts->model = std::move(model);
  return add_words(pre, gguf.add_space_prefix.value_or(false), parts);
}

Status check_scores(const GgufTokenizer& gguf) {
  if (gguf.scores.size() == gguf.tokens.size()) return Status::ok();
  return invalid("tokenizer.ggml.scores: has {} entries for {} tokens", gguf.scores.size(), gguf.tokens.size());
}

Status read_scores(const GgufTokenizer& gguf, TokenizerParts* parts) {
  RETURN_IF_ERROR(check_scores(gguf));
  std::vector<uint8_t> mergeable(gguf.tokens.size());
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const int32_t type = type_of(gguf, id);
    mergeable[id] = type != kUnknown && type != kControl && type != kByte;
  }
  Result<ScoreModel> model = ScoreModel::create(parts->vocabulary, gguf.scores, std::move(mergeable), parts->unk);
  if (!model) return model.status().at("tokenizer.ggml");
  parts->model = std::move(*model);
  const bool prefix = gguf.add_space_prefix.value_or(true);
  if (prefix) parts->normalizer.add_prepend(std::string(kSpacePiece));
  parts->normalizer.add_replace(TextPattern::literal(" "), std::string(kSpacePiece));
  parts->decoder.add_replace(TextPattern::literal(std::string(kSpacePiece)), " ");
  parts->decoder.add_byte_fallback();
  parts->decoder.add_fuse();
  if (prefix) parts->decoder.add_strip(" ", 1, 0);
  return Status::ok();
}

// A converter that reads a tokenizer.json of XLM-RoBERTa writes a setting of decoding (clean_up_tokenization_spaces) as
// remove_extra_whitespaces. Its models were trained without extra spaces in either case.
bool is_xlm_roberta(const GgufTokenizer& gguf) {
  constexpr std::string_view kFirst[] = {"<s>", "<pad>", "</s>", "<unk>"};
  return gguf.tokens.size() > std::size(kFirst) &&
         std::equal(std::begin(kFirst), std::end(kFirst), gguf.tokens.begin());
}

// A text as words with a space in front of each, where spaces that follow one another count as one; or else as one
// word, which is what SentencePiece itself makes of every text.
Status add_unigram_words(const GgufTokenizer& gguf, TokenizerParts* parts) {
  const bool prefix = gguf.add_space_prefix.value_or(true);
  const bool merges = gguf.remove_extra_whitespaces.value_or(true) || is_xlm_roberta(gguf);
  const std::string space(kSpacePiece);
  if (prefix && merges) {
    parts->pre_tokenizer.add_whitespace_split();
    parts->pre_tokenizer.add_metaspace(space, PreTokenizer::Prepend::Always, true);
    return Status::ok();
  }
  if (merges) {
    ASSIGN_OR_RETURN(TextPattern ends, TextPattern::regex("^ +| +$"));
    ASSIGN_OR_RETURN(TextPattern runs, TextPattern::regex(" {2,}"));
    parts->normalizer.add_replace(std::move(ends), "");
    parts->normalizer.add_replace(std::move(runs), " ");
  }
  if (prefix) parts->normalizer.add_prepend(space);
  parts->normalizer.add_replace(TextPattern::literal(" "), space);
  return Status::ok();
}

// The one token of type "unknown", where no key names it.
Result<int32_t> unknown_token(const GgufTokenizer& gguf) {
  if (gguf.unk >= 0) return static_cast<int32_t>(gguf.unk);
  for (size_t id = 0; id < gguf.tokens.size(); ++id)
    if (type_of(gguf, id) == kUnknown) return static_cast<int32_t>(id);
  return invalid("tokenizer.ggml.unknown_token_id: is missing, and no token has type {}", int{kUnknown});
}

// Text becomes normal tokens; those that fill up the vocabulary and those of bytes are no pieces.
Status read_unigram(const GgufTokenizer& gguf, TokenizerParts* parts) {
  RETURN_IF_ERROR(check_scores(gguf));
  if (!gguf.charsmap)
    return invalid(
        "tokenizer.ggml.precompiled_charsmap: is missing; a unigram model reads text as this map rewrites it");
  auto map = Charsmap::read(*gguf.charsmap);
  if (!map) return map.status().at("tokenizer.ggml.precompiled_charsmap");
  parts->normalizer.add_charsmap(std::move(*map));
  ASSIGN_OR_RETURN(parts->unk, unknown_token(gguf));
  std::vector<uint8_t> pieces(gguf.tokens.size());
  bool bytes = false;
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const int32_t type = type_of(gguf, id);
    pieces[id] = type == kNormal || type == kUserDefined;
    bytes |= type == kByte;
  }
  auto model = UnigramModel::create(parts->vocabulary, {gguf.scores.begin(), gguf.scores.end()}, parts->unk, bytes,
                                    std::move(pieces));
  if (!model) return model.status().at("tokenizer.ggml");
  parts->model = std::move(*model);
  RETURN_IF_ERROR(add_unigram_words(gguf, parts));
  if (bytes) parts->decoder.add_byte_fallback();
  parts->decoder.add_metaspace(std::string(kSpacePiece), gguf.add_space_prefix.value_or(true));
  return Status::ok();
}

// Two texts as XLM-RoBERTa has them: <s> A </s> </s> B </s>. Older files do not say that a separator stands there.
void add_unigram_pair(const GgufTokenizer& gguf, TokenizerParts* parts) {
  if (parts->before.empty() || parts->after.empty()) return;
  TokenizerParts::Pair pair{parts->before, parts->after, parts->after};
  if (gguf.add_sep.value_or(true)) pair.between.push_back(gguf.sep >= 0 ? static_cast<int32_t>(gguf.sep) : parts->eos);
  parts->pair = std::move(pair);
}

// The id that a key gives, or else that of the token that models of BERT's kind have under this name.
Result<int32_t> named_token(const TokenizerParts& parts, int64_t id, std::string_view key, std::string_view name) {
  const int32_t found = id >= 0 ? static_cast<int32_t>(id) : parts.vocabulary.find(name);
  if (found < 0) return invalid("tokenizer.ggml.{}: is missing, and no token is {}", key, name);
  return found;
}

// No key says whether a text goes to lower case and loses its accents. A model that was trained so has no token that
// this would change.
Status read_word_pieces(const GgufTokenizer& gguf, TokenizerParts* parts) {
  bool begins = false, lowercase = true, without = true;
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    if (!is_piece(gguf, id)) continue;
    const std::string& token = gguf.tokens[id];
    begins |= token.starts_with(kSpacePiece);
    lowercase = lowercase && to_lowercase(token) == token;
    without = without && without_accents(token) == token;
  }
  if (!begins) return invalid("tokenizer.ggml.tokens: none begins with U+2581, the mark of a piece that begins a word");
  parts->normalizer.add_bert(lowercase, lowercase && without);
  parts->pre_tokenizer.add_bert();
  WordPieceOptions options{.prefix = std::string(kGoesOn)};
  ASSIGN_OR_RETURN(options.unk_id, named_token(*parts, gguf.unk, "unknown_token_id", "[UNK]"));
  parts->unk = options.unk_id;
  parts->model.emplace<WordPieceModel>(std::move(options), parts->vocabulary);
  parts->decoder.add_word_pieces(std::string(kGoesOn), true);
  ASSIGN_OR_RETURN(parts->bos, named_token(*parts, gguf.bos, "bos_token_id", "[CLS]"));
  ASSIGN_OR_RETURN(parts->eos, named_token(*parts, gguf.sep, "seperator_token_id", "[SEP]"));
  return Status::ok();
}

// Two texts as BERT has them: [CLS] A [SEP] B [SEP], where B and what is behind it are of the second kind.
void add_bert_pair(TokenizerParts* parts) {
  if (parts->before.empty() || parts->after.empty()) return;
  parts->pair = TokenizerParts::Pair{parts->before, {parts->eos}, parts->after, 1, true};
}

// Begin and end tokens around a text, or null.
Result<Json> template_of(const GgufTokenizer& gguf, const Pre& pre) {
  Json single = Json::array(), pair = Json::array(), special = Json::object();
  const auto token = [&](int64_t id, const char* key) -> Status {
    if (id < 0) return invalid("tokenizer.ggml.add_{}_token: is true, but there is no {}_token_id", key, key);
    const std::string& text = gguf.tokens[static_cast<size_t>(id)];
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    return Status::ok();
  };
  if (gguf.add_bos.value_or(pre.add_bos && gguf.bos >= 0)) RETURN_IF_ERROR(token(gguf.bos, "bos"));
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (gguf.add_eos.value_or(false)) RETURN_IF_ERROR(token(gguf.eos, "eos"));
  if (special.empty()) return Json(nullptr);
  for (Json piece : single) {
    pair.push_back(piece);
    if (piece.contains("Sequence")) pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  }
  return Json{{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

}  // namespace

Status add_byte_level_words(const std::string& pre, bool space_in_front, TokenizerParts* parts) {
  ASSIGN_OR_RETURN(const Pre* found, find_pre(pre));
  return add_words(*found, space_in_front, parts);
}

Result<Json> tokenizer_json_from_gguf(const GgufTokenizer& gguf) {
  RETURN_IF_ERROR(check_lengths(gguf));
  if (gguf.model != "gpt2")
    return error(Code::Unsupported, "tokenizer.ggml.model: \"{}\" is not written as tokenizer.json; only gpt2 is",
                 gguf.model);
  ASSIGN_OR_RETURN(const Pre* pre, find_pre(gguf.pre));
  Json added = Json::array(), vocab = Json::object(), merges = Json::array();
  const Swallows what = swallows(gguf);
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const std::string& token = gguf.tokens[id];
    // Files may repeat a token to fill up the vocabulary; the first one counts.
    if (token.empty() || vocab.contains(token)) continue;
    vocab[token] = id;
    const int32_t type = type_of(gguf, id);
    if (type != kControl && type != kUnknown && type != kUserDefined) continue;
    added.push_back({{"id", id},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", what == Swallows::Around},
                     {"rstrip", swallows_behind(what, token)},
                     {"normalized", false},
                     {"special", type != kUserDefined}});
  }
  for (const std::string& line : gguf.merges) {
    const size_t space = line.find(' ', 1);
    if (space == std::string::npos) return invalid("tokenizer.ggml.merges: \"{}\" is not two tokens", line);
    merges.push_back({line.substr(0, space), line.substr(space + 1)});
  }
  Json cuts = Json::array();
  if (pre->single_digits) cuts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (std::string_view pattern : pre->patterns)
    cuts.push_back({{"type", "Split"},
                    {"pattern", {{"Regex", std::string(pattern)}}},
                    {"behavior", "Isolated"},
                    {"invert", false}});
  const Json bytes{{"type", "ByteLevel"},
                   {"add_prefix_space", gguf.add_space_prefix.value_or(false)},
                   {"trim_offsets", true},
                   {"use_regex", false}};
  cuts.push_back(bytes);
  ASSIGN_OR_RETURN(const Json around, template_of(gguf, *pre));
  return Json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", added},
              {"normalizer", pre->nfc ? Json{{"type", "NFC"}} : Json(nullptr)},
              {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", cuts}}},
              {"post_processor", around},
              {"decoder", bytes},
              {"model",
               {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", pre->ignore_merges},
                {"vocab", vocab},
                {"merges", merges}}}};
}

Result<Tokenizer> Tokenizer::from_gguf(const GgufTokenizer& gguf) {
  RETURN_IF_ERROR(check_lengths(gguf));
  TokenizerBuilder builder;
  TokenizerParts& parts = builder.parts();
  parts.bos = static_cast<int32_t>(gguf.bos);
  parts.eos = static_cast<int32_t>(gguf.eos);
  parts.unk = static_cast<int32_t>(gguf.unk);
  parts.pad = static_cast<int32_t>(gguf.pad);
  RETURN_IF_ERROR(read_tokens(gguf, &parts));
  bool add_bos = false, add_eos = false;
  if (gguf.model == "gpt2") {
    ASSIGN_OR_RETURN(const Pre* pre, find_pre(gguf.pre));
    RETURN_IF_ERROR(read_byte_level(gguf, *pre, &parts));
    add_bos = pre->add_bos;
  } else if (gguf.model == "llama") {
    RETURN_IF_ERROR(read_scores(gguf, &parts));
    add_bos = true;
  } else if (gguf.model == kUnigram) {
    RETURN_IF_ERROR(read_unigram(gguf, &parts));
    add_eos = true;
  } else if (gguf.model == kWordPieces) {
    RETURN_IF_ERROR(read_word_pieces(gguf, &parts));
    add_bos = add_eos = true;
  } else {
    return error(Code::Unsupported, "tokenizer.ggml.model: \"{}\" is not supported; supported are gpt2, llama, {}, {}",
                 gguf.model, kUnigram, kWordPieces);
  }
  RETURN_IF_ERROR(read_added_tokens(gguf, &builder));
  if (gguf.add_bos.value_or(add_bos && parts.bos >= 0)) {
    if (parts.bos < 0) return invalid("tokenizer.ggml.add_bos_token: is true, but there is no bos_token_id");
    parts.before.push_back(parts.bos);
  }
  if (gguf.add_eos.value_or(add_eos && parts.eos >= 0)) {
    if (parts.eos < 0) return invalid("tokenizer.ggml.add_eos_token: is true, but there is no eos_token_id");
    parts.after.push_back(parts.eos);
  }
  if (gguf.model == kUnigram) add_unigram_pair(gguf, &parts);
  if (gguf.model == kWordPieces) add_bert_pair(&parts);
  return builder.build();
}

}  // namespace reprise::text
