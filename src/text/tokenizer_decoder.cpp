#include "text/tokenizer_decoder.h"

#include <algorithm>
#include <optional>

#include "text/pre_tokenizer.h"
#include "text/utf8.h"

namespace reprise::text {
namespace {

constexpr size_t kMaxStages = 64;
constexpr size_t kMaxStrip = 1 << 20;

// The bytes that the characters of a byte-level token stand for; a token with any other character means itself.
std::string bytes_of_visible(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const CodePoint c = code_point_at(token, at);
    at += c.size;
    const int byte = byte_of_visible(c.value);
    if (byte < 0) return std::string(token);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// "<0x0A>"
std::optional<char> byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (char c : token.substr(3, 2)) {
    const char lower = static_cast<char>(c | 0x20);
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (lower < 'a' || lower > 'f')) return std::nullopt;
    value = value * 16 + (digit ? c - '0' : lower - 'a' + 10);
  }
  return static_cast<char>(value);
}

}  // namespace

Result<Decoder> Decoder::from_json(const JsonPlace& place) {
  Decoder out;
  RETURN_IF_ERROR(out.add_json(place));
  return out;
}

void Decoder::add(Stage stage) {
  stage.fused = fused_;
  fused_ = fused_ || stage.kind == Kind::Fuse || stage.kind == Kind::ByteLevel;
  stages_.push_back(std::move(stage));
}

void Decoder::add_spaces_between() { add({Kind::SpacesBetween}); }
void Decoder::add_byte_level() { add({Kind::ByteLevel}); }
void Decoder::add_byte_fallback() { add({Kind::ByteFallback}); }
void Decoder::add_fuse() { add({Kind::Fuse}); }
void Decoder::add_replace(TextPattern pattern, std::string content) {
  add({Kind::Replace, false, {std::move(pattern)}, std::move(content)});
}
void Decoder::add_metaspace(std::string replacement, bool drop_first) {
  Stage stage{Kind::Metaspace};
  stage.content = std::move(replacement);
  stage.drop_first = drop_first;
  add(std::move(stage));
}
void Decoder::add_strip(std::string character, size_t from_front, size_t from_back) {
  add({Kind::Strip, false, {}, std::move(character), from_front, from_back});
}

void Decoder::add_word_pieces(std::string prefix, bool cleanup) {
  Stage stage{Kind::WordPiece};
  stage.content = std::move(prefix);
  stage.cleanup = cleanup;
  add(std::move(stage));
}

Status Decoder::add_json(const JsonPlace& place) {
  if (stages_.size() >= kMaxStages) return place.error("more than {} decoders", kMaxStages);
  ASSIGN_OR_RETURN(const std::string type, place.type({"Sequence", "ByteLevel", "Replace", "ByteFallback", "Fuse",
                                                       "Strip", "Metaspace", "WordPiece"}));
  if (type == "Sequence") {
    RETURN_IF_ERROR(place.expect_object({"type", "decoders"}));
    ASSIGN_OR_RETURN(const auto parts, place.array("decoders"));
    for (const JsonPlace& part : parts) RETURN_IF_ERROR(add_json(part));
  } else if (type == "ByteLevel") {
    RETURN_IF_ERROR(place.expect_object({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    add_byte_level();
  } else if (type == "Replace") {
    RETURN_IF_ERROR(place.expect_object({"type", "pattern", "content"}));
    if (!place.has("pattern")) return place.error("pattern is missing");
    ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::from_json(place["pattern"]));
    ASSIGN_OR_RETURN(std::string content, place.string("content"));
    add_replace(std::move(pattern), std::move(content));
  } else if (type == "Strip") {
    RETURN_IF_ERROR(place.expect_object({"type", "content", "start", "stop"}));
    ASSIGN_OR_RETURN(std::string content, place.string("content"));
    if (content.empty() || code_point_at(content, 0).size != content.size())
      return place.error("content must be one character, not \"{}\"", content);
    ASSIGN_OR_RETURN(const int64_t start, place.integer("start", 0, kMaxStrip));
    ASSIGN_OR_RETURN(const int64_t stop, place.integer("stop", 0, kMaxStrip));
    add_strip(std::move(content), static_cast<size_t>(start), static_cast<size_t>(stop));
  } else if (type == "WordPiece") {
    RETURN_IF_ERROR(place.expect_object({"type", "prefix", "cleanup"}));
    ASSIGN_OR_RETURN(std::string prefix, place.string_or("prefix", "##"));
    ASSIGN_OR_RETURN(const bool cleanup, place.boolean_or("cleanup", true));
    add_word_pieces(std::move(prefix), cleanup);
  } else if (type == "Metaspace") {
    RETURN_IF_ERROR(
        place.expect_object({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
    ASSIGN_OR_RETURN(std::string replacement, place.string("replacement"));
    if (replacement.empty() || code_point_at(replacement, 0).size != replacement.size())
      return place.error("replacement must be one character, not \"{}\"", replacement);
    ASSIGN_OR_RETURN(const bool prefix, place.boolean_or("add_prefix_space", true));
    ASSIGN_OR_RETURN(const size_t scheme, place.choice("prepend_scheme", {"always", "first", "never"}, prefix ? 0 : 2));
    add_metaspace(std::move(replacement), scheme != 2);
  } else {
    RETURN_IF_ERROR(place.expect_object({"type"}));
    if (type == "Fuse") {
      add_fuse();
    } else {
      add_byte_fallback();
    }
  }
  return Status::ok();
}

// Behind a stage that fuses, most stages can only work on the whole.
bool Decoder::waits_for_all(const Stage& stage) const {
  if (!stage.fused) return false;
  switch (stage.kind) {
    case Kind::ByteLevel:
    case Kind::ByteFallback: return true;
    case Kind::Replace: {
      const std::string* literal = stage.pattern[0].as_literal();
      return literal == nullptr || code_point_at(*literal, 0).size != literal->size();
    }
    case Kind::SpacesBetween:
    case Kind::Fuse:
    case Kind::Strip:
    case Kind::WordPiece:
    case Kind::Metaspace: return false;
  }
  return false;
}

Status Decoder::feed(size_t index, DecoderState* state, std::string_view token, std::string* out) const {
  if (index == stages_.size()) {
    out->append(token);
    return Status::ok();
  }
  if (waits_for_all(stages_[index])) {
    state->stages[index].pending += token;
    return Status::ok();
  }
  return feed_whole(index, state, token, out);
}

Status Decoder::feed_whole(size_t index, DecoderState* state, std::string_view token, std::string* out) const {
  const Stage& stage = stages_[index];
  DecoderState::Stage& s = state->stages[index];
  const size_t seen = stage.fused ? 0 : s.tokens++;
  switch (stage.kind) {
    case Kind::SpacesBetween:
      return feed(index + 1, state, seen > 0 ? " " + std::string(token) : std::string(token), out);
    case Kind::WordPiece: return feed(index + 1, state, word_piece(stage, token, seen == 0), out);
    case Kind::Fuse: return feed(index + 1, state, token, out);
    case Kind::ByteLevel: {
      s.pending += bytes_of_visible(token);
      std::string text;
      s.pending.erase(0, append_repaired_utf8(s.pending, false, &text));
      return feed(index + 1, state, text, out);
    }
    case Kind::Replace: {
      const size_t limit = max_grown_bytes(state->fed);
      ASSIGN_OR_RETURN(const std::string text, stage.pattern[0].replace_all(token, stage.content, limit));
      state->replaced += text.size();
      if (state->replaced > limit) return invalid("decoding made a text of more than {} bytes", limit);
      return feed(index + 1, state, text, out);
    }
    case Kind::ByteFallback: {
      if (const std::optional<char> byte = byte_token(token)) {
        s.pending += *byte;
        return Status::ok();
      }
      RETURN_IF_ERROR(flush_bytes(index, state, out));
      return feed(index + 1, state, token, out);
    }
    case Kind::Strip:
      return feed(index + 1, state, stage.fused ? strip_part(stage, &s, token) : strip_token(stage, token), out);
    case Kind::Metaspace: {
      std::string text;
      for (size_t at = 0; at < token.size();) {
        const size_t size = code_point_at(token, at).size;
        const std::string_view character = token.substr(at, size);
        at += size;
        if (character != stage.content) {
          text += character;
        } else if (seen > 0 || !stage.drop_first) {
          text += ' ';
        }
      }
      return feed(index + 1, state, text, out);
    }
  }
  return Status::ok();
}

Result<std::string> Decoder::bytes_of(std::string_view token) const {
  std::string bytes(token);
  bool is_byte = false;
  for (const Stage& stage : stages_) {
    if (is_byte) break;  // what follows works on characters
    switch (stage.kind) {
      case Kind::SpacesBetween: bytes.insert(0, 1, ' '); break;
      case Kind::ByteLevel: bytes = bytes_of_visible(bytes); break;
      case Kind::Replace: {
        ASSIGN_OR_RETURN(bytes, stage.pattern[0].replace_all(bytes, stage.content, max_grown_bytes(token.size())));
        break;
      }
      case Kind::ByteFallback:
        if (const std::optional<char> byte = byte_token(bytes)) {
          bytes.assign(1, *byte);
          is_byte = true;
        }
        break;
      case Kind::Strip:
        if (!stage.fused) bytes = strip_token(stage, bytes);
        break;
      case Kind::WordPiece: bytes = word_piece(stage, bytes, false); break;
      case Kind::Fuse: break;
      case Kind::Metaspace: {
        for (size_t at = 0; (at = bytes.find(stage.content, at)) != std::string::npos; ++at)
          bytes.replace(at, stage.content.size(), 1, ' ');
        break;
      }
    }
  }
  return bytes;
}

// A run of byte tokens is text when all of it is; otherwise each byte becomes U+FFFD. So the run must have ended.
Status Decoder::flush_bytes(size_t index, DecoderState* state, std::string* out) const {
  std::string& pending = state->stages[index].pending;
  if (pending.empty()) return Status::ok();
  const std::string bytes = std::move(pending);
  pending.clear();
  if (is_valid_utf8(bytes)) return feed(index + 1, state, bytes, out);
  for (size_t i = 0; i < bytes.size(); ++i) RETURN_IF_ERROR(feed(index + 1, state, "\xEF\xBF\xBD", out));
  return Status::ok();
}

// A piece continues the word before it, or stands behind a space; then what English writes without one is joined, token
// by token.
std::string Decoder::word_piece(const Stage& stage, std::string_view token, bool first) {
  std::string text(token);
  if (!first) {
    if (token.starts_with(stage.content))
      text.erase(0, stage.content.size());
    else
      text.insert(0, 1, ' ');
  }
  if (!stage.cleanup) return text;
  constexpr std::pair<std::string_view, std::string_view> kJoined[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [apart, joined] : kJoined)
    for (size_t at = 0; (at = text.find(apart, at)) != std::string::npos; at += joined.size())
      text.replace(at, apart.size(), joined);
  return text;
}

std::string Decoder::strip_token(const Stage& stage, std::string_view token) const {
  const std::string& c = stage.content;
  for (size_t i = 0; i < stage.from_front && token.starts_with(c); ++i) token.remove_prefix(c.size());
  for (size_t i = 0; i < stage.from_back && token.ends_with(c); ++i) token.remove_suffix(c.size());
  return std::string(token);
}

std::string Decoder::strip_part(const Stage& stage, DecoderState::Stage* state, std::string_view part) const {
  std::string text;
  for (size_t at = 0; at < part.size();) {
    const size_t size = code_point_at(part, at).size;
    const std::string_view character = part.substr(at, size);
    at += size;
    const bool is_it = character == stage.content;
    if (is_it && !state->front_done && state->cut < stage.from_front) {
      ++state->cut;
      continue;
    }
    state->front_done = true;
    if (is_it && state->held < stage.from_back) {
      ++state->held;
      continue;
    }
    if (!is_it) {
      for (; state->held > 0; --state->held) text += stage.content;
    }
    text += character;
  }
  return text;
}

Status Decoder::finish(DecoderState* state, std::string* out) const {
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    DecoderState::Stage& s = state->stages[i];
    if (waits_for_all(stage)) {
      const std::string all = std::move(s.pending);
      s.pending.clear();
      if (!all.empty()) RETURN_IF_ERROR(feed_whole(i, state, all, out));
    }
    if (stage.kind == Kind::ByteFallback) RETURN_IF_ERROR(flush_bytes(i, state, out));
    if (stage.kind == Kind::ByteLevel) {
      std::string text;
      append_repaired_utf8(s.pending, true, &text);
      s.pending.clear();
      if (!text.empty()) RETURN_IF_ERROR(feed(i + 1, state, text, out));
    }
  }
  return Status::ok();
}

}  // namespace reprise::text
