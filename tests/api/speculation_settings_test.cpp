// What the settings of speculative decoding mean: SGLang's flags, and vLLM's JSON.
#include "api/speculation_settings.h"

#include <gtest/gtest.h>

namespace reprise::api {
namespace {

Result<spec::SpecOptions> options(const std::vector<std::pair<std::string, std::string>>& values) {
  SpeculationSettings s;
  const auto bindings = s.bindings();
  for (const auto& [key, value] : values) RETURN_IF_ERROR(settings::set(bindings, "speculative_" + key, value));
  return s.options();
}

void fails(const std::vector<std::pair<std::string, std::string>>& values, std::string_view part) {
  const auto o = options(values);
  ASSERT_FALSE(o.is_ok()) << part;
  EXPECT_NE(o.status().message().find(part), std::string::npos) << o.status().message();
  EXPECT_EQ(o.status().message().find('\n'), std::string::npos) << o.status().message();
}

TEST(SpeculationSettings, NothingIsGuessedUntilAsked) {
  const auto o = options({});
  ASSERT_TRUE(o.is_ok()) << o.status().message();
  EXPECT_EQ(o->algorithm, spec::Algorithm::None);
  EXPECT_TRUE(o->adaptive);
}

TEST(SpeculationSettings, FlagsOfSglang) {
  const auto o = options({{"algorithm", "NGRAM"},
                          {"num_draft_tokens", "12"},
                          {"ngram_min_match_window_size", "2"},
                          {"ngram_max_match_window_size", "9"},
                          {"ngram_max_trie_depth", "18"},
                          {"ngram_capacity", "1000"},
                          {"adaptive", "off"},
                          {"max_rows", "40"},
                          {"accept_threshold_single", "1.0"}});
  ASSERT_TRUE(o.is_ok()) << o.status().message();
  EXPECT_EQ(o->algorithm, spec::Algorithm::Ngram);
  EXPECT_EQ(o->draft_tokens, 12);
  EXPECT_EQ(o->shortest_match, 2);
  EXPECT_EQ(o->longest_match, 9);
  EXPECT_EQ(o->suffix_depth, 18);
  EXPECT_EQ(o->suffix_tokens, 1000);
  EXPECT_FALSE(o->adaptive);
  EXPECT_EQ(o->max_rows, 40);
  EXPECT_EQ(options({{"num_steps", "3"}})->draft_tokens, 4);
  fails({{"algorithm", "MEDUSA"}}, "allowed: NGRAM, SUFFIX, STANDALONE, NEXTN, MTP, EAGLE, EAGLE3, none");
  fails({{"algorithm", "lookahead"}}, "allowed: NGRAM, SUFFIX, STANDALONE, NEXTN, ");
  fails({{"accept_threshold_single", "0.9"}}, "`speculative_accept_threshold_single` 0.9 would change answers");
  fails({{"accept_threshold_acc", "0.5"}}, "`speculative_accept_threshold_acc` 0.5 would change answers");
  fails({{"ngram_min_match_window_size", "13"}}, "allowed: 13 (the smallest) to 64");
}

TEST(SpeculationSettings, RowsAndStepsThatDisagreeAreSaid) {
  SpeculationSettings s;
  s.steps = 3, s.draft_tokens = 8;
  ASSERT_EQ(s.notices().size(), 1u);
  EXPECT_NE(s.notices()[0].find("effective: 4"), std::string::npos);
  EXPECT_EQ(s.options()->draft_tokens, 4);
  s.draft_tokens = 4;
  EXPECT_TRUE(s.notices().empty());
}

TEST(SpeculationSettings, JsonOfVllm) {
  const auto o = options({{"config",
                           R"({"method": "suffix", "num_speculative_tokens": 5, "suffix_decoding_max_tree_depth": 12,
                               "suffix_decoding_max_cached_requests": 100, "suffix_decoding_max_spec_factor": 2.0,
                               "suffix_decoding_min_token_prob": 0.2})"}});
  ASSERT_TRUE(o.is_ok()) << o.status().message();
  EXPECT_EQ(o->algorithm, spec::Algorithm::Suffix);
  EXPECT_EQ(o->draft_tokens, 6);
  EXPECT_EQ(o->suffix_depth, 12);
  EXPECT_EQ(o->suffix_answers, 100);
  EXPECT_EQ(o->suffix_factor, 2.0);
  EXPECT_EQ(o->suffix_least_chance, 0.2);
  const auto n = options({{"config", R"({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2})"}});
  ASSERT_TRUE(n.is_ok()) << n.status().message();
  EXPECT_EQ(n->algorithm, spec::Algorithm::Ngram);
  EXPECT_EQ(n->longest_match, 2);
  EXPECT_EQ(n->shortest_match, 2);
  fails({{"config", "{"}}, "`speculative_config`");
  fails({{"config", "[]"}}, "an object with a method was expected");
  fails({{"config", R"({"method": "medusa"})"}},
        "method medusa is not there; allowed: ngram, suffix, draft_model, mtp");
  fails({{"config", R"({"method": 3})"}}, "method 3 is not there; allowed: ngram, suffix");
  fails({{"config", R"({"method": "ngram", "mode": "x"})"}}, "key \"mode\" is not known; allowed: method, model, ");
  fails({{"config", R"({"method": "draft_model", "model": 3})"}}, "model must be a path or a name");
  fails({{"config", R"({"method": "ngram", "num_speculative_tokens": 64})"}}, "a whole number from 1 to 63");
  fails({{"config", R"({"method": "ngram", "num_speculative_tokens": "3"})"}}, "a whole number from 1 to 63");
  fails({{"config", R"({"method": "suffix", "suffix_decoding_max_spec_factor": 0})"}}, "allowed: above 0, up to 64");
  fails({{"algorithm", "NGRAM"}, {"config", R"({"method": "ngram"})"}}, "give one of them");
}

// SGLang's STANDALONE takes --speculative-draft-model-path, vLLM's draft_model the key "model".
TEST(SpeculationSettings, ADraftModelIsNamedExactlyWhereOneDrafts) {
  SpeculationSettings s;
  EXPECT_EQ(*s.draft_model(), "");
  s.algorithm = "standalone", s.draft_model_path = "org/small";
  EXPECT_EQ(*s.draft_model(), "org/small");
  EXPECT_EQ(s.options()->algorithm, spec::Algorithm::Model);
  EXPECT_EQ(s.options()->draft_tokens, 4);
  s.draft_tokens = 6;
  EXPECT_EQ(s.options()->draft_tokens, 6);
  SpeculationSettings json;
  json.config = R"({"method": "draft_model", "model": "org/small", "num_speculative_tokens": 5})";
  EXPECT_EQ(*json.draft_model(), "org/small");
  EXPECT_EQ(json.options()->draft_tokens, 6);
  json.config = R"({"method": "draft_model", "model": "org/small"})";
  EXPECT_EQ(json.options()->draft_tokens, 4);
  // EAGLE without a head is the checkpoint's own layer, as in SGLang.
  SpeculationSettings eagle;
  eagle.algorithm = "EAGLE";
  EXPECT_EQ(eagle.options()->algorithm, spec::Algorithm::Prediction);
  EXPECT_EQ(eagle.options()->draft_tokens, 4);
  eagle.draft_model_path = "org/head";
  EXPECT_EQ(eagle.options()->algorithm, spec::Algorithm::Eagle);
  json.config = R"({"method": "mtp", "num_speculative_tokens": 1})";
  EXPECT_EQ(json.options()->algorithm, spec::Algorithm::Prediction);
  EXPECT_EQ(*json.draft_model(), "");
  fails({{"algorithm", "EAGLE3"}},
        "`speculative_draft_model_path` is missing: `speculative_algorithm` EAGLE3 needs a head");
  fails({{"algorithm", "NEXTN"}, {"draft_model_path", "x"}}, "which needs no second model");
  fails({{"algorithm", "STANDALONE"}}, "`speculative_draft_model_path` is missing");
  fails({{"algorithm", "NGRAM"}, {"draft_model_path", "x"}},
        "`speculative_draft_model_path` x with `speculative_algorithm` NGRAM, which needs no second model");
  fails({{"draft_model_path", "x"}}, "allowed with it: STANDALONE");
  fails({{"config", R"({"method": "suffix", "model": "x"})"}}, "which needs no second model");
}

TEST(SpeculationSettings, ExactnessThatIsRequiredIsAnErrorWhereThereIsNone) {
  SpeculationSettings s;
  DeviceInfo same, other;
  other.row_invariant = false;
  other.name = "an NPU";
  s.algorithm = "NGRAM";
  EXPECT_TRUE(s.check_engine("a reason", same).is_ok());
  EXPECT_TRUE(s.check_engine("", other).is_ok());
  s.exact = "required";
  EXPECT_TRUE(s.check_engine("", same).is_ok());
  EXPECT_EQ(s.check_engine("", other).message(),
            "`speculative_exact` required: an NPU: one token and several are attended by two kernels; allowed: auto");
  EXPECT_NE(s.check_engine("a reason", same)
                .message()
                .find("`speculative_exact` required: no drafts can be verified here: "
                      "a reason"),
            std::string::npos);
  s.algorithm = "none";
  EXPECT_TRUE(s.check_engine("a reason", other).is_ok());
}

}  // namespace
}  // namespace reprise::api
