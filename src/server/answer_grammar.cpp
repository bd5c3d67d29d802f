#include "server/answer_grammar.h"

#include <algorithm>

#include "server/served_model.h"

namespace reprise::server {
namespace {

using text::grammar::Grammar;
using text::grammar::GrammarMatcher;
using text::grammar::NodeId;
using text::grammar::RuleBuilder;
using text::grammar::RuleId;
using text::grammar::TokenMask;
using text::grammar::TokenMasks;

// Each may come to hold tens of megabytes of masks.
constexpr size_t kMostKept = 16;

class GrammarConstraint final : public engine::TokenConstraint {
 public:
  GrammarConstraint(AnswerGrammars::Masks masks, GrammarMatcher matcher)
      : masks_(std::move(masks)), matcher_(std::move(matcher)) {}

  Result<std::span<const uint64_t>> allowed() override {
    if (allowed_) return std::span<const uint64_t>(*allowed_);
    if (matcher_.ended()) {
      // The request ignores end tokens, but there is nothing more to say.
      auto ends = std::make_shared<TokenMask>((masks_->tokens().size() + 63) / 64);
      for (const int32_t id : masks_->tokens().end_tokens())
        (*ends)[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
      allowed_ = std::move(ends);
    } else {
      ASSIGN_OR_RETURN(allowed_, matcher_.allowed());
    }
    return std::span<const uint64_t>(*allowed_);
  }
  int64_t allowed_prefix(std::span<const int32_t> tokens) const override {
    GrammarMatcher ahead = matcher_;
    int64_t allowed = 0;
    for (const int32_t token : tokens) {
      if (ahead.ended() || !ahead.accept(token).is_ok()) break;
      ++allowed;
    }
    return allowed;
  }
  Status accept(int32_t token) override {
    if (matcher_.ended()) return Status::ok();
    allowed_.reset();
    return matcher_.accept(token);
  }

 private:
  AnswerGrammars::Masks masks_;
  GrammarMatcher matcher_;
  std::shared_ptr<const TokenMask> allowed_;  // null: not asked for since the last token
};

Status add_words(const AnswerForm& form, RuleBuilder* rules, NodeId from, NodeId to) {
  if (const auto* schema = std::get_if<AnswerForm::Schema>(&form.what))
    return Grammar::add_json_schema(schema->schema, rules, from, to);
  if (const auto* regex = std::get_if<AnswerForm::Regex>(&form.what))
    return Grammar::add_regex(regex->pattern, rules, from, to);
  if (const auto* choice = std::get_if<AnswerForm::Choice>(&form.what))
    return Grammar::add_choices(choice->texts, rules, from, to);
  return Grammar::add_json_schema({{"type", "object"}}, rules, from, to);
}

Result<Grammar::Shared> compile(const AnswerForm& form) {
  RuleBuilder rules({});
  const RuleId answer = rules.add_rule("answer");
  RETURN_IF_ERROR(add_words(form, &rules, rules.start(answer), rules.end(answer)));
  if (form.calls) RETURN_IF_ERROR(add_calls(*form.calls, &rules, rules.start(answer), rules.end(answer)));
  return Grammar::build(&rules);
}

}  // namespace

std::string AnswerForm::key() const {
  std::string out(1, static_cast<char>('0' + what.index()));
  if (const auto* schema = std::get_if<Schema>(&what)) out += schema->schema.dump();
  if (const auto* regex = std::get_if<Regex>(&what)) out += regex->pattern;
  if (const auto* choice = std::get_if<Choice>(&what)) out += OrderedJson(choice->texts).dump();
  if (calls) out += calls->key();
  return out;
}

Result<std::unique_ptr<AnswerGrammars>> AnswerGrammars::of(const ServedModel& m) {
  if (!m.tokenizer) return std::unique_ptr<AnswerGrammars>();
  std::vector<int32_t> ends = m.eos_tokens;
  for (int64_t id : m.defaults.eos_token_ids) ends.push_back(static_cast<int32_t>(id));
  ASSIGN_OR_RETURN(auto tokens,
                   text::grammar::TokenTable::from_tokenizer(*m.tokenizer, ends, static_cast<size_t>(m.vocab_size)));
  return std::make_unique<AnswerGrammars>(std::move(tokens));
}

AnswerGrammars::Masks AnswerGrammars::known(const std::string& key) {
  const auto it = std::find_if(kept_.begin(), kept_.end(), [&](const auto& e) { return e.first == key; });
  if (it == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, it);
  return kept_.front().second;
}

Result<AnswerGrammars::Masks> AnswerGrammars::masks(const AnswerForm& form) {
  std::string key = form.key();
  {
    std::lock_guard lock(mutex_);
    if (Masks same = known(key)) return same;
  }
  ASSIGN_OR_RETURN(auto grammar, compile(form));
  auto masks = std::make_shared<TokenMasks>(std::move(grammar), tokens_);
  std::lock_guard lock(mutex_);
  if (Masks same = known(key)) return same;  // another thread was faster
  kept_.emplace_front(std::move(key), masks);
  if (kept_.size() > kMostKept) kept_.pop_back();
  return masks;
}

Result<std::unique_ptr<engine::TokenConstraint>> make_constraint(const AnswerGrammars::Masks& masks) {
  ASSIGN_OR_RETURN(auto matcher, GrammarMatcher::create(masks));
  return std::unique_ptr<engine::TokenConstraint>(std::make_unique<GrammarConstraint>(masks, std::move(matcher)));
}

}  // namespace reprise::server
