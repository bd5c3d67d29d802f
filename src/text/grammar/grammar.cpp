#include "text/grammar/grammar.h"

#include "text/grammar/regex.h"
#include "text/grammar/schema.h"
#include "text/grammar/state_table.h"
#include "text/utf8.h"

namespace reprise::text::grammar {

Result<Grammar::Shared> Grammar::build(RuleBuilder* rules) {
  ASSIGN_OR_RETURN(RuleSet set, rules->build());
  return Shared(new Grammar(std::move(set), rules->limits()));
}

Status Grammar::add_regex(std::string_view pattern, RuleBuilder* rules, NodeId from, NodeId to) {
  ASSIGN_OR_RETURN(const RegexTree tree, parse_regex(pattern, rules->limits()));
  emit_regex(rules, from, tree, RegexUse::Whole, emit_utf8, to);
  return Status::ok();
}

Status Grammar::add_json_schema(const OrderedJson& schema, RuleBuilder* rules, NodeId from, NodeId to) {
  ASSIGN_OR_RETURN(const RuleId root, add_schema_rules(schema, rules));
  rules->call(from, root, to);
  return Status::ok();
}

Status Grammar::add_choices(std::span<const std::string> choices, RuleBuilder* rules, NodeId from, NodeId to) {
  if (choices.empty()) return invalid("choices: there must be at least one");
  const size_t most = rules->limits().max_choice_bytes;
  size_t bytes = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!is_valid_utf8(choices[i])) return invalid("choices: number {} is not UTF-8", i);
    bytes += choices[i].size();
  }
  if (bytes > most) return invalid("choices: {} bytes; at most {} (GrammarLimits::max_choice_bytes)", bytes, most);
  rules->choices(from, {choices.begin(), choices.end()}, to);
  return Status::ok();
}

Result<Grammar::Shared> Grammar::from_regex(std::string_view pattern, const GrammarLimits& limits) {
  RuleBuilder rules(limits);
  const RuleId text = rules.add_rule("regex");
  RETURN_IF_ERROR(add_regex(pattern, &rules, rules.start(text), rules.end(text)));
  return build(&rules);
}

Result<Grammar::Shared> Grammar::from_json_schema(const OrderedJson& schema, const GrammarLimits& limits) {
  RuleBuilder rules(limits);
  RETURN_IF_ERROR(add_schema_rules(schema, &rules).status());
  return build(&rules);
}

Result<Grammar::Shared> Grammar::any_json_object(const GrammarLimits& limits) {
  return from_json_schema({{"type", "object"}}, limits);
}

Result<Grammar::Shared> Grammar::from_choices(std::span<const std::string> choices, const GrammarLimits& limits) {
  RuleBuilder rules(limits);
  const RuleId text = rules.add_rule("choices");
  RETURN_IF_ERROR(add_choices(choices, &rules, rules.start(text), rules.end(text)));
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
