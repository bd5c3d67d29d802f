// Drafts under grammars as clients ask for them: cut at the row that breaks the form, and answers that are held to a
// schema with drafts as without. What a schema allows is jsonschema's word (tests/data/grammar).
#include <gtest/gtest.h>

#include "server/dialect_fixture.h"
#include "support/drafters.h"

namespace reprise::server::draft_grammar_test {
namespace {

using testing_support::TestDrafter;

class DraftGrammarTest : public DialectTest {
 protected:
  static constexpr int32_t kEnd = 1;

  struct Case {
    OrderedJson schema;
    std::vector<std::string> yes, no;
  };
  static std::vector<Case> cases() {
    const auto text = read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/grammar/schemas.json");
    EXPECT_TRUE(text.is_ok()) << text.status().message();
    std::vector<Case> out;
    for (const OrderedJson& c : OrderedJson::parse(std::string(text->begin(), text->end())))
      out.push_back({c["schema"], c["yes"].get<std::vector<std::string>>(), c["no"].get<std::vector<std::string>>()});
    return out;
  }
  std::unique_ptr<engine::TokenConstraint> constraint(const OrderedJson& schema) {
    const auto masks = grammars_->masks({AnswerForm::Schema{schema}});
    EXPECT_TRUE(masks.is_ok()) << masks.status().message();
    return make_constraint(*masks).value();
  }
  // Bytes are tokens, but for two that end the text.
  static Tokens tokens_of(const std::string& text) {
    Tokens out;
    for (const char c : text) out.push_back(static_cast<uint8_t>(c));
    out.push_back(kEnd);
    return out;
  }
  static bool has_ends(const std::string& text) {
    return text.find('\0') != std::string::npos || text.find('\1') != std::string::npos;
  }
  static std::vector<uint64_t> mask_of(engine::TokenConstraint& c) {
    const auto mask = c.allowed();
    EXPECT_TRUE(mask.is_ok()) << mask.status().message();
    return {mask->begin(), mask->end()};
  }
};

TEST_F(DraftGrammarTest, AWholeTextIsAllowedExactlyWhereTheSchemaAllowsIt) {
  size_t yes = 0, no = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.schema.dump());
    const auto at_start = constraint(c.schema);
    for (const std::string& text : c.yes) {
      const Tokens tokens = tokens_of(text);
      EXPECT_EQ(at_start->allowed_prefix(tokens), static_cast<int64_t>(tokens.size())) << text;
      ++yes;
    }
    for (const std::string& text : c.no) {
      if (has_ends(text)) continue;
      const Tokens tokens = tokens_of(text);
      EXPECT_LT(at_start->allowed_prefix(tokens), static_cast<int64_t>(tokens.size())) << text;
      ++no;
    }
  }
  EXPECT_GT(yes, 200u);
  EXPECT_GT(no, 3000u);
}

// At each place of a valid text, drafts of eight rows of which one is broken, each in turn: those before it are left.
TEST_F(DraftGrammarTest, DraftsAreCutAtTheRowThatBreaks) {
  constexpr size_t kRows = 8;
  size_t broken = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.schema.dump());
    for (size_t t = 0; t < std::min<size_t>(c.yes.size(), 2); ++t) {
      const Tokens tokens = tokens_of(c.yes[t]);
      // What may not come at each place, by the mask of a constraint that has read the text so far.
      Tokens wrong;
      const auto reader = constraint(c.schema);
      for (const int32_t token : tokens) {
        const auto mask = mask_of(*reader);
        const auto may = [&](int32_t id) { return (mask[static_cast<size_t>(id / 64)] >> (id % 64) & 1) != 0; };
        // A letter or sign, another one at each place; else a byte that no text has.
        int32_t id = 255;
        for (size_t i = 0; i < 95 && id == 255; ++i) {
          const auto sign = static_cast<int32_t>(32 + (37 * wrong.size() + i) % 95);
          if (!may(sign)) id = sign;
        }
        ASSERT_FALSE(may(id));
        wrong.push_back(id);
        ASSERT_TRUE(may(token));
        ASSERT_TRUE(reader->accept(token).is_ok());
      }
      const auto along = constraint(c.schema);
      for (size_t at = 0; at < tokens.size(); ++at) {
        const size_t rows = std::min(kRows, tokens.size() - at);
        const auto before = mask_of(*along);
        for (size_t row = 0; row < rows; ++row) {
          Tokens drafts(tokens.begin() + static_cast<ptrdiff_t>(at),
                        tokens.begin() + static_cast<ptrdiff_t>(at + rows));
          drafts[row] = wrong[at + row];
          ASSERT_EQ(along->allowed_prefix(drafts), static_cast<int64_t>(row)) << c.yes[t] << ", place " << at;
          ++broken;
        }
        ASSERT_EQ(mask_of(*along), before) << "a look ahead has changed what may come";
        ASSERT_TRUE(along->accept(tokens[at]).is_ok());
      }
      // Nothing comes behind the end.
      EXPECT_EQ(along->allowed_prefix(Tokens{'a', 'b'}), 0);
    }
  }
  EXPECT_GT(broken, 3000u);
}

class DraftsOfServerTest : public DialectServerTest {
 protected:
  // Drafts are what a plain answer said before, with errors; what was never asked is drafted as the model would go on
  // without a grammar, which the grammar forbids sooner or later.
  void start_drafting(double wrong) {
    sched::SchedulerOptions scheduling;
    scheduling.speculation.draft_tokens = 6;
    scheduling.speculation.adaptive = false;
    scheduling.drafter = [this, wrong] {
      return std::make_unique<TestDrafter>(
          TestDrafter::Options{wrong, true, 7, FakeExecutor::kVocab},
          [this](std::span<const int32_t> history, int64_t most) {
            std::lock_guard lock(mutex_);
            for (const Tokens& text : said_)
              if (text.size() > history.size() && std::equal(history.begin(), history.end(), text.begin())) {
                const auto at = text.begin() + static_cast<ptrdiff_t>(history.size());
                return Tokens(at, at + std::min<ptrdiff_t>(most, text.end() - at));
              }
            return sched::expected(Tokens(history.begin(), history.end()), most, true);
          });
    };
    start_with_letters({}, std::move(scheduling));
  }
  void say(const std::string& prompt, const Json& answer) {
    Tokens text = model_.tokenizer->encode(prompt, {.add_special_tokens = false}).value();
    const auto ids = answer["output_ids"].get<Tokens>();
    text.insert(text.end(), ids.begin(), ids.end());
    std::lock_guard lock(mutex_);
    said_.push_back(std::move(text));
  }

  std::mutex mutex_;
  std::vector<Tokens> said_;
};

TEST_F(DraftsOfServerTest, AnswersThatAreHeldToASchemaAreThoseOfPlainDecoding) {
  start_drafting(0.2);
  const std::vector<std::string> schemas{
      R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "tags": {"type": "array",
          "items": {"enum": ["red", "green", "grey"]}, "minItems": 2, "maxItems": 5}}, "required": ["name", "tags"],
          "additionalProperties": false})",
      R"({"type": "array", "items": {"type": "string", "pattern": "^(so|if|le)+$"}, "minItems": 3, "maxItems": 6})",
      R"({"anyOf": [{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, {"enum": ["true",
          "false", "none"]}]})"};
  size_t whole = 0;
  for (const std::string& schema : schemas)
    for (const double temperature : {0.0, 0.9})
      for (const std::string prompt : {"name", "a list: ", "dog"}) {
        SCOPED_TRACE(fmt::format("{}, temperature {}, {}", schema, temperature, prompt));
        Json call = {{"text", prompt},
                     {"sampling_params",
                      {{"max_new_tokens", 90}, {"temperature", temperature}, {"seed", 11}, {"json_schema", schema}}}};
        Json off = call;
        off["sampling_params"]["speculative"] = false;
        const Json plain = post("/generate", off), wild = post("/generate", call);
        say(prompt, plain);
        const Json guided = post("/generate", call);
        for (const Json* got : {&wild, &guided}) {
          EXPECT_EQ((*got)["output_ids"], plain["output_ids"]);
          EXPECT_EQ((*got)["text"], plain["text"]);
          EXPECT_EQ((*got)["meta_info"]["finish_reason"], plain["meta_info"]["finish_reason"]);
        }
        EXPECT_FALSE(plain["meta_info"].contains("spec_verify_ct"));
        EXPECT_GT(guided["meta_info"]["spec_accept_token_num"], 0);
        if (plain["meta_info"]["finish_reason"]["type"] != "stop") continue;
        ++whole;
        EXPECT_FALSE(Json::parse(plain["text"].get<std::string>(), nullptr, false).is_discarded()) << plain;
      }
  EXPECT_GT(whole, 8u) << "few answers came to their end";
  const sched::SpeculationStats s = scheduler_->stats().speculation;
  EXPECT_GT(s.accepted_tokens, 200u);
  EXPECT_GT(s.draft_tokens, s.accepted_tokens);
  EXPECT_GT(s.off[static_cast<size_t>(sched::SpecOff::Grammar)], 10u) << "no draft was forbidden at its first row";
}

}  // namespace
}  // namespace reprise::server::draft_grammar_test
