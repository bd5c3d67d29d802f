#include "text/unicode_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "text/utf8.h"

namespace reprise::text {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr size_t kMaxJitStackBytes = 8 << 20;
constexpr uint32_t kMaxHeapKilobytes = 64 << 10;
// A sane pattern takes a few steps for each byte it passes.
constexpr uint64_t kBaseSteps = 10'000;
constexpr uint64_t kStepsPerByte = 64;

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return fmt::format("PCRE2 error {}", code);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return invalid("the pattern has {} bytes; at most {} are allowed", pattern.size(), kMaxPatternBytes);
  ASSIGN_OR_RETURN(std::string translated, translate_pattern(pattern));

  std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) return error(Code::OutOfMemory, "no memory to compile a pattern");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE;
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options,
                                       &code, &offset, context.get());
  if (compiled == nullptr) {
    const size_t shown = std::min<size_t>(offset, translated.size());
    return invalid("bad pattern: {} after \"{}\"", message_of(code),
                   std::string_view(translated).substr(shown > 40 ? shown - 40 : 0, std::min<size_t>(shown, 40)));
  }
  // Without the just-in-time compiler matching is slower but the same.
  (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  Regex regex;
  regex.pattern_ = pattern;
  regex.code_ = std::shared_ptr<const pcre2_code>(
      compiled, [](const pcre2_code* c) { pcre2_code_free(const_cast<pcre2_code*>(c)); });
  return regex;
}

RegexMatcher::RegexMatcher(const Regex& regex)
    : regex_(regex),
      data_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free),
      context_(pcre2_match_context_create(nullptr), pcre2_match_context_free),
      stack_(nullptr, pcre2_jit_stack_free) {
  CHECK(data_ && context_, "no memory for a pattern's match");
  pcre2_set_heap_limit(context_.get(), kMaxHeapKilobytes);
}

void RegexMatcher::start(std::string_view text) {
  text_ = text;
  from_ = 0;
  last_end_ = SIZE_MAX;
  const uint64_t steps = kBaseSteps + kStepsPerByte * text.size();
  pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
}

int RegexMatcher::match_at(size_t from) {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  const auto match = [&](uint32_t options) {
    return pcre2_match(regex_.code_.get(), subject, text_.size(), from, PCRE2_NO_UTF_CHECK | options, data_.get(),
                       context_.get());
  };
  int rc = match(0);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
    stack_.reset(pcre2_jit_stack_create(256 << 10, kMaxJitStackBytes, nullptr));
    if (stack_) {
      pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
      rc = match(0);
    }
  }
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
  return rc;
}

Result<bool> RegexMatcher::next(size_t* begin, size_t* end) {
  while (from_ <= text_.size()) {
    const int rc = match_at(from_);
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0)
      return invalid("the pattern \"{}\" gave up on a text of {} bytes: {}", regex_.pattern_.substr(0, 200),
                     text_.size(), message_of(rc));
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data_.get());
    if (span[0] == span[1] && span[1] == last_end_) {
      from_ += last_end_ < text_.size() ? code_point_at(text_, last_end_).size : 1;
      last_end_ = SIZE_MAX;
      continue;
    }
    *begin = span[0];
    *end = span[1];
    from_ = last_end_ = span[1];
    return true;
  }
  return false;
}

}  // namespace reprise::text
