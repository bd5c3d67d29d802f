#include "measurement/serving_report.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace reprise::measurement {
namespace {

void add_times(OrderedJson& row, const std::string& name, std::vector<double> seconds) {
  double sum = 0, squares = 0;
  for (const double s : seconds) sum += s;
  const double n = std::max<double>(1, static_cast<double>(seconds.size()));
  const double mean = sum / n;
  for (const double s : seconds) squares += (s - mean) * (s - mean);
  std::sort(seconds.begin(), seconds.end());
  row["mean_" + name + "_ms"] = 1e3 * mean;
  row["median_" + name + "_ms"] = 1e3 * percentile(seconds, 0.5);
  row["std_" + name + "_ms"] = 1e3 * std::sqrt(squares / n);
  row["p90_" + name + "_ms"] = 1e3 * percentile(seconds, 0.9);
  row["p99_" + name + "_ms"] = 1e3 * percentile(std::move(seconds), 0.99);
}

double number(const OrderedJson& row, const std::string& key) { return row.at(key).get<double>(); }

// What tells the rows apart.
std::string label_of(const OrderedJson& row) {
  if (row.contains("max_concurrency") && row["max_concurrency"].is_number()) return row["max_concurrency"].dump();
  if (row.contains("request_rate") && row["request_rate"].is_number())
    return fmt::format("{:g}/s", row["request_rate"].get<double>());
  return "all";
}

}  // namespace

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

OrderedJson serving_row(const client::LoadRun& run) {
  int64_t completed = 0, input = 0, output = 0, cached = 0, untold = 0;
  std::map<std::string, int64_t> errors;
  std::vector<double> ttft, tpot, itl, latency;
  double together = 0;
  for (const client::GenerationRecord& r : run.records) {
    if (!r.ok) {
      ++errors[r.problem];
      continue;
    }
    ++completed;
    input += r.prompt_tokens;
    output += r.output_tokens;
    cached += r.cached_tokens;
    untold += !r.usage_told;
    ttft.push_back(r.ttft_s);
    latency.push_back(r.latency_s);
    together += r.latency_s;
    if (const auto t = r.tpot_s()) tpot.push_back(*t);
    itl.insert(itl.end(), r.itl_s.begin(), r.itl_s.end());
  }
  const double s = std::max(run.duration_s, 1e-9);
  OrderedJson row;
  row["duration"] = run.duration_s;
  row["completed"] = completed;
  row["failed"] = static_cast<int64_t>(run.records.size()) - completed;
  row["errors"] = OrderedJson::object();
  for (const auto& [why, n] : errors) row["errors"][why] = n;
  row["without_usage"] = untold;
  row["total_input_tokens"] = input;
  row["total_cached_tokens"] = cached;
  row["total_output_tokens"] = output;
  row["request_throughput"] = static_cast<double>(completed) / s;
  row["input_throughput"] = static_cast<double>(input) / s;
  row["output_throughput"] = static_cast<double>(output) / s;
  row["total_token_throughput"] = static_cast<double>(input + output) / s;
  row["max_concurrent_requests"] = run.peak_concurrency;
  row["concurrency"] = together / s;
  add_times(row, "ttft", std::move(ttft));
  add_times(row, "tpot", std::move(tpot));
  add_times(row, "itl", std::move(itl));
  add_times(row, "e2el", latency);
  add_times(row, "e2e_latency", std::move(latency));
  return row;
}

std::string serving_table(const std::vector<OrderedJson>& rows) {
  std::string out = fmt::format("{:>8} {:>6} {:>6} {:>8} {:>7} {:>9} {:>9}   {:>17} {:>17} {:>17} {:>17}\n", "load",
                                "ok", "failed", "s", "req/s", "out tok/s", "tok/s", "TTFT med/p99 ms", "ITL med/p99 ms",
                                "TPOT med/p99 ms", "E2E med/p99 ms");
  const auto pair = [](const OrderedJson& r, const std::string& name) {
    return fmt::format("{:.1f}/{:.1f}", number(r, "median_" + name + "_ms"), number(r, "p99_" + name + "_ms"));
  };
  for (const OrderedJson& r : rows)
    out += fmt::format("{:>8} {:>6} {:>6} {:>8.2f} {:>7.2f} {:>9.1f} {:>9.1f}   {:>17} {:>17} {:>17} {:>17}\n",
                       label_of(r), r["completed"].get<int64_t>(), r["failed"].get<int64_t>(), number(r, "duration"),
                       number(r, "request_throughput"), number(r, "output_throughput"),
                       number(r, "total_token_throughput"), pair(r, "ttft"), pair(r, "itl"), pair(r, "tpot"),
                       pair(r, "e2el"));
  for (const OrderedJson& r : rows) {
    for (const auto& [why, n] : r["errors"].items())
      out += fmt::format("load {}: {} failed: {}\n", label_of(r), n.get<int64_t>(), why);
    if (const auto n = r["without_usage"].get<int64_t>(); n > 0)
      out +=
          fmt::format("load {}: {} answers came without usage; their tokens are counted by events\n", label_of(r), n);
  }
  return out;
}

std::string serving_plot(const std::vector<OrderedJson>& rows, const std::string& title) {
  struct Series {
    std::string name, key, colour;
  };
  struct Panel {
    std::string title;
    std::vector<Series> series;
  };
  const auto percentiles = [](const std::string& name) {
    return std::vector<Series>{{"median", "median_" + name + "_ms", "a"},
                               {"p90", "p90_" + name + "_ms", "b"},
                               {"p99", "p99_" + name + "_ms", "c"}};
  };
  const Panel panels[] = {
      {"time to first token, ms", percentiles("ttft")},
      {"time between tokens, ms", percentiles("itl")},
      {"tokens per second",
       {{"output", "output_throughput", "a"}, {"input and output", "total_token_throughput", "b"}}}};
  constexpr double kWidth = 360, kHeight = 300, kLeft = 58, kRight = 12, kTop = 84, kBottom = 44;
  std::string shown;
  for (const char c : title) shown += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\">\n"
      "<style>\n.ground {{ fill: #ffffff }} text {{ fill: #5a626b }} .head {{ fill: #1d2125 }} .line {{ stroke: "
      "#e2e4e7 }}\n"
      ".a {{ fill: #2f6fb3 }} .b {{ fill: #d08a2e }} .c {{ fill: #b3432f }}\n"
      "@media (prefers-color-scheme: dark) {{ .ground {{ fill: #14171a }} text {{ fill: #a3abb5 }}\n"
      "  .head {{ fill: #dfe3e8 }} .line {{ stroke: #32383f }} .a {{ fill: #6aa8e8 }} .b {{ fill: #e0a857 }}\n"
      "  .c {{ fill: #e0735f }} }}\n</style>\n"
      "<rect class=\"ground\" width=\"{0}\" height=\"{1}\"/>\n<text class=\"head\" x=\"{2}\" y=\"24\" "
      "font-size=\"16\">{3}</text>\n",
      3 * kWidth, kHeight, kLeft, shown);
  for (size_t p = 0; p < std::size(panels); ++p) {
    const Panel& panel = panels[p];
    const double x0 = static_cast<double>(p) * kWidth + kLeft, width = kWidth - kLeft - kRight;
    double top = 0;
    for (const OrderedJson& r : rows)
      for (const Series& s : panel.series) top = std::max(top, number(r, s.key));
    if (top <= 0) top = 1;
    // A step of 1, 2 or 5 times a power of ten with four to ten lines.
    double step = std::pow(10, std::floor(std::log10(top / 4)));
    for (const double m : {2.0, 2.5, 2.0})
      if (top / step > 6) step *= m;
    top = std::ceil(top / step) * step;
    const auto y = [&](double v) { return kHeight - kBottom - v / top * (kHeight - kTop - kBottom); };
    out += fmt::format("<text class=\"head\" x=\"{:.1f}\" y=\"48\" font-size=\"12\">{}</text>\n", x0, panel.title);
    double at = x0;
    for (const Series& s : panel.series) {
      out += fmt::format(
          "<rect class=\"{}\" x=\"{:.1f}\" y=\"58\" width=\"10\" height=\"10\"/><text x=\"{:.1f}\" "
          "y=\"67\" font-size=\"11\">{}</text>\n",
          s.colour, at, at + 14, s.name);
      at += 28 + 6.2 * static_cast<double>(s.name.size());
    }
    for (double v = 0; v <= top * 1.0001; v += step)
      out += fmt::format(
          "<line class=\"line\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text "
          "x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\" text-anchor=\"end\">{:g}</text>\n",
          x0, x0 + width, y(v), y(v), x0 - 6, y(v) + 4, v);
    const double group = width / static_cast<double>(std::max<size_t>(1, rows.size()));
    const double bar = std::min(34.0, group * 0.8 / static_cast<double>(panel.series.size()));
    for (size_t r = 0; r < rows.size(); ++r) {
      const double middle = x0 + (static_cast<double>(r) + 0.5) * group;
      double left = middle - bar * static_cast<double>(panel.series.size()) / 2;
      for (const Series& s : panel.series) {
        const double v = number(rows[r], s.key);
        out += fmt::format(
            "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{} "
            "at {}: {:.1f}</title></rect>\n",
            s.colour, left, y(v), bar * 0.92, y(0) - y(v), s.name, label_of(rows[r]), v);
        left += bar;
      }
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\" text-anchor=\"middle\">{}</text>\n", middle,
                         kHeight - kBottom + 16, label_of(rows[r]));
    }
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"11\" text-anchor=\"middle\">{}</text>\n",
                       x0 + width / 2, kHeight - 10, "requests in flight, or their rate");
  }
  return out + "</svg>\n";
}

}  // namespace reprise::measurement
