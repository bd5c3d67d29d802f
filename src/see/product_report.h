// ProductReport: who computes each matrix product of a program, and why, on a device that may leave products to a
// vendor's library. Plain values made of an engine at rest; the thread that drives it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "compile/compiled_model.h"
#include "device/product_ways.h"

namespace reprise::see {

// Who computes it for some rows of x.
struct ProductRow {
  RowRange rows;  // last: kNoEnd where any number above is meant
  static constexpr int64_t kNoEnd = INT64_MAX;
  bool by_library = false;
  std::string algorithm;   // of the library
  bool from_file = false;  // as an earlier start found it; else this one searched
  bool asked = true;       // false: the reason is a rule, and nothing was found out
  std::string reason;
  double us = 0,
         own_us = 0;  // of one product, by the library and by the own kernel, when it was searched; 0: not timed
};

// Products of one op with the same sizes.
struct ProductGroup {
  std::string op, param;  // param: the weight of the first of them
  DType in = DType::BF16, out = DType::BF16;
  int64_t depth = 0, columns = 0;
  int count = 0;                 // in a step
  std::vector<ProductRow> rows;  // ascending; rows that are in none were not computed yet
};

struct ProductReport {
  std::string library;
  std::vector<ProductGroup> groups;  // in the order of the graph
};

// Nothing where the device has kernels of its own alone.
std::optional<ProductReport> product_report(const CompiledModel& model);

OrderedJson product_json(const ProductReport& report);
std::string product_text(const ProductReport& report);

}  // namespace reprise::see
