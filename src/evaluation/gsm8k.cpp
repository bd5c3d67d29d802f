#include "evaluation/gsm8k.h"

#include <algorithm>
#include <cctype>

#include "evaluation/text_file.h"

namespace reprise::evaluation {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

Result<std::string> text_of(const Json& line, const char* key, size_t index) {
  if (!line.contains(key) || !line[key].is_string())
    return invalid("question {}: \"{}\" is missing or not a text", index + 1, key);
  return line[key].get<std::string>();
}

// Sign, whole part without leading zeros, fraction without trailing ones.
struct Number {
  bool negative = false;
  std::string whole, fraction;
  bool operator==(const Number&) const = default;
};

Number parse(std::string_view text) {
  Number n;
  if (!text.empty() && text[0] == '-') {
    n.negative = true;
    text.remove_prefix(1);
  }
  const size_t point = std::min(text.find('.'), text.size());
  n.whole = text.substr(0, point);
  if (point < text.size()) n.fraction = text.substr(point + 1);
  n.whole.erase(0, std::min(n.whole.find_first_not_of('0'), n.whole.size()));
  n.fraction.erase(n.fraction.find_last_not_of('0') + 1);
  if (n.whole.empty() && n.fraction.empty()) n.negative = false;
  return n;
}

Result<std::vector<Json>> read_questions(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<JsonLine> lines, read_json_lines(path));
  std::vector<Json> questions;
  for (JsonLine& line : lines) questions.push_back(std::move(line.json));
  return questions;
}

}  // namespace

Result<std::vector<Gsm8kTask>> gsm8k_tasks(const std::vector<Json>& questions, const std::vector<Json>& shots) {
  std::string head;
  for (size_t i = 0; i < shots.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string question, text_of(shots[i], "question", i));
    ASSIGN_OR_RETURN(const std::string answer, text_of(shots[i], "answer", i));
    head += fmt::format("Question: {}\nAnswer: {}\n\n", question, answer);
  }
  std::vector<Gsm8kTask> tasks;
  for (size_t i = 0; i < questions.size(); ++i) {
    ASSIGN_OR_RETURN(const std::string question, text_of(questions[i], "question", i));
    ASSIGN_OR_RETURN(const std::string answer, text_of(questions[i], "answer", i));
    const size_t mark = answer.rfind("####");
    const auto expected = mark == std::string::npos ? std::nullopt : last_number(std::string_view(answer).substr(mark));
    if (!expected) return invalid("question {}: its answer has no number behind \"####\"", i + 1);
    tasks.push_back({fmt::format("{}Question: {}\nAnswer:", head, question), *expected});
  }
  return tasks;
}

Result<std::vector<Gsm8kTask>> read_gsm8k(const Gsm8kSource& source) {
  ASSIGN_OR_RETURN(std::vector<Json> questions, read_questions(source.questions));
  std::vector<Json> shots;
  if (source.shots_each > 0) {
    const bool among = source.shots.empty();
    std::vector<Json> own;
    if (!among) {
      ASSIGN_OR_RETURN(own, read_questions(source.shots));
    }
    std::vector<Json>& from = among ? questions : own;
    const auto n = static_cast<size_t>(source.shots_each);
    if (from.size() < n + (among ? 1 : 0))
      return invalid("{}: {} lines are too few for {} {}", among ? source.questions : source.shots, from.size(),
                     source.shots_from, source.shots_each);
    shots.assign(from.begin(), from.begin() + source.shots_each);
    if (among) questions.erase(questions.begin(), questions.begin() + source.shots_each);
  }
  if (source.most_questions > 0 && static_cast<int64_t>(questions.size()) > source.most_questions)
    questions.resize(static_cast<size_t>(source.most_questions));
  auto tasks = gsm8k_tasks(questions, shots);
  if (!tasks) return tasks.status().at(source.questions);
  return tasks;
}

Result<Answers> ask_gsm8k(api::TextGenerator& generator, const api::TextModel& model,
                          const std::vector<Gsm8kTask>& tasks, int64_t max_new_tokens) {
  std::vector<sched::GenerationRequest> requests;
  for (const Gsm8kTask& task : tasks) {
    sched::GenerationRequest r;
    ASSIGN_OR_RETURN(r.prompt, model.encode(task.prompt));
    r.sampling.max_new_tokens = max_new_tokens;
    r.sampling.stop = gsm8k_stops();
    requests.push_back(std::move(r));
  }
  ModelQuestions questions{.title = "gsm8k", .count = tasks.size(), .max_new_tokens = max_new_tokens};
  questions.request = [&](size_t i) { return std::move(requests[i]); };
  return ask_model(generator, questions);
}

Result<Answers> ask_gsm8k(const AskedServer& server, const std::vector<Gsm8kTask>& tasks, int64_t max_new_tokens) {
  ServerQuestions questions{.title = "gsm8k"};
  questions.style.stop = gsm8k_stops();
  for (const Gsm8kTask& task : tasks) questions.calls.push_back({task.prompt, 0, max_new_tokens});
  questions.name = [](size_t i) { return std::to_string(i + 1); };
  return ask_server(server, questions);
}

Gsm8kScore score_gsm8k(const std::vector<Gsm8kTask>& tasks, const std::vector<std::string>& answers) {
  Gsm8kScore score;
  score.questions = tasks.size();
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto number = last_number(answers[i]);
    const bool right = number && same_number(*number, tasks[i].expected);
    score.right += right;
    score.without += !number;
    const OrderedJson line{
        {"expected", tasks[i].expected}, {"got", number.value_or("")}, {"right", right}, {"text", answers[i]}};
    score.answers += line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  }
  return score;
}

std::vector<std::string> gsm8k_stops() { return {"Question:", "Question", "Assistant:", "<|separator|>"}; }

std::optional<std::string> last_number(std::string_view text) {
  // Backwards from the last digit: digits, commas between digits, at most one point.
  size_t end = text.size();
  while (end > 0 && !digit(text[end - 1])) --end;
  if (end == 0) return std::nullopt;
  size_t begin = end;
  bool point = false;
  while (begin > 0) {
    const char c = text[begin - 1];
    const bool inside = begin >= 2 && digit(text[begin - 2]);
    if (digit(c) || (c == ',' && inside)) {
      --begin;
    } else if (c == '.' && inside && !point && text.substr(begin, end - begin).find(',') == std::string_view::npos) {
      point = true;
      --begin;
    } else {
      break;
    }
  }
  std::string number;
  // A minus counts when it is not between two operands: "5-3" ends in 3.
  if (begin > 0 && text[begin - 1] == '-' && (begin < 2 || !std::isalnum(static_cast<unsigned char>(text[begin - 2]))))
    number = "-";
  for (const char c : text.substr(begin, end - begin))
    if (c != ',') number += c;
  return number;
}

bool same_number(std::string_view a, std::string_view b) { return parse(a) == parse(b); }

}  // namespace reprise::evaluation
