#include "evaluation/choice.h"

#include <algorithm>
#include <charconv>

namespace reprise::evaluation {
namespace {

const Json* member(const Json& line, const char* name, const char* other) {
  for (const char* key : {name, other})
    if (const auto it = line.find(key); it != line.end()) return &*it;
  return nullptr;
}

// An index, as a number or (HellaSwag's) as its digits.
std::optional<size_t> index_of(const Json& value, size_t count) {
  int64_t index = -1;
  if (value.is_number_integer()) {
    index = value.get<int64_t>();
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  }
  if (index < 0 || static_cast<uint64_t>(index) >= count) return std::nullopt;
  return static_cast<size_t>(index);
}

Result<ChoiceTask> choice_task(const JsonLine& line) {
  const Json* context = member(line.json, "context", "ctx");
  const Json* choices = member(line.json, "choices", "endings");
  const Json* answer = member(line.json, "answer", "label");
  if (!context || !context->is_string() || context->get_ref<const std::string&>().empty())
    return invalid("{}: \"context\" (or \"ctx\") must be a text", line.place);
  if (!choices || !choices->is_array() || choices->size() < 2)
    return invalid("{}: \"choices\" (or \"endings\") must be an array of at least 2 texts", line.place);
  ChoiceTask task{*context, {}, 0};
  for (const Json& choice : *choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty())
      return invalid("{}: \"choices\" (or \"endings\") must be an array of at least 2 texts", line.place);
    const auto& text = choice.get_ref<const std::string&>();
    task.endings.push_back(text.front() == ' ' ? text : " " + text);
  }
  const auto index = answer ? index_of(*answer, task.endings.size()) : std::nullopt;
  if (!index)
    return invalid("{}: \"answer\" (or \"label\") must be an index; allowed: 0 to {}", line.place,
                   task.endings.size() - 1);
  task.answer = *index;
  return task;
}

}  // namespace

Result<std::vector<ChoiceTask>> choice_tasks(const std::vector<JsonLine>& lines) {
  std::vector<ChoiceTask> tasks;
  for (const JsonLine& line : lines) {
    ASSIGN_OR_RETURN(ChoiceTask task, choice_task(line));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

Result<std::vector<ChoiceTask>> read_choices(const std::string& path, int64_t most) {
  std::vector<JsonLine> lines;
  if (path.empty()) {
    lines = builtin_choices();
  } else {
    ASSIGN_OR_RETURN(lines, read_json_lines(path));
  }
  if (most > 0 && lines.size() > static_cast<size_t>(most)) lines.resize(static_cast<size_t>(most));
  return choice_tasks(lines);
}

Result<std::vector<sched::TextToScore>> choice_texts(const std::vector<ChoiceTask>& tasks, const api::TextModel& model,
                                                     const sched::AdapterPtr& adapter) {
  std::vector<sched::TextToScore> texts;
  for (const ChoiceTask& task : tasks) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> context, model.encode(task.context));
    for (const std::string& ending : task.endings) {
      sched::TextToScore text;
      ASSIGN_OR_RETURN(text.tokens, model.encode(task.context + ending));
      const auto [a, b] = std::mismatch(context.begin(), context.end(), text.tokens.begin(), text.tokens.end());
      text.from = std::max<int64_t>(1, a - context.begin());
      text.adapter = adapter;
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

Choice choose(const ChoiceTask& task, const std::vector<double>& log_p) {
  std::vector<double> by_byte;
  for (size_t i = 0; i < log_p.size(); ++i) by_byte.push_back(log_p[i] / static_cast<double>(task.endings[i].size()));
  const auto best = [](const std::vector<double>& v) {
    return static_cast<size_t>(std::max_element(v.begin(), v.end()) - v.begin());
  };
  return {best(log_p), best(by_byte)};
}

ChoiceScore score_choices(const std::vector<ChoiceTask>& tasks, const std::vector<sched::TextScore>& scores) {
  ChoiceScore out;
  out.questions = tasks.size();
  size_t next = 0;
  for (const ChoiceTask& task : tasks) {
    std::vector<double> log_p;
    for (size_t i = 0; i < task.endings.size(); ++i) log_p.push_back(scores[next++].log_p);
    const Choice choice = choose(task, log_p);
    out.right += choice.by_sum == task.answer;
    out.right_by_byte += choice.by_byte == task.answer;
    const OrderedJson line{
        {"answer", task.answer}, {"choice", choice.by_sum}, {"choice_per_byte", choice.by_byte}, {"log_p", log_p}};
    out.answers += line.dump() + "\n";
  }
  return out;
}

}  // namespace reprise::evaluation
