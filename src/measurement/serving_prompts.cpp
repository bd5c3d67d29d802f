#include "measurement/serving_prompts.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "evaluation/gsm8k.h"
#include "evaluation/text_file.h"

namespace reprise::measurement {
namespace {

constexpr int64_t kLongestLike = 1024;
constexpr double kPi = 3.14159265358979323846;

// Short words, one token each in most vocabularies.
constexpr const char* kWords[] = {"time",  "year", "people", "way",   "day",  "man",   "thing", "life",
                                  "hand",  "part", "child",  "eye",   "week", "place", "work",  "case",
                                  "point", "home", "water",  "room",  "area", "money", "story", "fact",
                                  "month", "lot",  "right",  "study", "book", "job",   "word",  "side"};

// The distributions of <random> differ between libraries.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t below(uint64_t n) { return engine_() % n; }
  double uniform() { return static_cast<double>((engine_() >> 11) + 1) * 0x1p-53; }  // (0, 1]
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * kPi * uniform());
  }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
  }
  int64_t log_normal(double middle, double spread) {
    return std::clamp<int64_t>(std::llround(middle * std::exp(spread * normal())), 4, kLongestLike);
  }

 private:
  std::mt19937_64 engine_;
};

client::GenerationCall random_call(const PromptOptions& o, Random& random, int64_t input, int64_t output) {
  client::GenerationCall call;
  call.max_tokens = output;
  if (o.ids) {
    // Special tokens lie at either end of a vocabulary.
    const int64_t edge = o.vocab_size / 8;
    client::PromptIds ids(static_cast<size_t>(input));
    for (int32_t& id : ids) id = static_cast<int32_t>(random.between(edge, o.vocab_size - edge - 1));
    call.prompt = std::move(ids);
    call.prompt_tokens = input;
  } else {
    std::string text;
    for (int64_t i = 0; i < input; ++i) {
      if (i > 0) text += ' ';
      text += kWords[random.below(std::size(kWords))];
    }
    call.prompt = std::move(text);
  }
  return call;
}

Result<std::vector<client::GenerationCall>> gsm8k_calls(const PromptOptions& o) {
  ASSIGN_OR_RETURN(const std::vector<evaluation::JsonLine> lines, evaluation::read_json_lines(o.path));
  std::vector<Json> shots, questions;
  for (const evaluation::JsonLine& line : lines)
    (static_cast<int64_t>(shots.size()) < o.shots ? shots : questions).push_back(line.json);
  if (questions.empty())
    return invalid("{}: {} lines are too few for {} solved questions", o.path, lines.size(), o.shots);
  auto tasks = evaluation::gsm8k_tasks(questions, shots);
  if (!tasks) return tasks.status().at(o.path);
  std::vector<client::GenerationCall> calls;
  for (const evaluation::Gsm8kTask& t : *tasks) calls.push_back({t.prompt, 0, o.output_len});
  return calls;
}

Result<std::vector<client::GenerationCall>> file_calls(const PromptOptions& o) {
  ASSIGN_OR_RETURN(const std::vector<evaluation::JsonLine> lines, evaluation::read_json_lines(o.path));
  std::vector<client::GenerationCall> calls;
  for (const evaluation::JsonLine& line : lines) {
    client::GenerationCall call;
    call.max_tokens = o.output_len;
    const auto prompt = line.json.find("prompt");
    if (prompt == line.json.end()) return invalid("{}: \"prompt\" is missing", line.place);
    if (prompt->is_string()) {
      call.prompt = prompt->get<std::string>();
    } else if (prompt->is_array() && !prompt->empty() &&
               std::all_of(prompt->begin(), prompt->end(), [](const Json& id) { return id.is_number_integer(); })) {
      call.prompt = prompt->get<client::PromptIds>();
      call.prompt_tokens = static_cast<int64_t>(prompt->size());
    } else {
      return invalid("{}: \"prompt\" must be a text or a list of token ids", line.place);
    }
    const auto most = line.json.find("max_tokens");
    if (most != line.json.end()) {
      if (!most->is_number_integer() || *most < 1) return invalid("{}: \"max_tokens\" must be 1 or more", line.place);
      call.max_tokens = most->get<int64_t>();
    }
    calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace

Result<std::vector<client::GenerationCall>> serving_calls(const PromptOptions& o) {
  const auto count = static_cast<size_t>(o.count);
  std::vector<client::GenerationCall> calls;
  if (o.dataset == "gsm8k" || o.dataset == "file") {
    auto found = o.dataset == "gsm8k" ? gsm8k_calls(o) : file_calls(o);
    if (!found) return found.status();
    for (size_t i = 0; i < count; ++i) calls.push_back((*found)[i % found->size()]);
    return calls;
  }
  Random random(o.seed);
  for (size_t i = 0; i < count; ++i) {
    int64_t input, output;
    if (o.dataset == "random") {
      const auto draw = [&](int64_t len) {
        return random.between(std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(len) * o.range_ratio)),
                              len);
      };
      input = draw(o.input_len);
      output = draw(o.output_len);
    } else if (o.dataset == "sharegpt-like") {
      input = random.log_normal(90, 1.35);
      output = random.log_normal(130, 1.0);
    } else {
      return invalid("unknown dataset \"{}\"; allowed: random, sharegpt-like, gsm8k, file", o.dataset);
    }
    calls.push_back(random_call(o, random, input, output));
  }
  return calls;
}

}  // namespace reprise::measurement
