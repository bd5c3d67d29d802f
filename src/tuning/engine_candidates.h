// EngineCandidates: what the candidates of a Tuner cost on engines of one model. Each candidate is an engine of its
// own, opened and closed: one batch runs unmeasured, so that memory is touched and threads are awake, then the medians
// of a few count. And tune_model(), which tunes with them. One thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "api/model_settings.h"
#include "tuning/tuner.h"

namespace reprise::tuning {

class EngineCandidates {
 public:
  // `notices` go into the log of every engine's start.
  explicit EngineCandidates(api::ModelSettings settings, std::vector<std::string> notices = {})
      : settings_(std::move(settings)), notices_(std::move(notices)) {}

  Result<TuneBounds> bounds() const;
  Result<CandidateSpeed> measure(const Candidate& c, int64_t batch, int64_t input, int64_t output) const;

 private:
  Result<std::unique_ptr<engine::Engine>> open(const Candidate& c, int64_t batch) const;

  api::ModelSettings settings_;
  std::vector<std::string> notices_;
};

// An error where the prompts do not fit the model's context.
Result<Tuning> tune_model(const EngineCandidates& candidates, const TrafficProfile& traffic);

}  // namespace reprise::tuning
