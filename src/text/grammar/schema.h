// A JSON schema as rules: every text that they match is JSON that the schema calls valid (the other way round there are
// limits, on purpose). Understood: type, enum, const, properties, required, additionalProperties, items, prefixItems,
// minItems, maxItems, minLength, maxLength, pattern, format (date-time, date, time, uuid, email, ipv4; others say
// nothing), minimum, maximum, exclusiveMinimum, exclusiveMaximum, anyOf, oneOf, allOf, and $ref within the schema, also
// to itself. Any other keyword is an error with its place, except notes for people.
//
// What is narrower than the standard:
// - Properties come in the order of the schema. An object that declares some gets others only when
//   additionalProperties says so; a name is never written twice among the declared ones.
// - A schema without "type" that speaks of properties means an object, of items an array, and so on.
// - oneOf is read as anyOf. Values of enum and const are written in one way. A whole number has no fraction or
//   exponent, a number with bounds no exponent. Patterns are those of regex.h; with one, or a format, a string has no
//   other limits.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "text/grammar/rules.h"

namespace reprise::text::grammar {

// Adds the rules; the first one that is added is the whole text, and the one that is given.
Result<RuleId> add_schema_rules(const OrderedJson& schema, RuleBuilder* rules);

}  // namespace reprise::text::grammar
