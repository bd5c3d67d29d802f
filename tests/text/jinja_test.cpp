// The Jinja interpreter against jinja2's answers (tests/data/jinja/cases.json), its limits, and its errors.
#include <gtest/gtest.h>

#include <thread>

#include "base/file.h"
#include "text/jinja/template.h"

namespace reprise::text::jinja::jinja_test {
namespace {

std::tm fixed_time() {
  std::tm now{};
  now.tm_year = 2024 - 1900;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 9;
  now.tm_min = 5;
  now.tm_wday = 5;
  now.tm_yday = 207;
  return now;
}

Result<std::string> render(std::string_view source, const OrderedJson& context = OrderedJson::object(),
                           const Limits& limits = {}) {
  ASSIGN_OR_RETURN(const Template compiled, Template::compile(source));
  Variables variables;
  for (const auto& [name, value] : context.items()) variables.emplace_back(name, &value);
  return compiled.render(variables, fixed_time(), limits);
}

std::string error_of(std::string_view source, const Limits& limits = {}) {
  const auto result = render(source, OrderedJson::object(), limits);
  EXPECT_FALSE(result.is_ok()) << source;
  return result ? "" : result.status().message();
}

TEST(Jinja, EqualsJinja2OnEveryCase) {
  const std::string path = std::string(REPRISE_SOURCE_DIR) + "/tests/data/jinja/cases.json";
  const auto text = read_file(path);
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  const auto parsed = parse_ordered_json(*text, path);
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
  const OrderedJson& data = *parsed;
  int checked = 0;
  for (const auto& item : data["cases"]) {
    const std::string source = item["template"];
    const auto got = render(source, data["context"]);
    ++checked;
    if (item["want"].is_null()) {
      EXPECT_FALSE(got.is_ok()) << source << "\nrendered: " << (got ? *got : "");
      continue;
    }
    ASSERT_TRUE(got.is_ok()) << source << "\n" << got.status().message();
    EXPECT_EQ(*got, item["want"].get<std::string>()) << source;
  }
  EXPECT_GT(checked, 750);
}

// Of jinja2 on purpose not here (template.h): told by name.
TEST(Jinja, WhatIsLeftOutIsAnErrorByName) {
  for (const auto& [source, word] :
       std::vector<std::pair<const char*, const char*>>{{"{{ 'a' | center(9) }}", "center"},
                                                        {"{{ [1, 2] | batch(2) | list }}", "batch"},
                                                        {"{{ '{}'.format(1) }}", "format"},
                                                        {"{{ '%s' % 1 }}", "%"},
                                                        {"{{ 'a'.zfill(3) }}", "zfill"}})
    EXPECT_NE(error_of(source).find(word), std::string::npos) << source << ": " << error_of(source);
}

TEST(Jinja, ErrorsNameTheLineAndWhatWasExpected) {
  EXPECT_EQ(error_of("a\n{% if x %}\nb"),
            "template line 3: expected '{% endif %}' to close 'if', got the end of the template");
  EXPECT_EQ(error_of("\n{{ 1 + }}"), "template line 2: expected an expression, got '}}'");
  EXPECT_EQ(error_of("{{ x.y }}"), "template line 1: 'x' is undefined");
  EXPECT_EQ(error_of("\n\n{{ raise_exception('Roles must alternate') }}"), "template line 3: Roles must alternate");
  EXPECT_EQ(error_of("{{ 'a' | nope }}"), "template line 1: no filter is named 'nope'");
  EXPECT_EQ(error_of("{% include 'x' %}"), "template line 1: the tag 'include' is not supported in chat templates");
  EXPECT_EQ(error_of("{% set l = [] %}{{ l.append(1) }}"),
            "template line 1: access to 'append' of a list is not allowed in a template");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"), "template line 1: an integer does not fit into 64 bits");
  EXPECT_EQ(error_of("{{ 'abc }}"), "template line 1: a string is not closed: expected '");
}

TEST(Jinja, BigUnsignedNumbersPassThrough) {
  OrderedJson context;
  context["n"] = uint64_t{18446744073709551615u};
  EXPECT_EQ(*render("{{ n }} {{ n | tojson }} {{ {'n': n} }}", context),
            "18446744073709551615 18446744073709551615 {'n': 18446744073709551615}");
}

Limits few_steps() {
  Limits limits;
  limits.max_steps = 200'000;
  return limits;
}

TEST(Jinja, StepsAreLimited) {
  EXPECT_EQ(Limits().max_steps, 10'000'000u);
  const char* kEndless = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(error_of(kEndless, few_steps()), "template line 1: the template ran for more than 200000 steps");
}

TEST(Jinja, OutputIsLimited) {
  EXPECT_NE(
      error_of("{% set x = 'abcdefgh' * 1000000 %}{{ x }}{{ x }}{{ x }}").find("output is larger than 16777216 bytes"),
      std::string::npos);
}

TEST(Jinja, MemoryIsLimited) {
  const char* kHungry[] = {
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{{ 'a' * 10000000000 }}",
      "{{ [1] * 10000000000 }}",
      "{{ 'a' | indent(9000000000) }}{{ 'a\nb' | indent(9000000000) }}",
      "{{ (['a' * 1000000] * 1000) | join }}",
      "{{ ['a' * 1000000] * 1000 }}",
      "{{ 'a' * 1000000 | replace('a', 'b' * 100000) }}",
  };
  Limits limits;
  limits.max_memory_bytes = size_t{8} << 20;
  limits.max_steps = 1'000'000;
  for (const char* source : kHungry) EXPECT_FALSE(render(source, OrderedJson::object(), limits).is_ok()) << source;
}

TEST(Jinja, DepthIsLimited) {
  const auto repeated = [](std::string_view piece, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += piece;
    return out;
  };
  EXPECT_NE(error_of("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}").find("nests deeper"), std::string::npos);
  for (const char* piece : {"(", "[", "not ", "-", "{1:", "1 if 1 else ", "f(", "a[", "1 + (", "a is b("})
    EXPECT_FALSE(render("{{ " + repeated(piece, 20'000)).is_ok()) << piece;
  for (const char* piece : {" + 1", ".a", "[0]", "|upper", " ~ 1", " and 1", " or 0", "()", " is none", " if 1"})
    (void)render("{{ 1" + repeated(piece, 20'000) + " }}");
  EXPECT_FALSE(render(repeated("{% if 1 %}", 20'000)).is_ok());
  EXPECT_FALSE(render(repeated("{% for i in x %}", 20'000)).is_ok());
  EXPECT_FALSE(render("{% for " + repeated("(", 20'000)).is_ok());
  // Values that nest: each step wraps the one before.
  EXPECT_FALSE(
      render("{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}").is_ok());
  EXPECT_FALSE(
      render("{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}")
          .is_ok());
  EXPECT_FALSE(
      render("{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = cycler(ns.x) %}{% endfor %}")
          .is_ok());
  // Equality of two copies of a value that doubles with every level.
  const char* kDoubling =
      "{% set a = namespace(x=[]) %}{% set b = namespace(x=[]) %}{% for i in range(60) %}"
      "{% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}{% endfor %}{{ a.x == b.x }}";
  EXPECT_FALSE(render(kDoubling, OrderedJson::object(), few_steps()).is_ok());
}

TEST(Jinja, CirclesAreHarmless) {
  EXPECT_FALSE(render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}").is_ok());
  EXPECT_TRUE(render("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me | length }}").is_ok());
  EXPECT_TRUE(render("{% set ns = namespace() %}{% for i in [1] %}{% set ns.l = loop %}{{ loop.changed(loop) }}{% "
                     "endfor %}{{ ns.l.length }}")
                  .is_ok());
  EXPECT_TRUE(render("{% macro f() %}{{ f }}{% endmacro %}{% set g = f %}{% for i in [1] %}{% macro h() %}{{ h.name "
                     "}}{% endmacro %}{{ h() }}{% endfor %}")
                  .is_ok());
}

TEST(Jinja, RendersOnManyThreads) {
  const auto compiled =
      Template::compile("{% for i in l %}{{ i ~ 'x' }}{{ 'const' | upper }}{{ {'a': i} | tojson }}{% endfor %}");
  ASSERT_TRUE(compiled.is_ok());
  OrderedJson list = OrderedJson::array();
  for (int i = 0; i < 50; ++i) list.push_back(i);
  const Variables variables = {{"l", &list}};
  const std::string want = *compiled->render(variables, fixed_time());
  std::vector<std::thread> threads;
  std::vector<int> good(4, 0);
  for (size_t t = 0; t < good.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) good[t] += *compiled->render(variables, fixed_time()) == want;
    });
  for (auto& thread : threads) thread.join();
  for (const int n : good) EXPECT_EQ(n, 50);
}

}  // namespace
}  // namespace reprise::text::jinja::jinja_test
