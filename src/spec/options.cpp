#include "spec/options.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "spec/ngram_drafter.h"
#include "spec/suffix_drafter.h"

namespace reprise::spec {

std::string_view algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::Ngram: return "NGRAM";
    case Algorithm::Suffix: return "SUFFIX";
    case Algorithm::Model: return "STANDALONE";
    case Algorithm::Prediction: return "NEXTN";
    case Algorithm::Eagle: return "EAGLE";
    case Algorithm::Eagle3: return "EAGLE3";
    case Algorithm::None: break;
  }
  return "none";
}

Result<Algorithm> parse_algorithm(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (upper == "NONE") return Algorithm::None;
  if (upper == "MTP") return Algorithm::Prediction;
  for (const Algorithm a : {Algorithm::Ngram, Algorithm::Suffix, Algorithm::Model, Algorithm::Prediction,
                            Algorithm::Eagle, Algorithm::Eagle3})
    if (upper == algorithm_name(a)) return a;
  return invalid(
      "`speculative_algorithm` \"{}\" is not known; allowed: NGRAM, SUFFIX, STANDALONE, NEXTN, MTP, EAGLE, "
      "EAGLE3, none",
      name);
}

Status SpecOptions::check() const {
  if (draft_tokens < 1 || draft_tokens > kMostDraftTokens)
    return invalid("`speculative_num_draft_tokens` is {}; allowed: 1 (no drafts) to {}", draft_tokens,
                   kMostDraftTokens);
  if (max_rows < 0) return invalid("`speculative_max_rows` is {}; allowed: 1 or more, or 0 for the default", max_rows);
  if (shortest_match < 1 || shortest_match > kLongestMatch)
    return invalid("`speculative_ngram_min_match_window_size` is {}; allowed: 1 to {}", shortest_match, kLongestMatch);
  if (longest_match < shortest_match || longest_match > kLongestMatch)
    return invalid("`speculative_ngram_max_match_window_size` is {}; allowed: {} (the smallest) to {}", longest_match,
                   shortest_match, kLongestMatch);
  if (suffix_depth < shortest_match || suffix_depth > kLongestMatch)
    return invalid("`speculative_ngram_max_trie_depth` is {}; allowed: {} (the smallest match) to {}", suffix_depth,
                   shortest_match, kLongestMatch);
  if (!(suffix_factor > 0 && suffix_factor <= 64))
    return invalid("`suffix_decoding_max_spec_factor` is {}; allowed: above 0, up to 64", suffix_factor);
  if (!(suffix_least_chance >= 0 && suffix_least_chance <= 1))
    return invalid("`suffix_decoding_min_token_prob` is {}; allowed: 0 to 1", suffix_least_chance);
  if (suffix_answers < 0)
    return invalid("`suffix_decoding_max_cached_requests` is {}; allowed: 0 or more", suffix_answers);
  constexpr int64_t kMostTokens = int64_t{1} << 30;
  if (suffix_tokens < 1 || suffix_tokens > kMostTokens)
    return invalid("`speculative_ngram_capacity` is {}; allowed: 1 to {}", suffix_tokens, kMostTokens);
  return Status::ok();
}

std::unique_ptr<Drafter> make_drafter(const SpecOptions& options) {
  switch (options.algorithm) {
    case Algorithm::Ngram: return std::make_unique<NgramDrafter>(options);
    case Algorithm::Suffix: return std::make_unique<SuffixDrafter>(options);
    default: return nullptr;
  }
}

}  // namespace reprise::spec
