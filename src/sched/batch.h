// form_batch: who takes part in the next step, and with how many tokens.
//
// Every sequence that decodes takes part in every step. What is left of the step's tokens goes to prompts: the prompt
// that came first gets at least half of it. The others share the rest: first one prompt of each call, then a second
// one, and so on; among these the shortest first. So a long prompt neither stops others nor is stopped, and a call with
// many prompts does not hold up its neighbours. While a sequence decodes, prompts get no more than
// `mixed_prefill_tokens` a step: that bounds how long a token can be late. No state; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_stage.h"
#include "sched/live_request.h"

namespace reprise::sched {

struct BatchLimits {
  int64_t tokens = 0;                // of a step
  int64_t rows = 0;                  // sequences, and rows with logits, of a step
  int64_t mixed_prefill_tokens = 0;  // of prompts, in a step in which a sequence decodes
  int64_t prefill_tokens = 0;        // of prompts; the first prompt's part may be larger
  int64_t prefill_requests = 0;      // prompts; 0: any number
  bool whole = false;                // no prompt is cut, and none goes on after its step
  bool to_borders = false;           // a step takes a prompt to where its state is kept, not beyond (live_request.h)
};

struct Batch {
  std::vector<engine::StepItem> items;
  std::vector<LiveRequest*> owners;  // of the items
  std::vector<uint8_t> answers;      // whether the item's last row gives the next token
  int64_t decode_tokens = 0, prefill_tokens = 0;
};

// `running` in the order of arrival.
Batch form_batch(std::span<const LivePtr> running, const BatchLimits& limits);

}  // namespace reprise::sched
