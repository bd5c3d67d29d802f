#include "tuning/traffic_profile.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>

#include "evaluation/text_file.h"

namespace reprise::tuning {
namespace {

// "2026-01-02T03:04:05.678Z" in seconds since 1970.
std::optional<double> seconds_of(const std::string& date) {
  std::tm t{};
  const char* rest = ::strptime(date.c_str(), "%Y-%m-%dT%H:%M:%S", &t);
  if (!rest) return std::nullopt;
  double fraction = 0, unit = 0.1;
  if (*rest == '.')
    for (++rest; *rest >= '0' && *rest <= '9'; ++rest, unit /= 10) fraction += unit * (*rest - '0');
  if (std::string_view(rest) != "Z") return std::nullopt;
  return static_cast<double>(::timegm(&t)) + fraction;
}

// Requests at a time, weighed by how long so many were there.
Spread running_of(const std::vector<std::pair<double, double>>& spans) {
  std::map<double, int64_t> changes;
  for (const auto& [begin, end] : spans) {
    ++changes[begin];
    --changes[end];
  }
  std::map<int64_t, double> seconds;
  int64_t running = 0;
  double since = 0;
  for (const auto& [when, change] : changes) {
    if (running > 0) seconds[running] += when - since;
    since = when;
    running += change;
  }
  double all = 0;
  for (const auto& [n, s] : seconds) all += s;
  const auto reached = [&](double share) {
    double sum = 0;
    for (const auto& [n, s] : seconds)
      if ((sum += s) >= share * all) return n;
    return int64_t{1};
  };
  return {reached(0.5), reached(0.95), seconds.empty() ? 1 : seconds.rbegin()->first};
}

}  // namespace

Spread spread_of(std::vector<int64_t> v) {
  if (v.empty()) return {};
  std::sort(v.begin(), v.end());
  const auto at = [&](double share) {
    return v[static_cast<size_t>(std::ceil(share * static_cast<double>(v.size()))) - 1];
  };
  return {at(0.5), at(0.95), v.back()};
}

Result<TrafficProfile> traffic_of_log(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<evaluation::JsonLine> lines, evaluation::read_json_lines(path));
  std::vector<int64_t> prompts, answers;
  std::vector<std::pair<double, double>> spans;
  for (const evaluation::JsonLine& line : lines) {
    const Json& j = line.json;
    if (!j.contains("completion_tokens")) continue;
    for (const char* key : {"prompt_tokens", "completion_tokens", "total_ms"})
      if (!j.contains(key) || !j[key].is_number() || j[key] < 0)
        return invalid("{}: \"{}\": a number from 0 on was expected, as `reprise serve --request-log` writes it",
                       line.place, key);
    const auto begin = j.contains("ts") && j["ts"].is_string() ? seconds_of(j["ts"].get<std::string>()) : std::nullopt;
    if (!begin) return invalid("{}: \"ts\": a time such as 2026-01-02T03:04:05Z was expected", line.place);
    const auto prompt = j["prompt_tokens"].get<int64_t>(), answer = j["completion_tokens"].get<int64_t>();
    if (prompt == 0 || answer == 0) continue;
    prompts.push_back(prompt);
    // Several answers to one prompt each have their share of the tokens.
    const int64_t n = j.contains("n") && j["n"].is_number_integer() ? std::max<int64_t>(1, j["n"].get<int64_t>()) : 1;
    answers.push_back((answer + n - 1) / n);
    for (int64_t i = 0; i < n; ++i)
      spans.emplace_back(*begin, *begin + std::max(1e-3, j["total_ms"].get<double>() / 1e3));
  }
  if (prompts.empty()) return invalid("{}: none of its {} lines is of a request with an answer", path, lines.size());
  return TrafficProfile{static_cast<int64_t>(prompts.size()), spread_of(prompts), spread_of(answers),
                        running_of(spans)};
}

}  // namespace reprise::tuning
