// JSON schemas as grammars: against Python's jsonschema (tests/data/grammar), random walks, and what is refused.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>

#include "base/file.h"
#include "base/json.h"
#include "text/grammar/token_masks.h"

namespace reprise::text::grammar::grammar_schema_test {
namespace {

OrderedJson golden(const std::string& name) {
  const auto text = read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/grammar/" + name);
  EXPECT_TRUE(text) << text.status().message();
  auto json = parse_ordered_json(text ? *text : "[]", name);
  EXPECT_TRUE(json) << json.status().message();
  return json ? std::move(json).value() : OrderedJson::array();
}

Result<Grammar::Shared> compile(std::string_view schema, const GrammarLimits& limits = {}) {
  ASSIGN_OR_RETURN(const OrderedJson json, parse_ordered_json(schema, "schema"));
  return Grammar::from_json_schema(json, limits);
}

std::string error_of(std::string_view schema, const GrammarLimits& limits = {}) {
  const auto grammar = compile(schema, limits);
  return grammar ? "" : grammar.status().message();
}

bool matches(std::string_view schema, std::string_view text) {
  const auto grammar = compile(schema);
  EXPECT_TRUE(grammar) << grammar.status().message();
  const auto answer = grammar ? (*grammar)->matches(text) : Result<bool>(false);
  EXPECT_TRUE(answer) << answer.status().message();
  return answer && *answer;
}

TEST(GrammarSchema, AgreesWithPython) {
  const OrderedJson cases = golden("schemas.json");
  ASSERT_GT(cases.size(), 50u);
  for (const OrderedJson& c : cases) {
    const auto grammar = Grammar::from_json_schema(c["schema"]);
    ASSERT_TRUE(grammar) << c["schema"] << ": " << grammar.status().message();
    for (const char* answer : {"yes", "no"}) {
      for (const OrderedJson& text : c[answer]) {
        const auto found = (*grammar)->matches(text.get<std::string>());
        ASSERT_TRUE(found) << found.status().message();
        EXPECT_EQ(*found, answer == std::string_view("yes")) << c["schema"] << " and " << text.get<std::string>();
      }
    }
  }
}

// Every byte, and pieces as JSON has them. The first token ends a text.
TokenTable::Shared json_tokens() {
  std::vector<std::string> tokens{"<end>"};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* word :
       {"{\"",      "\":",  "\": ", "\", \"", "\"}",   "\"]", "},",   "}}",   "[[",   "]]",  "[{",
        "tr",       "true", "ull",  "\\u",    "\\ud8", "\\n", "\\\"", "\n  ", "é",    "😀",   "\xF0\x9F",
        "\x98\x80", "0.",   "e+",   "-1",     "12",    "ab",  "name", "-0",   "2024", ":00", "\"a\": "})
    tokens.emplace_back(word);
  auto table = TokenTable::from_bytes(std::move(tokens), std::vector<int32_t>{0});
  EXPECT_TRUE(table);
  return std::move(table).value();
}

// A random text of the grammar; after a while it takes what closes whatever is open.
std::string random_walk(const std::shared_ptr<TokenMasks>& masks, uint64_t seed) {
  const TokenTable& tokens = masks->tokens();
  auto matcher = GrammarMatcher::create(masks);
  EXPECT_TRUE(matcher);
  std::string text;
  const auto random = [&](size_t below) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<size_t>(seed >> 33) % below;
  };
  for (size_t step = 0; step < 3000; ++step) {
    const auto mask = matcher->allowed();
    EXPECT_TRUE(mask) << mask.status().message() << " after " << text;
    if (!mask) return text;
    std::vector<int32_t> allowed;
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (mask_has(**mask, static_cast<int32_t>(id))) allowed.push_back(static_cast<int32_t>(id));
    }
    int32_t next = allowed[random(allowed.size())];
    if (random(4) < (step > 20 ? 3 : 1)) {
      for (const char closer : {'\0', '"', '}', ']', 'a', '0', 'n', ',', ':'}) {
        const int32_t id = closer == 0 ? 0 : 1 + closer;
        if (step <= 60 && (closer > ']' || closer == '0')) break;
        if (!mask_has(**mask, id)) continue;
        next = id;
        break;
      }
    }
    EXPECT_TRUE(matcher->accept(next).is_ok());
    if (matcher->ended()) return text;
    text += tokens.bytes(next);
  }
  ADD_FAILURE() << "no end: " << text;
  return text;
}

// The walks of today are those that jsonschema found valid (tools/golden/make_grammar_schemas.py).
TEST(GrammarSchema, RandomWalksAreValid) {
  const auto table = json_tokens();
  OrderedJson walks = OrderedJson::array();
  uint64_t seed = 1;
  const char* other = std::getenv("REPRISE_GRAMMAR_SCHEMAS");
  const OrderedJson cases =
      other != nullptr ? parse_ordered_json(read_file(other).value(), other).value() : golden("schemas.json");
  for (const OrderedJson& c : cases) {
    const auto grammar = Grammar::from_json_schema(c["schema"]);
    if (other != nullptr && !grammar) continue;  // random ones may be more than is understood
    ASSERT_TRUE(grammar) << grammar.status().message();
    const auto masks = std::make_shared<TokenMasks>(*grammar, table);
    OrderedJson texts = OrderedJson::array();
    for (int i = 0; i < 6; ++i) {
      texts.push_back(random_walk(masks, seed++));
      EXPECT_TRUE(*(*grammar)->matches(texts.back().get<std::string>())) << texts.back();
    }
    walks.push_back({{"schema", c["schema"]}, {"walks", texts}});
  }
  if (const char* path = std::getenv("REPRISE_GRAMMAR_WALKS")) {
    std::string out;
    for (const OrderedJson& entry : walks) out += (out.empty() ? "[\n" : ",\n") + entry.dump();
    ASSERT_TRUE(write_file_atomically(path, out + "\n]\n").is_ok());
    return;
  }
  EXPECT_EQ(walks, golden("walks.json")) << "to be checked again: see tests/data/grammar/README.md";
}

TEST(GrammarSchema, WhatIsNarrowerThanTheStandard) {
  const char* two = R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})";
  EXPECT_TRUE(matches(two, R"({"a":1,"b":2})"));
  EXPECT_FALSE(matches(two, R"({"b":1,"a":2})"));       // the order of the schema
  EXPECT_FALSE(matches(two, R"({"a":1,"c":2})"));       // others only when they are allowed
  EXPECT_FALSE(matches(R"({"properties": {}})", "1"));  // what speaks of properties is an object
  EXPECT_TRUE(matches(two, "{ \"a\": 1,\n      \"b\": 2\n}"));
  EXPECT_FALSE(matches(two, R"({  "a":1})"));   // one space
  EXPECT_FALSE(matches(two, "{\n\n\"a\":1}"));  // one line end
  EXPECT_FALSE(matches(two, " {\"a\":1}"));
  EXPECT_FALSE(matches(two, "{\n" + std::string(33, ' ') + "\"a\":1}"));
}

TEST(GrammarSchema, AnyObject) {
  const auto grammar = Grammar::any_json_object();
  ASSERT_TRUE(grammar);
  EXPECT_TRUE(*(*grammar)->matches(R"({"a": [1, {"b": "\ud83d\ude00"}], "c": -1.5e+3})"));
  for (const char* text :
       {"[]", "{", R"({"a"})", R"({"a": "\ud83d"})", R"({"a": 01})", R"({"a": 1,})", "{\"a\": \"\t\"}"})
    EXPECT_FALSE(*(*grammar)->matches(text)) << text;
  // As deep as allowed, and what is open there can still be closed.
  GrammarLimits limits;
  limits.max_depth = 10;
  const auto shallow = Grammar::any_json_object(limits);
  ASSERT_TRUE(shallow);
  const auto nested = [](size_t depth) { return "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}"; };
  EXPECT_TRUE(*(*shallow)->matches(nested(2)));
  EXPECT_FALSE(*(*shallow)->matches(nested(20)));
}

TEST(GrammarSchema, WhatIsNotUnderstoodNamesItsPlace) {
  EXPECT_EQ(error_of(R"({"properties": {"a/b": {"items": {"multipleOf": 3}}}})"),
            "json_schema: #/properties/a~1b/items: keyword \"multipleOf\" is not supported");
  EXPECT_EQ(error_of(R"({"anyOf": [{"type": "int"}]})"),
            "json_schema: #/anyOf/0: type \"int\" is not one of object, array, string, number, integer, boolean, null");
  EXPECT_EQ(error_of(R"({"$ref": "#/$defs/x"})"), "json_schema: #: $ref \"#/$defs/x\" leads nowhere");
  EXPECT_EQ(error_of(R"({"$ref": "https://example.org/x"})"),
            "json_schema: #: $ref can only lead into the schema itself (\"#/$defs/name\")");
  EXPECT_EQ(error_of(R"({"type": "string", "pattern": "b(?=a)c"})"),
            "json_schema: #/pattern: regex: position 1: look-around cannot be used here");
  EXPECT_EQ(error_of(R"({"type": "number", "minimum": 0.5})"),
            "json_schema: #: minimum 0.5 of a number must be a whole number");
  EXPECT_EQ(error_of("3"), "json_schema: #: a schema must be an object, true or false");
  EXPECT_EQ(error_of(R"({"minItems": -1})"), "json_schema: #: minItems must be a whole number from 0 to 1000000000");
  for (const char* schema :
       {R"({"properties": 1})", R"({"required": "a"})", R"({"items": [{}]})", R"({"enum": 1})", R"({"anyOf": []})",
        R"({"allOf": {}})", R"({"pattern": 1})", R"({"format": 1})", R"({"$ref": 1})", R"({"prefixItems": {}})",
        R"({"type": "integer", "maximum": 1e300})", R"({"type": "integer", "maximum": "1"})",
        R"({"enum": ["a"], "minLength": 2})", R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})"})
    EXPECT_NE(error_of(schema), "") << schema;
}

TEST(GrammarSchema, WhatNothingCanMeetIsAnError) {
  EXPECT_EQ(error_of("false"), "json_schema: #: no text can match it");
  // A reference to itself, and one that has no way out.
  EXPECT_NE(error_of(R"({"$ref": "#"})"), "");
  EXPECT_NE(error_of(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})"), "");
  EXPECT_NE(error_of(R"({"allOf": [{"$ref": "#"}, {"type": "null"}]})"), "");
  EXPECT_NE(error_of(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})"), "");
  EXPECT_NE(error_of(R"({"type": "integer", "minimum": 3, "maximum": 2})"), "");
  EXPECT_NE(error_of(R"({"type": "array", "minItems": 3, "maxItems": 2})"), "");
  EXPECT_NE(error_of(R"({"type": "string", "minLength": 3, "maxLength": 2})"), "");
  EXPECT_NE(error_of(R"({"required": ["a"], "additionalProperties": false})"), "");
  EXPECT_NE(error_of(R"({"type": "string", "enum": [1]})"), "");
  EXPECT_NE(error_of(R"({"allOf": [{"type": "string"}, {"type": "null"}]})"), "");
}

TEST(GrammarSchema, HostileSchemasMeetLimits) {
  EXPECT_NE(error_of(R"({"type": "string", "minLength": 1000000000})"), "");
  EXPECT_NE(error_of(R"({"type": "array", "maxItems": 1000000000, "items": {"type": "null"}})"), "");
  EXPECT_NE(error_of(R"({"type": "string", "pattern": "((a{1000}){1000}){999}b"})"), "");
  // A schema that never comes to an end when it is merged.
  EXPECT_EQ(error_of(R"({"$defs": {"a": {"properties": {"x": {"$ref": "#/$defs/a"}}, "allOf": [{"$ref": "#/$defs/b"}]},
                         "b": {"properties": {"x": {"$ref": "#/$defs/b"}}, "title": "b"}}, "$ref": "#/$defs/a"})"),
            "json_schema: more than 10000 values, with merged copies (GrammarLimits::max_schema_values)");
  std::string many = R"({"enum": [)";
  for (int i = 0; i < 50'000; ++i) many += fmt::format("{}\"value {}\"", i == 0 ? "" : ",", i);
  EXPECT_NE(error_of(many + "]}"), "");
  std::string doubling = R"({"$defs": {"d0": {"properties": {"a": {"type": "null"}}})";
  for (int i = 1; i < 40; ++i)
    doubling +=
        fmt::format(R"(, "d{}": {{"allOf": [{{"$ref": "#/$defs/d{}"}}, {{"$ref": "#/$defs/d{}"}}]}})", i, i - 1, i - 1);
  EXPECT_NE(error_of(doubling + R"(}, "$ref": "#/$defs/d39"})"), "");
  OrderedJson deep = {{"type", "null"}};
  for (int i = 0; i < 1000; ++i) deep = OrderedJson{{"items", deep}};
  EXPECT_FALSE(Grammar::from_json_schema(deep));
}

}  // namespace
}  // namespace reprise::text::grammar::grammar_schema_test
