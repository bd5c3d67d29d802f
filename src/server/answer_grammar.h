// AnswerGrammars: what an answer may be, as requests say it (response_format, regex, ...), compiled and kept for the
// next request that says the same. Any thread; the constraints it gives belong to the scheduler's.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "engine/token_constraint.h"
#include "server/call_grammar.h"
#include "text/grammar/token_masks.h"

namespace reprise::server {

struct ServedModel;

// A form of text, not compiled yet. A plain value.
struct AnswerForm {
  struct AnyObject {};
  struct Schema {
    OrderedJson schema;
  };
  struct Regex {
    std::string pattern;
  };
  struct Choice {
    std::vector<std::string> texts;
  };
  std::variant<AnyObject, Schema, Regex, Choice> what;
  std::optional<CallForm> calls = {};  // the answer may be calls of tools instead

  // The same for the same form.
  std::string key() const;
};

class AnswerGrammars {
 public:
  using Masks = std::shared_ptr<text::grammar::TokenMasks>;

  // For the tokens of a model; null without a tokenizer.
  static Result<std::unique_ptr<AnswerGrammars>> of(const ServedModel& model);
  explicit AnswerGrammars(text::grammar::TokenTable::Shared tokens) : tokens_(std::move(tokens)) {}

  // Invalid: the form is wrong or beyond the limits of grammars, and why.
  Result<Masks> masks(const AnswerForm& form);

 private:
  Masks known(const std::string& key);

  text::grammar::TokenTable::Shared tokens_;
  std::mutex mutex_;
  std::list<std::pair<std::string, Masks>> kept_;  // the latest used in front
};

// A constraint that follows one answer.
Result<std::unique_ptr<engine::TokenConstraint>> make_constraint(const AnswerGrammars::Masks& masks);

}  // namespace reprise::server
