// What keys have used: answers at once, buckets, counts.
#include "server/key_ledger.h"

#include <gtest/gtest.h>

namespace reprise::server::key_ledger_test {
namespace {

KeyRules rules_of(const std::string& name) {
  KeyRules out;
  out.name = name;
  out.sha256 = std::string(64, '0');
  return out;
}

std::string metrics_of(const KeyLedger& ledger) {
  MetricText text(MetricText::label("model_name", "m"));
  ledger.add_metrics(text);
  return text.take();
}

TEST(KeyLedger, AnswersAtOnceAreBoundedForEachKeyApart) {
  KeyLedger ledger;
  Headers headers;
  KeyLedger::Entry a, b, more;
  KeyLedger::Wish wish{nullptr, "a", 2, 3, 0};
  EXPECT_FALSE(ledger.enter(wish, headers, a));
  const auto refused = ledger.enter(wish, headers, more);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->code, "too_many_answers");
  EXPECT_NE(refused->message.find("has 2 answers that run or wait, and 2 more are asked for; at most 3"),
            std::string::npos)
      << refused->message;
  wish.key = "b";
  EXPECT_FALSE(ledger.enter(wish, headers, b)) << "another key";
  ledger.leave(a, 1, 1);
  wish.key = "a";
  EXPECT_FALSE(ledger.enter(wish, headers, more)) << "the first has left";
  EXPECT_TRUE(headers.empty()) << "no key of the ring";
  EXPECT_EQ(metrics_of(ledger).find("key"), std::string::npos);
}

TEST(KeyLedger, AKeysOwnBoundComesBeforeTheServers) {
  KeyLedger ledger;
  KeyRules rules = rules_of("team");
  rules.max_running = 5;
  ledger.replace({rules});
  Headers headers;
  KeyLedger::Entry entry;
  EXPECT_FALSE(ledger.enter({&rules, "", 4, 1, 10}, headers, entry));
  EXPECT_TRUE(ledger.enter({&rules, "", 2, 1, 10}, headers, entry));
}

TEST(KeyLedger, WhatALimitRefusesIsCountedAndTakesNoPlace) {
  KeyLedger ledger;
  KeyRules rules = rules_of("team");
  rules.tokens_per_minute = 100;
  rules.max_running = 1;
  rules.max_tokens_per_request = 90;
  ledger.replace({rules});
  Headers headers;
  KeyLedger::Entry first, second;
  const auto large = ledger.enter({&rules, "", 1, 0, 91}, headers, first);
  ASSERT_TRUE(large);
  EXPECT_EQ(large->code, "too_many_tokens");
  ASSERT_FALSE(ledger.enter({&rules, "", 1, 0, 80}, headers, first));
  EXPECT_EQ(first.charged, 80);
  EXPECT_FALSE(headers.empty());
  ledger.leave(first, 20, 50);  // ten of what was charged come back
  const auto limited = ledger.enter({&rules, "", 1, 0, 80}, headers, second);
  ASSERT_TRUE(limited) << "thirty are left in the bucket";
  EXPECT_EQ(limited->code, "rate_limit_exceeded");
  EXPECT_GE(limited->retry_after_s, 1);
  ASSERT_FALSE(ledger.enter({&rules, "", 1, 0, 25}, headers, second)) << "the refused call holds no place";
  ledger.leave(second, 25, 0);
  ledger.answered("team", 200);
  ledger.answered("team", 429);
  const std::string text = metrics_of(ledger);
  for (const char* line : {"reprise:key_requests_total{model_name=\"m\",key=\"team\",status=\"200\"} 1",
                           "reprise:key_tokens_total{model_name=\"m\",key=\"team\",kind=\"prompt\"} 45",
                           "reprise:key_tokens_total{model_name=\"m\",key=\"team\",kind=\"completion\"} 50",
                           "reprise:rate_limited_total{model_name=\"m\",key=\"team\",limit=\"tokens\"} 1"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

}  // namespace
}  // namespace reprise::server::key_ledger_test
