#include "text/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "text/tokenizer_parts.h"
#include "text/utf8.h"

namespace reprise::text {
namespace {

constexpr size_t kMaxTextBytes = size_t{256} << 20;

// Ids of the words met so far in one call. Text repeats its words, so most are encoded once. Words wait in one block.
class WordCache {
 public:
  explicit WordCache(size_t text_bytes) : enabled_(text_bytes >= kWorthwhileBytes) {}

  bool append_known(std::string_view word, std::vector<int32_t>* ids) const {
    if (!enabled_ || word.size() > kMaxWordBytes) return false;
    const auto it = known_.find(word);
    if (it == known_.end()) return false;
    // By index: the ids live in the very vector that grows.
    for (size_t i = 0; i < it->second.count; ++i) ids->push_back((*ids)[it->second.begin + i]);
    return true;
  }

  void remember(std::string_view word, size_t begin, size_t count) {
    if (!enabled_ || word.size() > kMaxWordBytes || known_.size() >= kMaxWords) return;
    known_.emplace(word, Ids{begin, count});
  }

 private:
  static constexpr size_t kWorthwhileBytes = 1024;
  static constexpr size_t kMaxWordBytes = 64;
  static constexpr size_t kMaxWords = 1 << 16;
  struct Ids {
    size_t begin;  // in the answer so far
    size_t count;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };

  bool enabled_;
  std::unordered_map<std::string, Ids, Hash, std::equal_to<>> known_;
};

// One call of encode.
class Encoder {
 public:
  Encoder(const TokenizerParts& parts, bool parse_special, size_t text_bytes)
      : parts_(parts), parse_special_(parse_special), cache_(text_bytes) {}

  Status encode(std::string_view text, std::vector<int32_t>* ids) {
    std::vector<AddedTokens::Stretch> stretches;
    std::vector<AddedTokens::Stretch> inner;
    std::string normalized;
    parts_.added.cut(text, AddedTokens::Where::Raw, parse_special_, &stretches);
    for (const AddedTokens::Stretch& s : stretches) {
      if (s.id >= 0) {
        ids->push_back(s.id);
        continue;
      }
      std::string_view stretch = text.substr(s.begin, s.end - s.begin);
      if (!parts_.normalizer.changes_nothing()) {
        ASSIGN_OR_RETURN(normalized, parts_.normalizer.apply(stretch));
        stretch = normalized;
      }
      inner.clear();
      parts_.added.cut(stretch, AddedTokens::Where::Normalized, parse_special_, &inner);
      for (const AddedTokens::Stretch& p : inner) {
        if (p.id >= 0) {
          ids->push_back(p.id);
        } else {
          RETURN_IF_ERROR(encode_words(stretch.substr(p.begin, p.end - p.begin), s.begin == 0 && p.begin == 0, ids));
        }
      }
    }
    return Status::ok();
  }

 private:
  Status encode_words(std::string_view stretch, bool at_start, std::vector<int32_t>* ids) {
    RETURN_IF_ERROR(parts_.pre_tokenizer.apply(stretch, at_start, &words_));
    for (const WordList::Word& w : words_.words) {
      const std::string_view word = words_.view(w);
      if (cache_.append_known(word, ids)) continue;
      const size_t begin = ids->size();
      if (const auto* bpe = std::get_if<BpeModel>(&parts_.model)) {
        RETURN_IF_ERROR(bpe->encode(parts_.vocabulary, word, &scratch_, ids));
      } else if (const auto* pieces = std::get_if<WordPieceModel>(&parts_.model)) {
        pieces->encode(parts_.vocabulary, word, ids);
      } else if (const auto* unigram = std::get_if<UnigramModel>(&parts_.model)) {
        unigram->encode(parts_.vocabulary, word, ids);
      } else {
        std::get<ScoreModel>(parts_.model).encode(parts_.vocabulary, word, ids);
      }
      cache_.remember(word, begin, ids->size() - begin);
    }
    return Status::ok();
  }

  const TokenizerParts& parts_;
  bool parse_special_;
  WordCache cache_;
  WordList words_;
  BpeScratch scratch_;
};

}  // namespace

std::optional<std::string_view> TokenizerParts::token(int64_t id) const {
  if (vocabulary.has(id)) return vocabulary.token(static_cast<int32_t>(id));
  if (id < 0 || id > Vocabulary::kMaxId) return std::nullopt;
  const AddedToken* token = added.find(static_cast<int32_t>(id));
  return token == nullptr ? std::nullopt : std::optional<std::string_view>(token->content);
}

int32_t TokenizerParts::find(std::string_view token) const {
  const AddedToken* known = added.find(token);
  return known != nullptr ? known->id : vocabulary.find(token);
}

Status TokenizerBuilder::add_token(AddedToken token) {
  const TokenizerParts& p = *parts_;
  if (token.content.empty()) return invalid("the added token with id {} is empty", token.id);
  if (token.id < 0 || token.id > Vocabulary::kMaxId)
    return invalid("the added token \"{}\" has id {}; ids lie between 0 and {}", token.content, token.id,
                   Vocabulary::kMaxId);
  const int32_t known = p.find(token.content);
  if (known >= 0 && known != token.id)
    return invalid("the added token \"{}\" has id {}, but is also known as {}", token.content, token.id, known);
  const std::optional<std::string_view> other = p.token(token.id);
  if (other && *other != token.content)
    return invalid("tokens \"{}\" and \"{}\" share id {}", *other, token.content, token.id);
  if (p.added.find(token.id) == nullptr) parts_->added.add(std::move(token));
  return Status::ok();
}

Result<Tokenizer> TokenizerBuilder::build() {
  RETURN_IF_ERROR(parts_->added.finish(parts_->normalizer));
  return Tokenizer(std::shared_ptr<const TokenizerParts>(std::move(parts_)));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes)
    return invalid("the text has {} bytes; at most {} can be tokenized at once", text.size(), kMaxTextBytes);
  std::string repaired;
  if (!is_valid_utf8(text)) {
    append_repaired_utf8(text, true, &repaired);
    text = repaired;
  }
  const TokenizerParts& p = *parts_;
  std::vector<int32_t> ids;
  if (options.add_special_tokens) ids = p.before;
  Encoder encoder(p, options.parse_special, text.size());
  RETURN_IF_ERROR(encoder.encode(text, &ids));
  if (options.add_special_tokens) ids.insert(ids.end(), p.after.begin(), p.after.end());
  return ids;
}

Result<EncodedPair> Tokenizer::encode_pair(std::string_view first, std::string_view second, int64_t most) const {
  RETURN_IF_ERROR(parts_->pair_problem);
  if (!parts_->pair)
    return error(Code::Unsupported, "the tokenizer does not say how two texts are put together (post_processor.pair)");
  const TokenizerParts::Pair& p = *parts_->pair;
  const EncodeOptions plain{.add_special_tokens = false};
  ASSIGN_OR_RETURN(const std::vector<int32_t> a, encode(first, plain));
  ASSIGN_OR_RETURN(std::vector<int32_t> b, encode(second, plain));
  const auto others = static_cast<int64_t>(p.before.size() + a.size() + p.between.size() + p.after.size());
  if (others >= most)
    return invalid("the first text takes {} tokens with those around it, and a pair may have {}", others, most);
  if (others + static_cast<int64_t>(b.size()) > most) b.resize(static_cast<size_t>(most - others));
  EncodedPair out;
  for (const std::vector<int32_t>* part :
       std::initializer_list<const std::vector<int32_t>*>{&p.before, &a, &p.between, &b, &p.after})
    out.ids.insert(out.ids.end(), part->begin(), part->end());
  out.second_kind = p.kinds ? p.before.size() + a.size() + p.second_kind : out.ids.size();
  return out;
}

Result<std::vector<int32_t>> Tokenizer::encode_within(std::string_view text, int64_t most, bool at_end) const {
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, encode(text));
  std::vector<int32_t> behind = parts_->after;
  const int32_t last = behind.empty() ? (ids.empty() ? -1 : ids.back()) : behind.back();
  if (at_end && parts_->asks_for_end && last != parts_->eos) {
    behind.push_back(parts_->eos);
    ids.push_back(parts_->eos);
  }
  const auto size = static_cast<int64_t>(ids.size()), kept = static_cast<int64_t>(behind.size());
  if (size <= most) return ids;
  if (most <= kept) return invalid("{} tokens have no room for a text: {} stand behind it", most, kept);
  ids.resize(static_cast<size_t>(most - kept));
  ids.insert(ids.end(), behind.begin(), behind.end());
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  const TokenizerParts& p = *parts_;
  DecoderState state = p.decoder.start();
  std::string text;
  for (int32_t id : ids) {
    const std::optional<std::string_view> token = p.token(id);
    if (!token || (skip_special && p.added.is_special(id))) continue;
    RETURN_IF_ERROR(p.decoder.feed(&state, *token, &text));
  }
  RETURN_IF_ERROR(p.decoder.finish(&state, &text));
  return text;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const int32_t id = parts_->find(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::optional<std::string> Tokenizer::id_to_token(int64_t id) const {
  const std::optional<std::string_view> token = parts_->token(id);
  return token ? std::optional<std::string>(*token) : std::nullopt;
}

Result<std::string> Tokenizer::token_bytes(int64_t id) const {
  const std::optional<std::string_view> token = parts_->token(id);
  return token ? parts_->decoder.bytes_of(*token) : std::string();
}

int32_t Tokenizer::vocab_size() const {
  int32_t size = parts_->vocabulary.size();
  for (const AddedToken& token : parts_->added.all()) size = std::max(size, token.id + 1);
  return size;
}

int32_t Tokenizer::bos_id() const { return parts_->bos; }
int32_t Tokenizer::eos_id() const { return parts_->eos; }
int32_t Tokenizer::unk_id() const { return parts_->unk; }
int32_t Tokenizer::pad_id() const { return parts_->pad; }
bool Tokenizer::is_special(int64_t id) const {
  return id >= 0 && id <= Vocabulary::kMaxId && parts_->added.is_special(static_cast<int32_t>(id));
}

}  // namespace reprise::text
