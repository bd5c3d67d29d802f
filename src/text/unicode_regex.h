// Regex: the regular expressions of tokenizer.json, matched by PCRE2. Published patterns are written for Oniguruma and
// its Unicode version; unicode_regex_syntax.cpp translates them and refuses what it cannot translate. Steps per match
// are limited in proportion to the text, so a hostile pattern ends in an error. A Regex owns its compiled pattern, is
// immutable, and may be used by any thread; a RegexMatcher belongs to one call on one thread and must not outlive its
// Regex.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace reprise::text {

// The pattern in PCRE2's syntax (for PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE).
Result<std::string> translate_pattern(std::string_view oniguruma);

class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);

  const std::string& pattern() const { return pattern_; }

 private:
  friend class RegexMatcher;
  std::string pattern_;
  std::shared_ptr<const pcre2_real_code_8> code_;
};

class RegexMatcher {
 public:
  explicit RegexMatcher(const Regex& regex);

  // Starts a search through `text`, which must be valid UTF-8 and outlive the search.
  void start(std::string_view text);
  // The next match as bytes [begin, end); false when there are no more. An empty match right behind the last match is
  // skipped.
  Result<bool> next(size_t* begin, size_t* end);

 private:
  int match_at(size_t from);

  template <typename T>
  using Handle = std::unique_ptr<T, void (*)(T*)>;

  const Regex& regex_;
  Handle<pcre2_real_match_data_8> data_;
  Handle<pcre2_real_match_context_8> context_;
  Handle<pcre2_real_jit_stack_8> stack_;
  std::string_view text_;
  size_t from_ = 0;
  size_t last_end_ = SIZE_MAX;
};

}  // namespace reprise::text
