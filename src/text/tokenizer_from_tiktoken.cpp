// Tokenizer::from_tiktoken: the ranks of a tiktoken.model. How words are cut and which tokens are special is code of
// the model there (tokenization_kimi.py of Kimi K2) and no file; the class that tokenizer_config.json names says which.
#include <algorithm>
#include <charconv>

#include "base/base64.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_parts.h"

namespace reprise::text {
namespace {

// Longer than any published token. Each token is cut at each of its bytes.
constexpr size_t kMostBytes = 1024;

// Classes of tokenizer_config.json, the words of each by their name in GGUF files, and how many ids behind the ranks
// are special tokens, "<|reserved_token_ID|>" where the config has no name for them.
struct TiktokenClass {
  std::string_view name, pre;
  int64_t reserved;
};
constexpr TiktokenClass kClasses[] = {{"TikTokenTokenizer", "kimi-k2", 256}};

Result<const TiktokenClass*> class_of(const Json& config) {
  const JsonPlace place(config, "tokenizer_config.json");
  if (!config.is_object()) return place.error("must be an object");
  ASSIGN_OR_RETURN(const std::string name, place.string_or("tokenizer_class", ""));
  std::string known;
  for (const TiktokenClass& c : kClasses) {
    if (c.name == name) return &c;
    known += (known.empty() ? "" : ", ") + std::string(c.name);
  }
  return error(Code::Unsupported,
               "tokenizer_config.json: tokenizer_class: \"{}\" is not known to read a tiktoken.model; known: {}", name,
               known);
}

// Each byte as the visible character that stands for it.
std::string visible(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) out += visible_byte(static_cast<uint8_t>(byte));
  return out;
}

// Lines of a token in base64, a space and its rank, which is its id.
Result<std::vector<std::string>> read_ranks(std::string_view text) {
  std::vector<std::string> tokens(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  size_t number = 0, count = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = std::min(line.find(' '), line.size());
    const auto token = base64_bytes(line.substr(0, space));
    size_t rank = 0;
    const std::string_view digits = line.substr(std::min(space + 1, line.size()));
    const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (!token || token->empty() || problem != std::errc() || stop != digits.data() + digits.size())
      return invalid("line {}: must be a token in base64, a space and its rank", number);
    if (token->size() > kMostBytes)
      return invalid("line {}: a token of {} bytes; at most {} are allowed", number, token->size(), kMostBytes);
    if (rank >= tokens.size())
      return invalid("line {}: rank {}, but there are only {} lines", number, rank, tokens.size());
    if (!tokens[rank].empty()) return invalid("line {}: rank {} occurs twice", number, rank);
    tokens[rank] = visible(*token);
    ++count;
  }
  tokens.resize(count);
  for (size_t rank = 0; rank < count; ++rank)
    if (tokens[rank].empty()) return invalid("no token has rank {}, and others are higher", rank);
  return tokens;
}

// tiktoken joins the neighbours that make the token of the lowest rank, the leftmost first: every way to make a token
// of two others is a merge of that token's rank.
Status add_merges(const std::vector<std::string>& tokens, const Vocabulary& vocabulary, BpeModel* model) {
  model->reserve(tokens.size() * 2);
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if ((token[cut] & 0xC0) == 0x80) continue;  // inside of a character
      const std::string_view left = token.substr(0, cut), right = token.substr(cut);
      if (vocabulary.find(left) < 0 || vocabulary.find(right) < 0) continue;
      RETURN_IF_ERROR(model->add_merge(vocabulary, left, right, static_cast<uint32_t>(rank)));
    }
  }
  model->finish(vocabulary);
  return Status::ok();
}

Status read_vocabulary(std::string_view ranks, TokenizerParts* parts, int64_t* count) {
  ASSIGN_OR_RETURN(const std::vector<std::string> tokens, read_ranks(ranks));
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  parts->vocabulary.reserve(tokens.size(), bytes);
  for (size_t rank = 0; rank < tokens.size(); ++rank)
    RETURN_IF_ERROR(parts->vocabulary.add(tokens[rank], static_cast<int64_t>(rank)));
  if (parts->vocabulary.distinct() != tokens.size()) return invalid("a token occurs twice");
  for (int byte = 0; byte < 256; ++byte)
    if (parts->vocabulary.find(visible_byte(static_cast<uint8_t>(byte))) < 0)
      return invalid("no token is the byte 0x{:02X} alone; each byte needs one", byte);
  BpeOptions options;
  options.ignore_merges = true;
  BpeModel model(std::move(options));
  RETURN_IF_ERROR(add_merges(tokens, parts->vocabulary, &model));
  parts->model = std::move(model);
  *count = static_cast<int64_t>(tokens.size());
  return Status::ok();
}

}  // namespace

Result<Tokenizer> Tokenizer::from_tiktoken(std::string_view ranks, const Json& config) {
  ASSIGN_OR_RETURN(const TiktokenClass* kind, class_of(config));
  TokenizerBuilder builder;
  int64_t first = 0;
  const Status read = read_vocabulary(ranks, &builder.parts(), &first);
  if (!read) return read.at("tiktoken.model");
  RETURN_IF_ERROR(add_byte_level_words(std::string(kind->pre), false, &builder.parts()));
  const auto listed = config.find("added_tokens_decoder");
  for (int64_t id = first; id < first + kind->reserved; ++id) {
    if (listed != config.end() && listed->is_object() && listed->contains(std::to_string(id))) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.content = fmt::format("<|reserved_token_{}|>", id);
    token.special = true;
    RETURN_IF_ERROR(builder.add_token(std::move(token)));
  }
  RETURN_IF_ERROR(read_tokenizer_config(config, &builder));
  return builder.build();
}

}  // namespace reprise::text
