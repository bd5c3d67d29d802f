// JsonText: the parts of JSON that every schema is made of, as rules of a RuleBuilder, each made when it is first asked
// for. Between tokens there may be one blank: a space, or a line end and some spaces, never more, so that a model
// cannot go on for ever in them. Strings are valid UTF-8 with every escape (surrogates in pairs); where the characters
// of a string are limited (patterns, names), only those that need an escape have one. For one compilation, on one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/grammar/code_points.h"
#include "text/grammar/rules.h"

namespace reprise::text::grammar {

class JsonText {
 public:
  explicit JsonText(RuleBuilder* rules) : rules_(*rules) {}

  RuleId value();
  RuleId object();
  RuleId array();
  RuleId string();
  RuleId number();
  RuleId integer();
  RuleId character();  // one, within a string

  void blank(NodeId from, NodeId to);  // or none
  void comma(NodeId from, NodeId to);
  // A name of an object that is none of these, and the colon.
  void other_name(NodeId from, std::vector<std::string> names, NodeId to);
  void colon(NodeId from, NodeId to);

 private:
  // Makes the rule at the first call; its end is known before it is filled, so rules may call each other.
  template <typename Fill>
  RuleId once(std::optional<RuleId>* kept, const char* name, const Fill& fill);

  RuleBuilder& rules_;
  std::optional<RuleId> value_, object_, array_, string_, number_, integer_, character_, blank_;
};

// A character of the set as it stands in a JSON string.
void emit_json_character(RuleBuilder* rules, NodeId from, const CodePointSet& set, NodeId to);

}  // namespace reprise::text::grammar
