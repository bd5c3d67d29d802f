#include "text/tokenizer_normalizer.h"

#include "base/base64.h"
#include "text/bert_characters.h"

namespace reprise::text {
namespace {

constexpr size_t kMaxNormalizers = 64;

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const CodePoint c = code_point_at(text, 0);
    if (!is_whitespace(c.value)) break;
    text.remove_prefix(c.size);
  }
  while (right && !text.empty()) {
    size_t last = text.size() - 1;
    while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    if (!is_whitespace(code_point_at(text, last).value)) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace

Result<Normalizer> Normalizer::from_json(const JsonPlace& place) {
  Normalizer out;
  RETURN_IF_ERROR(out.add_json(place));
  return out;
}

void Normalizer::add_form(NormalForm form) { steps_.push_back({Kind::Form, form, ""}); }
void Normalizer::add_prepend(std::string text) { steps_.push_back({Kind::Prepend, NormalForm::Nfc, std::move(text)}); }
void Normalizer::add_replace(TextPattern pattern, std::string content) {
  steps_.push_back({Kind::Replace, NormalForm::Nfc, std::move(content), {std::move(pattern)}});
}

Status Normalizer::add_json(const JsonPlace& place) {
  if (steps_.size() >= kMaxNormalizers) return place.error("more than {} normalizers", kMaxNormalizers);
  ASSIGN_OR_RETURN(const std::string type, place.type({"Sequence", "NFC", "NFD", "NFKC", "NFKD", "Replace", "Prepend",
                                                       "Strip", "Lowercase", "BertNormalizer", "Precompiled"}));
  if (type == "Sequence") {
    RETURN_IF_ERROR(place.expect_object({"type", "normalizers"}));
    ASSIGN_OR_RETURN(const auto parts, place.array("normalizers"));
    for (const JsonPlace& part : parts) RETURN_IF_ERROR(add_json(part));
  } else if (type == "BertNormalizer") {
    RETURN_IF_ERROR(add_bert(place));
  } else if (type == "Precompiled") {
    RETURN_IF_ERROR(add_charsmap(place));
  } else if (type == "Replace") {
    RETURN_IF_ERROR(place.expect_object({"type", "pattern", "content"}));
    if (!place.has("pattern")) return place.error("pattern is missing");
    ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::from_json(place["pattern"]));
    ASSIGN_OR_RETURN(std::string content, place.string("content"));
    add_replace(std::move(pattern), std::move(content));
  } else if (type == "Prepend") {
    RETURN_IF_ERROR(place.expect_object({"type", "prepend"}));
    ASSIGN_OR_RETURN(std::string text, place.string("prepend"));
    add_prepend(std::move(text));
  } else if (type == "Strip") {
    RETURN_IF_ERROR(place.expect_object({"type", "strip_left", "strip_right"}));
    Step step{Kind::Strip, NormalForm::Nfc, ""};
    ASSIGN_OR_RETURN(step.left, place.boolean_or("strip_left", true));
    ASSIGN_OR_RETURN(step.right, place.boolean_or("strip_right", true));
    steps_.push_back(std::move(step));
  } else {
    RETURN_IF_ERROR(place.expect_object({"type"}));
    if (type == "Lowercase") {
      steps_.push_back({Kind::Lowercase, NormalForm::Nfc, ""});
    } else {
      add_form(type == "NFC"    ? NormalForm::Nfc
               : type == "NFD"  ? NormalForm::Nfd
               : type == "NFKC" ? NormalForm::Nfkc
                                : NormalForm::Nfkd);
    }
  }
  return Status::ok();
}

// In this order, for any order in the file.
Status Normalizer::add_bert(const JsonPlace& place) {
  RETURN_IF_ERROR(place.expect_object({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}));
  ASSIGN_OR_RETURN(const bool clean, place.boolean_or("clean_text", true));
  ASSIGN_OR_RETURN(const bool chinese, place.boolean_or("handle_chinese_chars", true));
  ASSIGN_OR_RETURN(const bool lowercase, place.boolean_or("lowercase", true));
  ASSIGN_OR_RETURN(const bool accents, place.boolean_or("strip_accents", lowercase));
  add_steps(
      {{clean, Kind::Controls}, {chinese, Kind::Ideographs}, {accents, Kind::Accents}, {lowercase, Kind::Lowercase}});
  return Status::ok();
}

void Normalizer::add_bert(bool lowercase, bool without_accents) {
  add_steps({{true, Kind::Controls},
             {true, Kind::Ideographs},
             {without_accents, Kind::Accents},
             {lowercase, Kind::Lowercase}});
}

void Normalizer::add_steps(std::initializer_list<std::pair<bool, Kind>> steps) {
  for (const auto& [wanted, kind] : steps)
    if (wanted) steps_.push_back({kind, NormalForm::Nfc, ""});
}

Status Normalizer::add_charsmap(const JsonPlace& place) {
  RETURN_IF_ERROR(place.expect_object({"type", "precompiled_charsmap"}));
  ASSIGN_OR_RETURN(const std::string text, place.string("precompiled_charsmap"));
  const auto bytes = base64_bytes(text);
  if (!bytes) return place.error("precompiled_charsmap must be base64");
  auto map = Charsmap::read(*bytes);
  if (!map) return place["precompiled_charsmap"].at(map.status());
  add_charsmap(std::move(*map));
  return Status::ok();
}

void Normalizer::add_charsmap(Charsmap map) {
  Step step{Kind::Charsmap, NormalForm::Nfc, ""};
  step.charsmap.push_back(std::move(map));
  steps_.push_back(std::move(step));
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string current(text);
  const size_t limit = max_grown_bytes(text.size());
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::Form: current = normalize(current, step.form); break;
      case Kind::Prepend:
        if (!current.empty()) current.insert(0, step.content);
        break;
      case Kind::Replace: {
        ASSIGN_OR_RETURN(current, step.pattern[0].replace_all(current, step.content, limit));
        break;
      }
      case Kind::Strip: current = std::string(stripped(current, step.left, step.right)); break;
      case Kind::Lowercase: current = to_lowercase(current); break;
      case Kind::Controls: current = without_controls(current); break;
      case Kind::Ideographs: current = with_apart_ideographs(current); break;
      case Kind::Accents: current = without_accents(current); break;
      case Kind::Charsmap: {
        ASSIGN_OR_RETURN(current, step.charsmap[0].apply(current, limit));
        break;
      }
    }
    if (current.size() > limit) return invalid("normalizing made a text of more than {} bytes", limit);
  }
  return current;
}

}  // namespace reprise::text
