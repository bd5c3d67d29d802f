#include "evaluation/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/elapsed.h"

namespace reprise::evaluation {

Result<Perplexity> perplexity(engine::Executor& executor, std::span<const int32_t> tokens,
                              const PerplexityOptions& options, const sched::ScoreProgress& progress) {
  const int64_t head = options.bos ? 1 : 0;
  if (options.window < 2 || options.window > executor.context_length())
    return invalid("a window of {} tokens; allowed: 2 to the context's {}", options.window, executor.context_length());
  const auto body = static_cast<size_t>(options.window - head);
  std::vector<sched::TextToScore> windows;
  for (size_t at = 0; at < tokens.size(); at += body) {
    if (options.max_windows > 0 && static_cast<int64_t>(windows.size()) == options.max_windows) break;
    std::vector<int32_t> window;
    if (options.bos) window.push_back(*options.bos);
    const auto part = tokens.subspan(at, std::min(body, tokens.size() - at));
    window.insert(window.end(), part.begin(), part.end());
    if (window.size() < 2) break;  // a last single token has nothing before it
    windows.push_back({std::move(window), 1, options.adapter});
  }
  if (windows.empty()) return invalid("the text has {} tokens; at least 2 are needed", tokens.size());

  const auto begin = std::chrono::steady_clock::now();
  Perplexity result;
  result.windows = static_cast<int64_t>(windows.size());
  ASSIGN_OR_RETURN(const std::vector<sched::TextScore> scores,
                   sched::Scorer(executor).run(std::move(windows), progress));
  sched::TextScore all;
  for (const sched::TextScore& score : scores) {
    all.log_p += score.log_p;
    all.squares += score.squares;
    all.tokens += score.tokens;
  }
  const auto n = static_cast<double>(all.tokens);
  result.tokens = all.tokens;
  result.mean_nll = -all.log_p / n;
  result.perplexity = std::exp(result.mean_nll);
  const double variance = std::max(0.0, all.squares / n - result.mean_nll * result.mean_nll);
  result.standard_error = std::sqrt(variance / n);
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace reprise::evaluation
