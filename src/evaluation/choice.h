// Multiple choice by probability: every ending is scored by the log-probability that the model gives to its tokens
// behind the context, as HellaSwag and its kin are commonly run. Reads a dataset's JSON lines ({"context", "choices",
// "answer"}, or HellaSwag's {"ctx", "endings", "label"}) and picks. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "evaluation/text_file.h"

namespace reprise::evaluation {

struct ChoiceTask {
  std::string context;
  std::vector<std::string> endings;  // each as it follows the context, its space included; two or more
  size_t answer = 0;                 // index of the right one
};

// An error names file and line.
Result<std::vector<ChoiceTask>> choice_tasks(const std::vector<JsonLine>& lines);

struct Choice {
  size_t by_sum = 0;   // of the log-probabilities
  size_t by_byte = 0;  // the same over the ending's bytes, which takes the advantage from short endings
};

// One log-probability per ending; the first of equal ones.
Choice choose(const ChoiceTask& task, const std::vector<double>& log_p);

}  // namespace reprise::evaluation
