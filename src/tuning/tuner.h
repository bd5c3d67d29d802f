// Tuner: settings for one model on this machine under given traffic, each chosen by what was measured.
//
// Threads first, by the time that a usual request takes with as many others beside it; then the largest step of a
// prompt, the smallest that reads long prompts nearly as fast as the best; then, from the traffic alone, how many
// requests run at a time, the tokens of the KV cache, and where sizes are frozen at capture, which are captured. Every
// candidate is an engine of its own, opened and closed. One thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/progress.h"
#include "tuning/traffic_profile.h"

namespace reprise::tuning {

// One setting with its value and the reason for it, in a sentence.
struct TunedSetting {
  std::string name;  // as in the file: "chunked-prefill-size"
  OrderedJson value;
  std::string reason;
};

struct Tried {
  std::string setting;
  int64_t value = 0;
  double prefill_tok_s = 0, decode_tok_s = 0;  // of the whole batch
  double request_s = 0;                        // a usual request, with the others beside it
  bool chosen = false;
};

struct Tuning {
  std::vector<TunedSetting> settings;
  std::vector<Tried> tried;
  std::vector<std::string> notes;  // what was wanted and could not be had
};

// What one candidate costs; tests give their own.
struct Candidate {
  int64_t threads = 0;
  int64_t chunk = 0;  // 0: the device's own
};
struct CandidateSpeed {
  double prefill_tok_s = 0;
  double decode_tok_s = 0;
};
using Measure = std::function<Result<CandidateSpeed>(const Candidate&, int64_t batch, int64_t input, int64_t output)>;

// What is known of the model and machine without measuring.
struct TuneBounds {
  int64_t processors = 1;
  bool threads_matter = true;  // the device is the CPU
  bool live_sizes = true;      // one capture serves all sizes
  int64_t context_length = 0;
  int64_t page_tokens = 128;
  int64_t most_cached_tokens = 0;  // that memory allows; 0: not known
};

Result<Tuning> tune(const TrafficProfile& traffic, const TuneBounds& bounds, const Measure& measure, Progress& bar);
// The measurements that tune() will make, for its bar.
uint64_t tune_steps(const TrafficProfile& traffic, const TuneBounds& bounds);

// A file for `reprise serve --config`, with every reason as a comment.
std::string tuned_file(const Tuning& tuning, const std::string& model, const std::string& machine,
                       const TrafficProfile& traffic);
std::string tuning_text(const Tuning& tuning);
OrderedJson tuning_json(const Tuning& tuning, const TrafficProfile& traffic);

}  // namespace reprise::tuning
