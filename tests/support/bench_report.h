// report: what `reprise bench one-batch --json` says of one row, with some of its figures. Pure function; any thread.
#pragma once

#include "base/json.h"

namespace reprise::testing_support {

inline OrderedJson report(double decode, double step, double bandwidth = 60) {
  OrderedJson j;
  j["limits"] = {{"cpu", "a processor"},
                 {"isa", "avx512"},
                 {"threads", 2},
                 {"read_GBps_all", bandwidth},
                 {"fp32_gflops", 200},
                 {"devices", {"cpu"}},
                 {"warnings", OrderedJson::array()}};
  j["rows"] = {{{"batch_size", 1},
                {"input_len", 8},
                {"output_len", 4},
                {"graph", "whole"},
                {"decode_tok_s", decode},
                {"step_ms_p50", step}}};
  return j;
}

}  // namespace reprise::testing_support
