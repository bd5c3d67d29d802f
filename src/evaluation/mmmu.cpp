#include "evaluation/mmmu.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/base64.h"
#include "base/file.h"
#include "evaluation/text_file.h"
#include "images/decode.h"
#include "sched/image_prompt.h"
#include "text/unicode.h"
#include "text/unicode_regex.h"

namespace reprise::evaluation {
namespace {

constexpr std::string_view kBlanks = " \t\n\r\f\v";
constexpr const char* kChooses =
    "\nAnswer the following multiple-choice question. The last line of your response should be of the following "
    "format: 'Answer: $LETTER' (without quotes) where LETTER is one of the options. Think step by step before "
    "answering.";

std::string stripped(std::string_view text, std::string_view of = kBlanks) {
  const size_t first = text.find_first_not_of(of);
  return first == text.npos ? "" : std::string(text.substr(first, text.find_last_not_of(of) - first + 1));
}

std::string repaired(std::string_view text) {
  std::string valid;
  text::append_repaired_utf8(text, true, &valid);
  return valid;
}

std::string lower(std::string_view text) { return text::to_lowercase(repaired(text)); }

int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// "['$6', \"it's\", 'a\\nb']": Python's way to write a list of texts.
std::optional<std::vector<std::string>> python_list(std::string_view text) {
  std::vector<std::string> out;
  const auto skip = [&] { text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size())); };
  const auto take = [&](char c) {
    skip();
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  };
  if (!take('[')) return std::nullopt;
  while (!take(']')) {
    if (!out.empty() && !take(',')) return std::nullopt;
    if (!out.empty() && take(']')) break;
    skip();
    if (text.empty() || (text[0] != '\'' && text[0] != '"')) return std::nullopt;
    const char quote = text[0];
    text.remove_prefix(1);
    std::string one;
    for (; !text.starts_with(quote); text.remove_prefix(1)) {
      if (text.empty()) return std::nullopt;
      if (text[0] == '\\') {
        constexpr std::string_view kEscapes = "\\'\"nrt", kMeanings = "\\'\"\n\r\t";
        const size_t which = text.size() > 1 ? kEscapes.find(text[1]) : kEscapes.npos;
        if (which == kEscapes.npos) return std::nullopt;
        one += kMeanings[which];
        text.remove_prefix(1);
        continue;
      }
      one += text[0];
    }
    text.remove_prefix(1);
    out.push_back(std::move(one));
  }
  skip();
  return text.empty() ? std::optional(out) : std::nullopt;
}

// As Python's float() of the text without its commas.
std::optional<double> number_of(const std::string& text) {
  std::string plain = stripped(text);
  plain.erase(std::remove(plain.begin(), plain.end(), ','), plain.end());
  if (plain.empty() || contains(plain, "x") || contains(plain, "X") || contains(plain, "(")) return std::nullopt;
  const auto digit = [&](size_t i) { return i < plain.size() && plain[i] >= '0' && plain[i] <= '9'; };
  for (size_t i = 1; i < plain.size(); ++i)
    if (plain[i] == '_' && digit(i - 1) && digit(i + 1)) plain.erase(i, 1);
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  if (end != plain.c_str() + plain.size() || kBlanks.find(plain[0]) != kBlanks.npos) return std::nullopt;
  return value;
}

void add_normal(const std::string& raw, std::vector<MmmuValue>& out) {
  const std::string text = stripped(raw);
  if (const auto value = number_of(text)) {
    // The decimal form is rounded correctly, as Python rounds.
    out.emplace_back(std::isfinite(*value) ? std::strtod(fmt::format("{:.2f}", *value).c_str(), nullptr) : *value);
  } else if (text.size() > 1 && text::code_point_at(text, 0).size < text.size()) {
    out.emplace_back(lower(text));
  } else {
    out.emplace_back(" " + text);  // a single character is one by itself
    out.emplace_back(text + " ");
  }
}

text::Regex pattern(std::string_view of) {
  auto made = text::Regex::compile(of);
  CHECK(made.is_ok(), "{}", made.status().message());
  return std::move(*made);
}

// All that matches, in valid UTF-8. Where the matcher gives up, as in an answer of endless digits, what was found
// before counts.
std::vector<std::string> matches(const text::Regex& regex, const std::string& text) {
  std::vector<std::string> out;
  text::RegexMatcher matcher(regex);
  matcher.start(text);
  size_t begin = 0, end = 0;
  for (auto found = matcher.next(&begin, &end); found.is_ok() && *found; found = matcher.next(&begin, &end))
    out.push_back(text.substr(begin, end - begin));
  return out;
}

void add_numbers(const std::string& text, std::vector<std::string>& out) {
  static const text::Regex kNumbers[] = {pattern(R"(-?\b[0-9]{1,3}(?:,[0-9]{3})+\b)"),
                                         pattern(R"(-?[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]+)"),
                                         pattern(R"(-?(?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]+\b))"
                                                 R"((?![eE][+-]?[0-9]+)(?![,0-9]))")};
  const std::string valid = repaired(text);
  for (const text::Regex& numbers : kNumbers)
    for (std::string& number : matches(numbers, valid)) out.push_back(std::move(number));
}

// What stands behind the words that announce a result, the shortest of each line.
std::vector<std::string> key_parts(std::string_view answer) {
  const std::string text = lower(stripped(stripped(answer), "."));
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const bool last = end == text.size();
    at = end + 1;
    std::string shortest;
    for (const std::string_view word :
         {"could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ", "="}) {
      const size_t found = line.rfind(word);
      if (found == line.npos || (word == "=" && !last)) continue;
      std::string part = stripped(std::string_view(line).substr(found + word.size()));
      if (shortest.empty() || characters(part) < characters(shortest)) shortest = std::move(part);
    }
    static constexpr std::string_view kNothing[] = {":", ",", ".", "!", "?", ";", "'"};
    if (!shortest.empty() && std::find(std::begin(kNothing), std::end(kNothing), shortest) == std::end(kNothing))
      out.push_back(std::move(shortest));
  }
  if (out.empty()) out.push_back(text);
  return out;
}

size_t words_of(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find_first_not_of(kBlanks, at)) != text.npos; ++count)
    at = std::min(text.find_first_of(kBlanks, at), text.size());
  return count;
}

std::string letter(size_t option) { return {static_cast<char>('A' + option)}; }

// The user's message: texts, and `image` between them.
OrderedJson content_of(const MmmuQuestion& q, OrderedJson image) {
  OrderedJson content = OrderedJson::array();
  if (!q.before.empty()) content.push_back({{"type", "text"}, {"text", q.before}});
  content.push_back(std::move(image));
  if (!q.behind.empty()) content.push_back({{"type", "text"}, {"text", q.behind}});
  return content;
}

// What all requests of a run have in common.
struct Asked {
  const api::TextModel& model;
  const std::string& folder;
  images::PatchRules rules;
  int64_t image_token = -1, max_new_tokens = 0;
};

Result<sched::GenerationRequest> request_of(const Asked& a, const MmmuQuestion& q) {
  const OrderedJson message{{"role", "user"}, {"content", content_of(q, {{"type", "image"}})}};
  ASSIGN_OR_RETURN(const auto prompt, a.model.encode_chat(OrderedJson::array({message})));
  const std::string file = a.folder + "/" + q.image;
  ASSIGN_OR_RETURN(const std::string bytes, read_file(file));
  auto image = sched::prepare_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, a.rules);
  if (!image) return image.status().at(file);
  ASSIGN_OR_RETURN(sched::ImagePrompt placed, sched::place_images(prompt, {std::move(*image)}, a.image_token));
  sched::GenerationRequest r;
  r.prompt = std::move(placed.tokens);
  r.images = std::move(placed.images);
  r.sampling.max_new_tokens = a.max_new_tokens;
  return r;
}

Result<client::GenerationCall> call_of(const MmmuQuestion& q, const std::string& folder, int64_t max_new_tokens) {
  const std::string file = folder + "/" + q.image;
  ASSIGN_OR_RETURN(const std::string bytes, read_file(file));
  const std::string_view format = images::image_format({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (format.empty()) return invalid("{}: no image; allowed: PNG, JPEG, WebP", file);
  OrderedJson image{{"type", "image_url"},
                    {"image_url", {{"url", fmt::format("data:image/{};base64,{}", format, base64_of(bytes))}}}};
  return client::GenerationCall{content_of(q, std::move(image)), 0, max_new_tokens};
}

}  // namespace

Result<MmmuQuestion> mmmu_question(const Json& line, const std::string& place) {
  const auto text = [&](const char* name) { return line.contains(name) && line[name].is_string(); };
  MmmuQuestion q;
  for (const char* name : {"id", "question", "image_1"})
    if (!text(name)) return invalid("{}: \"{}\": a text is expected", place, name);
  q.id = line["id"].get<std::string>();
  q.image = line["image_1"].get<std::string>();
  q.subject = text("subject") ? line["subject"].get<std::string>() : "";
  const Json options = line.value("options", Json());
  auto list = options.is_string() ? python_list(options.get<std::string>()) : std::vector<std::string>();
  if (options.is_array())
    for (const Json& o : options) {
      if (!o.is_string()) list.reset();
      if (list) list->push_back(o.get<std::string>());
    }
  if (!list || list->size() > 26 || !(options.is_null() || options.is_array() || options.is_string()))
    return invalid("{}: \"options\": a list of at most 26 texts is expected", place);
  q.options = std::move(*list);
  const Json answer = line.value("answer", Json());
  for (const Json& a : answer.is_array() ? answer : Json::array({answer})) {
    if (!a.is_string()) return invalid("{}: \"answer\": a text or a list of texts is expected", place);
    q.answers.push_back(a.get<std::string>());
  }
  if (q.answers.empty()) return invalid("{}: \"answer\": a text or a list of at least one text is expected", place);
  std::string prompt = line["question"].get<std::string>() + "\n";
  for (size_t i = 0; i < q.options.size(); ++i) prompt += letter(i) + ". " + q.options[i] + "\n";
  prompt += q.options.empty() ? "\nAnswer: " : kChooses;
  const size_t open = prompt.find('<'), close = prompt.find('>');
  q.before = prompt;
  if (open != prompt.npos && close != prompt.npos) {
    q.before = prompt.substr(0, open);
    q.behind = prompt.substr(close + 1);
  }
  return q;
}

Result<std::vector<MmmuQuestion>> read_mmmu(const std::string& folder, int64_t most) {
  ASSIGN_OR_RETURN(const std::vector<JsonLine> lines, read_json_lines(folder + "/questions.jsonl"));
  std::vector<MmmuQuestion> out;
  for (const JsonLine& line : lines) {
    ASSIGN_OR_RETURN(MmmuQuestion q, mmmu_question(line.json, line.place));
    out.push_back(std::move(q));
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  if (most > 0 && static_cast<int64_t>(out.size()) > most) out.resize(static_cast<size_t>(most));
  return out;
}

Result<Answers> ask_mmmu(api::TextGenerator& generator, const api::TextModel& model, const engine::Engine& engine,
                         const std::vector<MmmuQuestion>& questions, const std::string& folder,
                         int64_t max_new_tokens) {
  const auto& vision = engine.config().vision;
  if (!vision) return error(Code::Unsupported, "{}", sched::reads_no_images(engine.config()));
  Asked asked{model, folder, {}, vision->image_token, max_new_tokens};
  ASSIGN_OR_RETURN(asked.rules, sched::patch_rules(engine.options().model_path, *vision, engine.max_image_rows()));
  constexpr size_t kTogether = 32;  // patches of a picture take megabytes
  ModelQuestions all{
      .title = "mmmu", .count = questions.size(), .together = kTogether, .max_new_tokens = max_new_tokens};
  all.request = [&](size_t i) { return request_of(asked, questions[i]); };
  return ask_model(generator, all);
}

Result<Answers> ask_mmmu(const AskedServer& server, const std::vector<MmmuQuestion>& questions,
                         const std::string& folder, int64_t max_new_tokens) {
  ServerQuestions all{.title = "mmmu"};
  all.style.endpoint = client::Endpoint::Chat;
  all.style.extra["separate_reasoning"] = false;  // thoughts are scored with the answer, as those of a model here
  for (const MmmuQuestion& q : questions) {
    ASSIGN_OR_RETURN(client::GenerationCall call, call_of(q, folder, max_new_tokens));
    all.calls.push_back(std::move(call));
  }
  all.name = [&](size_t i) { return questions[i].id; };
  return ask_server(server, all);
}

MmmuScore score_mmmu(const std::vector<MmmuQuestion>& questions, const std::vector<std::string>& answers) {
  MmmuScore score;
  for (size_t i = 0; i < questions.size(); ++i) {
    const MmmuQuestion& q = questions[i];
    std::string got;
    const bool right = mmmu_right(q, answers[i], &got);
    for (MmmuShare* s : {&score.all, &score.subjects[q.subject]}) ++s->questions, s->right += right;
    const OrderedJson line{{"id", q.id}, {"expected", q.answers}, {"got", got}, {"right", right}, {"text", answers[i]}};
    score.answers += line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  }
  return score;
}

std::string mmmu_choice(std::string_view answer, const std::vector<std::string>& options) {
  static const text::Regex kSaid = pattern(R"([Aa]nswer\s*:\s*\*?\*?\s*\(?[A-Z])");
  std::string text(answer);
  const std::vector<std::string> said = matches(kSaid, repaired(text));
  if (!said.empty() && static_cast<size_t>(said.back().back() - 'A') < options.size()) return {said.back().back()};
  for (const char sign : std::string_view(",.!?;:'")) text = stripped(text, {&sign, 1});
  text = " " + text + " ";
  const std::string small = lower(text);
  std::vector<size_t> found;
  const auto look = [&](auto&& there) {
    for (size_t i = 0; i < options.size(); ++i)
      if (there(i)) found.push_back(i);
  };
  look([&](size_t i) { return contains(text, "(" + letter(i) + ")"); });
  if (found.empty()) look([&](size_t i) { return contains(text, " " + letter(i) + " "); });
  if (found.empty() && words_of(text) > 5)
    look([&](size_t i) { return !options[i].empty() && contains(small, lower(options[i])); });
  if (found.empty()) return letter(0);
  const auto place = [&](size_t i) -> int64_t {
    size_t at = text.rfind("(" + letter(i) + ")");
    if (at == text.npos) at = text.rfind(" " + letter(i) + " ");
    if (at == text.npos && !options[i].empty()) at = small.rfind(lower(options[i]));
    return at == text.npos ? -1 : static_cast<int64_t>(at);
  };
  return letter(*std::max_element(found.begin(), found.end(), [&](size_t a, size_t b) { return place(a) < place(b); }));
}

std::vector<MmmuValue> mmmu_values(std::string_view answer) {
  const std::vector<std::string> parts = key_parts(answer);
  std::vector<std::string> all = parts;
  for (const std::string& part : parts) add_numbers(part, all);
  std::vector<MmmuValue> out;
  for (const std::string& one : all) {
    std::vector<MmmuValue> normal;
    add_normal(one, normal);
    for (MmmuValue& v : normal)
      if (std::find(out.begin(), out.end(), v) == out.end()) out.push_back(std::move(v));
  }
  return out;
}

bool mmmu_right(const MmmuQuestion& question, std::string_view answer, std::string* got) {
  if (!question.options.empty()) {
    *got = mmmu_choice(answer, question.options);
    return *got == question.answers.front();
  }
  std::vector<MmmuValue> wanted;
  for (const std::string& a : question.answers) add_normal(a, wanted);
  bool right = false;
  got->clear();
  for (const MmmuValue& value : mmmu_values(answer)) {
    if (!got->empty()) *got += ", ";
    const auto* text = std::get_if<std::string>(&value);
    *got += text ? *text : fmt::format("{}", std::get<double>(value));
    for (const MmmuValue& want : wanted) {
      const auto* part = std::get_if<std::string>(&want);
      right |= text ? part && contains(*text, *part) : value == want;
    }
  }
  return right;
}

}  // namespace reprise::evaluation
