#include "text/pre_tokenizer.h"

#include <algorithm>
#include <array>

#include "text/unicode.h"

namespace reprise::text {
namespace {

constexpr size_t kMaxSteps = 64;
constexpr std::string_view kWordPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Bytes that are visible characters of Latin-1 stand for themselves; the others follow from U+0100 on.
struct VisibleBytes {
  std::array<std::string, 256> of_byte;
  std::array<int16_t, 0x144> byte_of;

  VisibleBytes() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool visible = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t c = visible ? b : next++;
      append_utf8(c, &of_byte[b]);
      byte_of[c] = static_cast<int16_t>(b);
    }
  }
};

// In the order of PreTokenizer::Behavior.
Result<size_t> read_behavior(const JsonPlace& place, std::optional<size_t> fallback) {
  return place.choice("behavior", {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"},
                      fallback);
}

const VisibleBytes& visible_bytes() {
  static const VisibleBytes table;
  return table;
}

}  // namespace

std::string_view visible_byte(uint8_t byte) { return visible_bytes().of_byte[byte]; }
int byte_of_visible(char32_t c) { return c < 0x144 ? visible_bytes().byte_of[c] : -1; }

Result<PreTokenizer> PreTokenizer::from_json(const JsonPlace& place) {
  PreTokenizer out;
  RETURN_IF_ERROR(out.add_json(place));
  return out;
}

void PreTokenizer::add_split(TextPattern pattern, Behavior behavior, bool invert) {
  steps_.push_back({Kind::Split, behavior, {std::move(pattern)}, invert});
}

void PreTokenizer::add_byte_level(bool add_prefix_space, bool use_regex) {
  if (add_prefix_space) steps_.push_back({Kind::Prefix});
  if (use_regex) add_split(TextPattern::regex(kWordPattern).value(), Behavior::Isolated, false);
  steps_.push_back({Kind::Bytes});
}

void PreTokenizer::add_digits(bool individual) {
  steps_.push_back({Kind::Digits, individual ? Behavior::Isolated : Behavior::Contiguous});
}

void PreTokenizer::add_whitespace_split() { steps_.push_back({Kind::WhitespaceSplit, Behavior::Removed}); }

void PreTokenizer::add_metaspace(std::string replacement, Prepend prepend, bool split) {
  Step step{Kind::Metaspace, Behavior::MergedWithNext};
  step.pattern.push_back(TextPattern::literal(replacement));
  step.replacement = std::move(replacement);
  step.prepend = prepend;
  step.split = split;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_bert() {
  steps_.push_back({Kind::WhitespaceSplit, Behavior::Removed});
  steps_.push_back({Kind::Punctuation, Behavior::Isolated});
}

Status PreTokenizer::add_json(const JsonPlace& place) {
  if (steps_.size() >= kMaxSteps) return place.error("more than {} pre-tokenizers", kMaxSteps);
  ASSIGN_OR_RETURN(const std::string type,
                   place.type({"Sequence", "ByteLevel", "Split", "Digits", "Metaspace", "Punctuation", "Whitespace",
                               "WhitespaceSplit", "BertPreTokenizer"}));
  if (type == "Sequence") {
    RETURN_IF_ERROR(place.expect_object({"type", "pretokenizers"}));
    ASSIGN_OR_RETURN(const auto parts, place.array("pretokenizers"));
    for (const JsonPlace& part : parts) RETURN_IF_ERROR(add_json(part));
  } else if (type == "ByteLevel") {
    RETURN_IF_ERROR(place.expect_object({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    ASSIGN_OR_RETURN(const bool add_prefix_space, place.boolean_or("add_prefix_space", true));
    ASSIGN_OR_RETURN(const bool use_regex, place.boolean_or("use_regex", true));
    add_byte_level(add_prefix_space, use_regex);
  } else if (type == "Split") {
    RETURN_IF_ERROR(place.expect_object({"type", "pattern", "behavior", "invert"}));
    if (!place.has("pattern")) return place.error("pattern is missing");
    ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::from_json(place["pattern"]));
    ASSIGN_OR_RETURN(const size_t behavior, read_behavior(place, {}));
    ASSIGN_OR_RETURN(const bool invert, place.boolean_or("invert", false));
    add_split(std::move(pattern), static_cast<Behavior>(behavior), invert);
  } else if (type == "Digits") {
    RETURN_IF_ERROR(place.expect_object({"type", "individual_digits"}));
    ASSIGN_OR_RETURN(const bool individual, place.boolean_or("individual_digits", false));
    add_digits(individual);
  } else if (type == "Punctuation") {
    RETURN_IF_ERROR(place.expect_object({"type", "behavior"}));
    ASSIGN_OR_RETURN(const size_t behavior, read_behavior(place, static_cast<size_t>(Behavior::Isolated)));
    steps_.push_back({Kind::Punctuation, static_cast<Behavior>(behavior)});
  } else if (type == "Metaspace") {
    RETURN_IF_ERROR(
        place.expect_object({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
    ASSIGN_OR_RETURN(std::string replacement, place.string("replacement"));
    if (replacement.empty() || code_point_at(replacement, 0).size != replacement.size())
      return place.error("replacement must be one character, not \"{}\"", replacement);
    ASSIGN_OR_RETURN(const bool prefix, place.boolean_or("add_prefix_space", true));
    const Prepend usual = prefix ? Prepend::Always : Prepend::Never;
    ASSIGN_OR_RETURN(const size_t prepend,
                     place.choice("prepend_scheme", {"always", "first", "never"}, static_cast<size_t>(usual)));
    if (!prefix && prepend != static_cast<size_t>(Prepend::Never))
      return place.error("add_prefix_space is false, but prepend_scheme is not \"never\"");
    ASSIGN_OR_RETURN(const bool split, place.boolean_or("split", true));
    add_metaspace(std::move(replacement), static_cast<Prepend>(prepend), split);
  } else {
    RETURN_IF_ERROR(place.expect_object({"type"}));
    if (type == "BertPreTokenizer") {
      add_bert();
      return Status::ok();
    }
    steps_.push_back({type == "Whitespace" ? Kind::Whitespace : Kind::WhitespaceSplit, Behavior::Removed});
  }
  return Status::ok();
}

// Cuts a word into matches and what lies between them.
Status PreTokenizer::find_pieces(const Step& step, std::string_view word, std::vector<Piece>* pieces) {
  size_t copied = 0;
  const auto add_match = [&](size_t begin, size_t end) {
    if (copied < begin) pieces->push_back({copied, begin, false});
    pieces->push_back({begin, end, true});
    copied = end;
  };
  if (!step.pattern.empty()) {
    RETURN_IF_ERROR(step.pattern[0].for_each(word, add_match));
  } else {
    // Each wanted character is one match.
    bool (*wanted)(char32_t) = step.kind == Kind::Digits        ? is_numeric
                               : step.kind == Kind::Punctuation ? is_punctuation
                                                                : is_whitespace;
    bool last_is_word = false;
    for (size_t at = 0; at < word.size();) {
      const CodePoint c = code_point_at(word, at);
      if (wanted(c.value)) add_match(at, at + c.size);
      // Whitespace also cuts where words and other characters meet.
      if (step.kind == Kind::Whitespace) {
        const bool now = is_word(c.value);
        if (copied < at && now != last_is_word) {
          pieces->push_back({copied, at, false});
          copied = at;
        }
        last_is_word = now;
      }
      at += c.size;
    }
  }
  if (copied < word.size()) pieces->push_back({copied, word.size(), false});
  if (step.invert) {
    for (Piece& p : *pieces) p.is_match = !p.is_match;
  }
  return Status::ok();
}

void PreTokenizer::keep_pieces(std::vector<Piece>* pieces, const Step& step, const WordList::Word& word,
                               WordList* out) {
  std::vector<Piece>& p = *pieces;
  size_t kept = 0;
  switch (step.behavior) {
    case Behavior::Isolated: kept = p.size(); break;
    case Behavior::Removed:
      for (const Piece& piece : p) {
        if (!piece.is_match) p[kept++] = piece;
      }
      break;
    case Behavior::Contiguous:
      for (const Piece& piece : p) {
        if (kept > 0 && p[kept - 1].is_match == piece.is_match) {
          p[kept - 1].end = piece.end;
        } else {
          p[kept++] = piece;
        }
      }
      break;
    case Behavior::MergedWithPrevious: {
      bool previous_matched = false;
      for (const Piece& piece : p) {
        if (piece.is_match && !previous_matched && kept > 0) {
          p[kept - 1].end = piece.end;
        } else {
          p[kept++] = piece;
        }
        previous_matched = piece.is_match;
      }
      break;
    }
    case Behavior::MergedWithNext: {
      std::reverse(p.begin(), p.end());
      bool next_matched = false;
      for (const Piece& piece : p) {
        if (piece.is_match && !next_matched && kept > 0) {
          p[kept - 1].begin = piece.begin;
        } else {
          p[kept++] = piece;
        }
        next_matched = piece.is_match;
      }
      std::reverse(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(kept));
      break;
    }
  }
  for (size_t i = 0; i < kept; ++i) {
    if (p[i].begin == p[i].end) continue;
    out->words.push_back({word.begin + static_cast<uint32_t>(p[i].begin), word.begin + static_cast<uint32_t>(p[i].end),
                          word.at_start && p[i].begin == 0});
  }
}

// The steps that change the text, word by word.
void PreTokenizer::rewrite(const Step& step, WordList* list) {
  std::swap(list->text, list->old_text);
  std::swap(list->words, list->old_words);
  list->text.clear();
  list->words.clear();
  for (const WordList::Word& w : list->old_words) {
    const std::string_view word = std::string_view(list->old_text).substr(w.begin, w.end - w.begin);
    const auto begin = static_cast<uint32_t>(list->text.size());
    if (step.kind == Kind::Prefix) {
      if (!word.starts_with(' ')) list->text += ' ';
      list->text += word;
    } else if (step.kind == Kind::Bytes) {
      for (char byte : word) list->text += visible_byte(static_cast<uint8_t>(byte));
    } else {
      const bool wanted = step.prepend == Prepend::Always || (step.prepend == Prepend::First && w.at_start);
      if (wanted && !word.starts_with(' ') && !word.starts_with(step.replacement)) list->text += step.replacement;
      for (char byte : word) {
        if (byte == ' ') {
          list->text += step.replacement;
        } else {
          list->text += byte;
        }
      }
    }
    list->words.push_back({begin, static_cast<uint32_t>(list->text.size()), w.at_start});
  }
}

Status PreTokenizer::apply(std::string_view stretch, bool at_start, WordList* out) const {
  out->text = stretch;
  out->words.clear();
  if (!stretch.empty()) out->words.push_back({0, static_cast<uint32_t>(stretch.size()), at_start});
  const size_t limit = std::min<size_t>(max_grown_bytes(stretch.size()), UINT32_MAX / 8);
  std::vector<Piece> pieces;
  for (const Step& step : steps_) {
    const bool rewrites = step.kind == Kind::Prefix || step.kind == Kind::Bytes || step.kind == Kind::Metaspace;
    if (rewrites) rewrite(step, out);
    if (out->text.size() > limit) return invalid("pre-tokenizing made a text of more than {} bytes", limit);
    if (rewrites && (step.kind != Kind::Metaspace || !step.split)) continue;
    out->old_words.swap(out->words);
    out->words.clear();
    for (const WordList::Word& word : out->old_words) {
      pieces.clear();
      const std::string_view view = out->view(word);
      RETURN_IF_ERROR(find_pieces(step, view, &pieces));
      keep_pieces(&pieces, step, word, out);
    }
  }
  return Status::ok();
}

}  // namespace reprise::text
