// Keys of a file: what is in it, and token buckets on a simulated clock.
#include "server/key_ring.h"

#include <gtest/gtest.h>

#include "base/sha256.h"

namespace reprise::server::key_ring_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The examples of FIPS 180-4's test vectors (NIST), and lengths around the padding, as `sha256sum` gives them.
TEST(Sha256, KnownValues) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256_hex(std::string(55, 'a')), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(sha256_hex(std::string(64, 'a')), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

std::string line(const std::string& name, const std::string& key, const std::string& more = "") {
  return R"({"name": ")" + name + R"(", "sha256": ")" + sha256_hex(key) + "\"" + (more.empty() ? "" : ", " + more) +
         "}\n";
}

TEST(KeyRing, ReadsItsFile) {
  const auto keys = KeyRing::parse(
      line("ada", "one", R"("admin": true, "requests_per_minute": 3, "tokens_per_minute": 100, "max_running": 2,
                            "max_tokens_per_request": 50, "priority": -1, "expires": "2027-01-31T12:00:00Z")") +
      "\n" + line("bob", "two"));
  // A line is a line.
  ASSERT_FALSE(keys.is_ok());
  std::string text = line("ada", "one",
                          R"("admin": true, "requests_per_minute": 3, "tokens_per_minute": 100, "max_running": 2, )"
                          R"("max_tokens_per_request": 50, "priority": -1, "expires": "2027-01-31T12:00:00Z")") +
                     "\n" + line("bob", "two", R"("expires": "1970-01-02")");
  const auto good = KeyRing::parse(text);
  ASSERT_TRUE(good.is_ok()) << good.status().message();
  ASSERT_EQ(good->size(), 2u);
  EXPECT_TRUE((*good)[0].admin);
  EXPECT_EQ((*good)[0].requests_per_minute, 3);
  EXPECT_EQ((*good)[0].priority, -1);
  EXPECT_EQ((*good)[0].expires, 1801396800);
  EXPECT_EQ((*good)[1].expires, 86400);
  KeyRing ring;
  ring.replace(*good);
  EXPECT_EQ(ring.find("one")->name, "ada");
  EXPECT_EQ(ring.find("two")->name, "bob");
  EXPECT_EQ(ring.find("three"), nullptr);
  EXPECT_EQ(ring.find(""), nullptr);
  EXPECT_EQ(ring.find(sha256_hex("one")), nullptr);
}

TEST(KeyRing, WhatIsWrongIsNamed) {
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "no key"},
           {"\n{", "line 2"},
           {"5", "line 1"},
           {line("a b", "one"), "line 1: name"},
           {R"({"name": "a", "sha256": "abc"})", "line 1: sha256"},
           {line("a", "one", R"("requests_per_minute": -1)"), "line 1: requests_per_minute"},
           {line("a", "one", R"("expires": "soon")"), "line 1: expires"},
           {line("a", "one", R"("request_per_minute": 1)"), "requests_per_minute, tokens_per_minute"},
           {line("a", "one") + line("a", "two"), "line 2: there is another key \"a\""},
           {line("a", "one") + line("b", "one"), "line 2"}}) {
    const auto keys = KeyRing::parse(text);
    ASSERT_FALSE(keys.is_ok()) << text;
    EXPECT_NE(keys.status().message().find(part), std::string::npos) << keys.status().message();
  }
}

KeyRing ring_of(const std::string& more) {
  KeyRing ring;
  ring.replace(KeyRing::parse(line("ada", "one", more)).value());
  return ring;
}

std::string header(const KeyRing::Charge& charge, const std::string& name) {
  for (const auto& [n, value] : charge.headers)
    if (n == name) return value;
  return "";
}

// The full bucket, and then one every twelve seconds: ten minutes let in exactly 5 + 50.
TEST(KeyRing, RequestsOverTenMinutesAreExact) {
  KeyRing ring = ring_of(R"("requests_per_minute": 5)");
  const KeyRules& key = *ring.find("one");
  const KeyRing::Clock::time_point begin{seconds(1000)};
  int64_t taken = 0;
  for (int64_t ms = 0; ms <= 600'000; ms += 100) taken += ring.charge(key, 0, begin + milliseconds(ms)).taken;
  EXPECT_EQ(taken, 55);
}

TEST(KeyRing, ARefusalSaysWhenToComeAgainAndThatIsTrue) {
  KeyRing ring = ring_of(R"("requests_per_minute": 4, "tokens_per_minute": 60)");
  const KeyRules& key = *ring.find("one");
  KeyRing::Clock::time_point now{seconds(1000)};
  const auto first = ring.charge(key, 50, now);
  EXPECT_TRUE(first.taken);
  EXPECT_EQ(header(first, "x-ratelimit-limit-requests"), "4");
  EXPECT_EQ(header(first, "x-ratelimit-remaining-requests"), "3");
  EXPECT_EQ(header(first, "x-ratelimit-reset-requests"), "15s");
  EXPECT_EQ(header(first, "x-ratelimit-remaining-tokens"), "10");
  EXPECT_EQ(header(first, "x-ratelimit-reset-tokens"), "50s");
  const auto refused = ring.charge(key, 30, now);
  EXPECT_FALSE(refused.taken);
  EXPECT_EQ(refused.limit, "tokens");
  EXPECT_EQ(refused.retry_after_s, 20);
  EXPECT_EQ(header(refused, "x-ratelimit-remaining-requests"), "3");  // it took nothing
  EXPECT_FALSE(ring.charge(key, 30, now + seconds(19)).taken);
  EXPECT_TRUE(ring.charge(key, 30, now + seconds(20)).taken);
}

// Charged at arrival is what a request may take; at its end the rest comes back.
TEST(KeyRing, TokensThatWereNotUsedComeBack) {
  KeyRing ring = ring_of(R"("tokens_per_minute": 100)");
  const KeyRules& key = *ring.find("one");
  const KeyRing::Clock::time_point now{seconds(1000)};
  EXPECT_TRUE(ring.charge(key, 90, now).taken);
  EXPECT_FALSE(ring.charge(key, 90, now).taken);
  ring.reconcile("ada", 90, 5, now);
  EXPECT_TRUE(ring.charge(key, 90, now).taken);
  ring.reconcile("ada", 1000, 0, now);
  EXPECT_EQ(header(ring.charge(key, 0, now), "x-ratelimit-remaining-tokens"), "100");
  ring.reconcile("nobody", 5, 0, now);
  // Over an hour of requests that use 10 of 50 tokens, the use is the bound's.
  int64_t used = 0;
  for (int64_t s = 0; s < 3600; ++s)
    if (ring.charge(key, 50, now + seconds(s)).taken) {
      used += 10;
      ring.reconcile("ada", 50, 10, now + seconds(s));
    }
  EXPECT_LE(used, 100 + 100 * 60);
  EXPECT_GE(used, 100 * 60 - 100);
}

TEST(KeyRing, ANewFileKeepsTheBuckets) {
  KeyRing ring = ring_of(R"("requests_per_minute": 2)");
  const KeyRing::Clock::time_point now{seconds(1000)};
  EXPECT_TRUE(ring.charge(*ring.find("one"), 0, now).taken);
  EXPECT_TRUE(ring.charge(*ring.find("one"), 0, now).taken);
  ring.replace(KeyRing::parse(line("ada", "new", R"("requests_per_minute": 2)") + line("bob", "two")).value());
  EXPECT_EQ(ring.find("one"), nullptr);
  EXPECT_FALSE(ring.charge(*ring.find("new"), 0, now).taken);
  EXPECT_TRUE(ring.charge(*ring.find("two"), 0, now).taken);
  ring.replace(KeyRing::parse(line("ada", "new", R"("requests_per_minute": 3)")).value());
  EXPECT_TRUE(ring.charge(*ring.find("new"), 0, now).taken);
}

}  // namespace
}  // namespace reprise::server::key_ring_test
