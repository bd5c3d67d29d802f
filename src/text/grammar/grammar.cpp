#include "text/grammar/grammar.h"

#include "text/grammar/regex.h"
#include "text/grammar/schema.h"
#include "text/grammar/state_table.h"
#include "text/unicode.h"

namespace reprise::text::grammar {

Result<Grammar::Shared> Grammar::build(RuleBuilder* rules) {
  ASSIGN_OR_RETURN(RuleSet set, rules->build());
  return Shared(new Grammar(std::move(set), rules->limits()));
}

Result<Grammar::Shared> Grammar::from_regex(std::string_view pattern, const GrammarLimits& limits) {
  ASSIGN_OR_RETURN(const RegexTree tree, parse_regex(pattern, limits));
  RuleBuilder rules(limits);
  const RuleId text = rules.add_rule("regex");
  emit_regex(&rules, rules.start(text), tree, RegexUse::Whole, emit_utf8, rules.end(text));
  return build(&rules);
}

Result<Grammar::Shared> Grammar::from_json_schema(const OrderedJson& schema, const GrammarLimits& limits) {
  RuleBuilder rules(limits);
  RETURN_IF_ERROR(add_schema_rules(schema, &rules));
  return build(&rules);
}

Result<Grammar::Shared> Grammar::any_json_object(const GrammarLimits& limits) {
  return from_json_schema({{"type", "object"}}, limits);
}

Result<Grammar::Shared> Grammar::from_choices(std::span<const std::string> choices, const GrammarLimits& limits) {
  if (choices.empty()) return invalid("choices: there must be at least one");
  size_t bytes = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!is_valid_utf8(choices[i])) return invalid("choices: number {} is not UTF-8", i);
    bytes += choices[i].size();
  }
  if (bytes > limits.max_choice_bytes)
    return invalid("choices: {} bytes; at most {} (GrammarLimits::max_choice_bytes)", bytes, limits.max_choice_bytes);
  RuleBuilder rules(limits);
  const RuleId text = rules.add_rule("choices");
  rules.choices(rules.start(text), {choices.begin(), choices.end()}, rules.end(text));
  return build(&rules);
}

Result<bool> Grammar::matches(std::string_view text) const {
  StateTable states(&rules_, limits_);
  StateId state = states.start();
  for (const char c : text) {
    if (state == StateTable::kDead || state == StateTable::kFull) break;
    state = states.step(state, static_cast<uint8_t>(c));
  }
  if (state == StateTable::kFull) return states.full_error();
  return states.can_end(state);
}

}  // namespace reprise::text::grammar
