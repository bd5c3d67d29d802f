// What people should know of a GPU's architecture, apart from what the driver tells. Constants; any thread.
#pragma once

#include <string_view>

namespace reprise::cuda {

// Of int8 products on a GPU of this architecture (90 is sm_90); empty: nothing special. Published and not measured
// here.
constexpr std::string_view int8_remark(int architecture) {
  if (architecture != 100 && architecture != 103) return {};
  return "int8 products (W8A8) may be slower than bf16 here: data-centre Blackwell (sm_100, sm_103) gave up most of "
         "its "
         "int8 tensor rate; not measured";
}

}  // namespace reprise::cuda
