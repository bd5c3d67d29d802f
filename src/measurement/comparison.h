// Comparison: two reports of `reprise bench ... --json`, row by row, and whether they may be compared at all.
//
// A ratio of two times says something about the program only where the machine was the same: the same processor,
// instruction set, threads and devices, limits that agree within kMostDrift, and no other load. What differs is listed
// in words. Rows belong together when everything that was asked for is equal. A plain value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::measurement {

struct ComparedFigure {
  std::string name;  // "decode_tok_s"
  double before = 0, after = 0;
  bool more_is_better = false;

  // How many times as good it became: above 1 is better, for every figure.
  double gain() const { return more_is_better ? after / before : before / after; }
};

struct ComparedRow {
  std::string what;  // "batch_size 1, input_len 512, output_len 64"
  std::vector<ComparedFigure> figures;
};

struct Comparison {
  static constexpr double kMostDrift = 0.1;  // of the bandwidth and of the peak

  std::vector<std::string> obstacles;  // why the two say nothing about the program; empty: they may be compared
  std::vector<ComparedRow> rows;       // in the order of the second report
  std::vector<std::string> only_before, only_after;
};

// Both are JSON objects of the same command. The error names the report and what is wrong with it.
Result<Comparison> compare_reports(const OrderedJson& before, const OrderedJson& after);

std::string comparison_text(const Comparison& c);
OrderedJson comparison_json(const Comparison& c);

}  // namespace reprise::measurement
