// What a serving benchmark says of one run, in the names and by the definitions of vLLM's and SGLang's clients (the
// times themselves: client/generation.h). Plain functions.
//
//   completed, failed                answers that ended well; all others, with their reasons in "errors"
//   total_input_tokens, total_output_tokens   of the answers that ended well, by the server's usage
//   request_throughput, input_throughput, output_throughput, total_token_throughput   those over the duration
//   max_concurrent_requests          most calls in flight at one time
//   concurrency                      mean calls in flight: the sum of all latencies over the duration
//   {mean,median,std,p90,p99}_{ttft,tpot,itl,e2el}_ms   over answers; itl over all intervals of all answers
//   ..._e2e_latency_ms               the same as e2el, under SGLang's name
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "client/load.h"

namespace reprise::measurement {

// By linear interpolation between the two nearest values, 0 for none. `share` is in [0, 1].
double percentile(std::vector<double> values, double share);

OrderedJson serving_row(const client::LoadRun& run);

// For people: a line for each row, and what failed.
std::string serving_table(const std::vector<OrderedJson>& rows);

// A picture of the rows: TTFT and ITL percentiles and throughput, as one SVG that reads well on light and dark ground.
std::string serving_plot(const std::vector<OrderedJson>& rows, const std::string& title);

}  // namespace reprise::measurement
