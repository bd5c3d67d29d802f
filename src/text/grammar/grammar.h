// Grammar: which texts an answer may be: those that match a regular expression, that are JSON, also of a schema, or one
// of a list; or what is put together of such parts. Compiled once, within limits, into rules over bytes. Immutable and
// shared; any thread. Masks over a vocabulary: token_masks.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/grammar/limits.h"
#include "text/grammar/rules.h"

namespace reprise::text::grammar {

class Grammar {
 public:
  using Shared = std::shared_ptr<const Grammar>;

  // The whole text matches the pattern (regex.h says which syntax).
  static Result<Shared> from_regex(std::string_view pattern, const GrammarLimits& limits = {});
  // The text is JSON that this schema calls valid (schema.h says what is understood, and what is narrower).
  static Result<Shared> from_json_schema(const OrderedJson& schema, const GrammarLimits& limits = {});
  // Any JSON object.
  static Result<Shared> any_json_object(const GrammarLimits& limits = {});
  // The text is one of these.
  static Result<Shared> from_choices(std::span<const std::string> choices, const GrammarLimits& limits = {});

  // The same as a part of a larger text, between two nodes of a rule.
  static Status add_regex(std::string_view pattern, RuleBuilder* rules, NodeId from, NodeId to);
  static Status add_json_schema(const OrderedJson& schema, RuleBuilder* rules, NodeId from, NodeId to);
  static Status add_choices(std::span<const std::string> choices, RuleBuilder* rules, NodeId from, NodeId to);
  // The grammar of a text that `rules` put together; the first rule is all of it.
  static Result<Shared> build(RuleBuilder* rules);

  const RuleSet& rules() const { return rules_; }
  const GrammarLimits& limits() const { return limits_; }
  // Whether this text is allowed, whole. Fails when it takes more than the limits.
  Result<bool> matches(std::string_view text) const;

 private:
  Grammar(RuleSet rules, const GrammarLimits& limits) : rules_(std::move(rules)), limits_(limits) {}

  RuleSet rules_;
  GrammarLimits limits_;
};

}  // namespace reprise::text::grammar
