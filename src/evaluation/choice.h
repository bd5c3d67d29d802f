// Multiple choice by probability: every ending is scored by the log-probability that the model gives to its tokens
// behind the context, as HellaSwag and its kin are commonly run. Reads a dataset's JSON lines ({"context", "choices",
// "answer"}, or HellaSwag's {"ctx", "endings", "label"}) and picks. Pure functions, but for those that read files and
// ask; one thread.
#pragma once

#include <string>
#include <vector>

#include "api/text_model.h"
#include "base/status.h"
#include "evaluation/text_file.h"
#include "sched/scorer.h"

namespace reprise::evaluation {

struct ChoiceTask {
  std::string context;
  std::vector<std::string> endings;  // each as it follows the context, its space included; two or more
  size_t answer = 0;                 // index of the right one
};

// An error names file and line.
Result<std::vector<ChoiceTask>> choice_tasks(const std::vector<JsonLine>& lines);

// Those of a file, of the built-in questions with "": the first `most` of them, 0: all.
Result<std::vector<ChoiceTask>> read_choices(const std::string& path, int64_t most);

// Every ending of every task behind its context; scored from where the tokens leave those of the context alone.
Result<std::vector<sched::TextToScore>> choice_texts(const std::vector<ChoiceTask>& tasks, const api::TextModel& model,
                                                     const sched::AdapterPtr& adapter);

struct Choice {
  size_t by_sum = 0;   // of the log-probabilities
  size_t by_byte = 0;  // the same over the ending's bytes, which takes the advantage from short endings
};

// One log-probability per ending; the first of equal ones.
Choice choose(const ChoiceTask& task, const std::vector<double>& log_p);

struct ChoiceScore {
  size_t questions = 0, right = 0, right_by_byte = 0;
  std::string answers;  // JSON lines {"answer", "choice", "choice_per_byte", "log_p"}
};
// `scores`: those of choice_texts().
ChoiceScore score_choices(const std::vector<ChoiceTask>& tasks, const std::vector<sched::TextScore>& scores);

}  // namespace reprise::evaluation
