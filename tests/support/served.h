// Served: a greedy answer with its log-probabilities, as tests compare it with and without a prefix cache.
#pragma once

#include <gtest/gtest.h>

#include "sched/scheduler.h"
#include "support/answers.h"

namespace reprise::sched {

struct Served {
  Tokens tokens;
  std::vector<float> logprobs;
  int64_t cached = 0;
};

inline Asked ask_with_logprobs(const Tokens& prompt, int64_t most) {
  Asked a = ask(prompt, most);
  a.request.sampling.ignore_eos = true;
  a.request.sampling.logprobs = 3;
  return a;
}

inline Served served(const Asked& a) {
  EXPECT_TRUE(a.answer->result->status.is_ok()) << a.answer->result->status.message();
  Served s{a.answer->tokens, {}, a.answer->result->cached_tokens};
  for (const SampledToken& t : a.answer->sampled) {
    s.logprobs.push_back(t.logprob.value());
    for (const auto& top : t.top) s.logprobs.push_back(top.logprob);
  }
  return s;
}

inline void run_whole(Scheduler& scheduler) {
  while (!scheduler.idle()) {
    scheduler.step();
    const Status whole = scheduler.check_integrity();
    ASSERT_TRUE(whole.is_ok()) << whole.message();
  }
}

inline Served serve(Scheduler& scheduler, const Tokens& prompt, int64_t most = 5) {
  Asked a = ask_with_logprobs(prompt, most);
  EXPECT_TRUE(scheduler.add(std::move(a.request)).is_ok());
  run_whole(scheduler);
  return served(a);
}

}  // namespace reprise::sched
