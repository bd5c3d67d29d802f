// What clients say to speculative decoding, and what they are told of it.
#include <numeric>

#include "server/dialect_fixture.h"

namespace reprise::server {
namespace {

class SpeculationServerTest : public DialectServerTest {
 protected:
  void start_drafting() {
    sched::SchedulerOptions scheduling;
    scheduling.speculation.algorithm = spec::Algorithm::Ngram;
    scheduling.speculation.adaptive = false;
    scheduling.speculation.shortest_match = 1;
    start_with_letters({}, std::move(scheduling));
  }
  static Json chat(Json more = Json::object()) {
    Json call = {{"messages", {{{"role", "user"}, {"content", "name"}}}},
                 {"max_tokens", 24},
                 {"temperature", 0},
                 {"ignore_eos", true}};
    call.update(more);
    return call;
  }
  // "name value" of a line of /metrics, summed over labels.
  double metric(const std::string& name) {
    HttpClient c(http_->port());
    const std::string text = "\n" + c.get("/metrics").body;
    double sum = -1;
    for (size_t at = 0; (at = text.find("\n" + name + "{", at)) != std::string::npos; ++at) {
      const size_t value = text.find("} ", at);
      sum = std::max(0.0, sum) + std::stod(text.substr(value + 2));
    }
    return sum;
  }
};

TEST_F(SpeculationServerTest, APredictionIsDraftedFromAndCounted) {
  start_drafting();
  const Json plain = post("/v1/chat/completions", chat({{"speculative", false}}));
  const std::string answer = plain["choices"][0]["message"]["content"];
  EXPECT_FALSE(plain["usage"].contains("completion_tokens_details"));
  const Json predicted = {{"prediction", {{"type", "content"}, {"content", answer}}}};
  const Json got = post("/v1/chat/completions", chat(predicted));
  EXPECT_EQ(got["choices"], plain["choices"]);
  EXPECT_EQ(got["usage"]["completion_tokens"], 24);
  EXPECT_EQ(got["usage"]["total_tokens"], plain["usage"]["total_tokens"]);
  const Json details = got["usage"]["completion_tokens_details"];
  EXPECT_GT(details["accepted_prediction_tokens"], 5) << got;
  EXPECT_GE(details["rejected_prediction_tokens"], 0);
  // In parts, and one that is wrong.
  const Json parts = {{{"type", "text"}, {"text", answer.substr(0, 9)}},
                      {{"type", "text"}, {"text", answer.substr(9)}}};
  const Json same = post("/v1/chat/completions", chat({{"prediction", {{"type", "content"}, {"content", parts}}}}));
  EXPECT_EQ(same["usage"]["completion_tokens_details"], details);
  const Json wrong = post("/v1/chat/completions", chat({{"prediction", {{"type", "content"}, {"content", "rrrrrr"}}}}));
  EXPECT_EQ(wrong["choices"], plain["choices"]);
  // Without drafts nothing of it is used.
  Json off = predicted;
  off["speculative"] = {{"num_draft_tokens", 1}};
  const Json none = post("/v1/chat/completions", chat(off));
  EXPECT_EQ(none["choices"], plain["choices"]);
  EXPECT_EQ(none["usage"]["completion_tokens_details"],
            (Json{{"accepted_prediction_tokens", 0}, {"rejected_prediction_tokens", 0}}));

  EXPECT_GT(metric("vllm:spec_decode_num_drafts_total"), 1);
  EXPECT_GE(metric("vllm:spec_decode_num_draft_tokens_total"), metric("vllm:spec_decode_num_accepted_tokens_total"));
  EXPECT_EQ(metric("vllm:spec_decode_num_accepted_tokens_per_pos_total"),
            metric("vllm:spec_decode_num_accepted_tokens_total"));
  EXPECT_GT(metric("sglang:spec_accept_length"), 1);
  EXPECT_GT(metric("sglang:spec_accept_rate"), 0);
  EXPECT_GT(metric("reprise:spec_rows_total"), metric("vllm:spec_decode_num_draft_tokens_total"));
  EXPECT_GT(metric("reprise:spec_off_total"), 20);
}

TEST_F(SpeculationServerTest, TheNativeFormTellsOfItsDrafts) {
  start_drafting();
  const Json call = {{"text", "namename"},
                     {"sampling_params", {{"max_new_tokens", 40}, {"temperature", 0}, {"ignore_eos", true}}}};
  const Json meta = post("/generate", call)["meta_info"];
  ASSERT_TRUE(meta.contains("spec_verify_ct")) << meta;
  EXPECT_EQ(meta["completion_tokens"], 40);
  const int64_t steps = meta["spec_verify_ct"], accepted = meta["spec_accept_token_num"];
  EXPECT_EQ(steps + accepted, 40);
  EXPECT_NEAR(meta["spec_accept_length"], 40.0 / static_cast<double>(steps), 1e-9);
  EXPECT_GE(meta["spec_draft_token_num"], accepted);
  // A step whose first n drafts came true counts at each of n places, and once among the steps of n.
  const auto histogram = meta["spec_accept_histogram"].get<std::vector<int64_t>>();
  const auto drafted_at = meta["spec_drafted_per_position"].get<std::vector<int64_t>>();
  const auto accepted_at = meta["spec_accepted_per_position"].get<std::vector<int64_t>>();
  ASSERT_GE(histogram.size(), 1u);
  int64_t all = 0, tokens = 0;
  for (size_t n = 0; n < histogram.size(); ++n) {
    all += histogram[n];
    tokens += static_cast<int64_t>(n) * histogram[n];
    const int64_t longer = std::accumulate(histogram.begin() + static_cast<ptrdiff_t>(n) + 1, histogram.end(), 0l);
    if (n < accepted_at.size()) {
      EXPECT_EQ(accepted_at[n], longer) << n;
    }
  }
  EXPECT_EQ(all, steps);
  EXPECT_EQ(tokens, accepted);
  EXPECT_EQ(std::accumulate(accepted_at.begin(), accepted_at.end(), 0l), accepted);
  EXPECT_EQ(std::accumulate(drafted_at.begin(), drafted_at.end(), 0l), meta["spec_draft_token_num"]);
  ASSERT_EQ(drafted_at.size(), accepted_at.size());
  for (size_t i = 0; i < drafted_at.size(); ++i) EXPECT_GE(drafted_at[i], accepted_at[i]) << i;
  Json off = call;
  off["sampling_params"]["speculative"] = false;
  EXPECT_FALSE(post("/generate", off)["meta_info"].contains("spec_verify_ct"));
}

// All answers of a call together, in one piece and in the last one of a stream; nothing where there were no drafts.
TEST_F(SpeculationServerTest, UsageHasWhatBecameOfDraftsByTheirPlace) {
  start_drafting();
  const Json plain = post("/v1/chat/completions", chat({{"speculative", false}}));
  const Json predicted =
      chat({{"prediction", {{"type", "content"}, {"content", plain["choices"][0]["message"]["content"]}}}});
  const Json one = post("/v1/chat/completions", predicted)["usage"];
  ASSERT_TRUE(one.contains("speculative")) << one;
  const Json& s = one["speculative"];
  const auto sum = [](const Json& list) {
    int64_t all = 0;
    for (const Json& n : list) all += n.get<int64_t>();
    return all;
  };
  EXPECT_GT(s["accepted_tokens"], 5);
  EXPECT_EQ(sum(s["accepted_per_position"]), s["accepted_tokens"]);
  EXPECT_EQ(sum(s["drafted_per_position"]), s["draft_tokens"]);
  EXPECT_EQ(s["drafted_per_position"][0], s["drafts"]);
  // They share the rows of a step.
  Json both = predicted;
  both["n"] = 2;
  const Json two = post("/v1/chat/completions", both)["usage"]["speculative"];
  EXPECT_GT(two["drafts"], s["drafts"]);
  EXPECT_EQ(sum(two["accepted_per_position"]), two["accepted_tokens"]);
  EXPECT_EQ(sum(two["drafted_per_position"]), two["draft_tokens"]);
  EXPECT_EQ(two["drafted_per_position"][0], two["drafts"]);
  HttpClient c(http_->port());
  Json streamed = predicted;
  streamed.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  const std::string events = c.post("/v1/chat/completions", streamed.dump()).body;
  const size_t last = events.rfind("data: {"), end = events.find('\n', last);
  ASSERT_NE(last, std::string::npos);
  EXPECT_EQ(Json::parse(events.substr(last + 6, end - last - 6))["usage"]["speculative"], s) << events;
  EXPECT_FALSE(plain["usage"].contains("speculative"));
}

TEST_F(SpeculationServerTest, WrongFieldsAreNamed) {
  start_drafting();
  const auto refused = [&](const Json& more, const std::string& field) {
    const Json error = post("/v1/chat/completions", chat(more), 400)["error"];
    EXPECT_EQ(error["param"], field) << error;
  };
  refused({{"prediction", "text"}}, "prediction");
  refused({{"prediction", {{"type", "tokens"}, {"content", "a"}}}}, "prediction");
  refused({{"prediction", {{"type", "content"}}}}, "prediction.content");
  refused({{"prediction", {{"type", "content"}, {"content", {{{"type", "image"}}}}}}}, "prediction.content");
  refused({{"speculative", 3}}, "speculative");
  refused({{"speculative", {{"num_draft_tokens", 0}}}}, "speculative.num_draft_tokens");
  refused({{"speculative", {{"tokens", 3}}}}, "speculative.tokens");
}

TEST_F(SpeculationServerTest, WithoutDraftsTheFieldsChangeNothing) {
  start_with_letters();
  const Json plain = post("/v1/chat/completions", chat());
  const Json got = post("/v1/chat/completions",
                        chat({{"prediction", {{"type", "content"}, {"content", "name"}}}, {"speculative", true}}));
  EXPECT_EQ(got["choices"], plain["choices"]);
  EXPECT_EQ(got["usage"]["completion_tokens_details"]["accepted_prediction_tokens"], 0);
  EXPECT_EQ(metric("vllm:spec_decode_num_drafts_total"), -1);
}

}  // namespace
}  // namespace reprise::server
