// What a collective does with the bytes of all ranks. Called by the stream that runs it, without the World's mutex.
#pragma once

#include <functional>
#include <string>

#include "ascend/runtime/task.h"

namespace ascend_sim {

// Sends what lies at `from` (null: only meets) and writes the result to `to`; sums are in the order of ranks, of
// numbers in fp32 and rounded to the type after each. `clock` becomes the latest of all ranks. Empty, or what is wrong.
// `stop` is asked now and then: its text, unless empty, ends the wait.
std::string collect(const CollectiveTask& task, const void* from, void* to, double* clock,
                    const std::function<std::string()>& stop);
// Bytes from each rank to each other one, at the most.
size_t link_bytes(const CollectiveTask& task);

// A kernel's exchange: what all ranks give is shown to each, which computes with it. Without a meeting there is one
// rank. `bytes`: what the fullest link carries; left alone where nothing is computed. Empty, or what is wrong.
std::string meet_and_compute(const Exchange& exchange, const std::string& name, Meeting* meeting, bool computes,
                             double* clock, double* bytes, const std::function<std::string()>& stop);

}  // namespace ascend_sim
