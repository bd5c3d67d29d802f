#include "measurement/comparison.h"

#include <algorithm>
#include <cmath>

#include "base/terminal.h"

namespace reprise::measurement {
namespace {

// What was asked for: rows in which these are equal belong together. The others of a row are figures, or follow from
// both.
constexpr const char* kAsked[] = {"op",
                                  "dtype",
                                  "model",
                                  "shape",
                                  "tokens",
                                  "batch_size",
                                  "input_len",
                                  "output_len",
                                  "temperature",
                                  "graph",
                                  "passes",
                                  "ranks",
                                  "start",
                                  "max_concurrency",
                                  "request_rate",
                                  "num_prompts",
                                  "dataset",
                                  "speculative",
                                  "synthetic_acceptance"};

struct Figure {
  const char* name;
  bool more_is_better;
};
constexpr Figure kFigures[] = {
    {"fused_us", false},     {"unfused_us", false},  {"prefill_tok_s", true},     {"decode_tok_s", true},
    {"step_ms_p50", false},  {"step_ms_p99", false}, {"output_throughput", true}, {"request_throughput", true},
    {"mean_ttft_ms", false}, {"p99_ttft_ms", false}, {"mean_tpot_ms", false},     {"p99_itl_ms", false},
    {"total_s", false},      {"load_s", false},      {"compile_s", false},        {"capture_s", false},
    {"ttft_s", false}};

std::string asked_of(const OrderedJson& row) {
  std::string out;
  for (const char* key : kAsked)
    if (const auto it = row.find(key); it != row.end() && !it->is_null())
      out +=
          fmt::format("{}{} {}", out.empty() ? "" : ", ", key, it->is_string() ? it->get<std::string>() : it->dump());
  return out;
}

Status check_report(const OrderedJson& report, const char* which) {
  if (!report.is_object() || !report.contains("rows") || !report["rows"].is_array())
    return invalid("{}: no \"rows\": this is no output of `reprise bench ... --json`", which);
  for (const OrderedJson& row : report["rows"])
    if (!row.is_object()) return invalid("{}: a row that is no object", which);
  if (report.contains("limits") && !report["limits"].is_object()) return invalid("{}: \"limits\" is no object", which);
  return Status::ok();
}

std::string words_of(const OrderedJson& limits, const char* key) {
  const auto it = limits.find(key);
  if (it == limits.end() || it->is_null()) return "unknown";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

std::optional<double> number_of(const OrderedJson& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number() ? std::optional(it->get<double>()) : std::nullopt;
}

std::vector<std::string> obstacles_of(const OrderedJson& before, const OrderedJson& after) {
  std::vector<std::string> out;
  for (const auto& [report, which] : {std::pair(&before, "before"), std::pair(&after, "after")})
    if (!report->contains("limits")) out.push_back(fmt::format("{}: it does not say which machine it is of", which));
  if (!out.empty()) return out;
  const OrderedJson &a = before["limits"], &b = after["limits"];
  for (const char* key : {"cpu", "device", "devices", "isa", "threads"})
    if (words_of(a, key) != words_of(b, key))
      out.push_back(fmt::format("{}: {} before, {} after", key, words_of(a, key), words_of(b, key)));
  for (const auto& [key, unit] : {std::pair("read_GBps_all", "GB/s"), std::pair("fp32_gflops", "GFLOP/s")}) {
    const auto x = number_of(a, key), y = number_of(b, key);
    if (!x || !y || *x <= 0 || *y <= 0) continue;
    if (std::abs(std::log(*y / *x)) > std::log1p(Comparison::kMostDrift))
      out.push_back(fmt::format("{}: {:.1f} {} before, {:.1f} after; at most {:.0f} % apart", key, *x, unit, *y,
                                100 * Comparison::kMostDrift));
  }
  for (const auto& [limits, which] : {std::pair(&a, "before"), std::pair(&b, "after")})
    if (limits->contains("warnings") && (*limits)["warnings"].is_array())
      for (const OrderedJson& w : (*limits)["warnings"])
        if (w.is_string()) out.push_back(fmt::format("{}: {}", which, w.get<std::string>()));
  return out;
}

}  // namespace

Result<Comparison> compare_reports(const OrderedJson& before, const OrderedJson& after) {
  RETURN_IF_ERROR(check_report(before, "before"));
  RETURN_IF_ERROR(check_report(after, "after"));
  Comparison c;
  c.obstacles = obstacles_of(before, after);
  std::vector<const OrderedJson*> left;
  for (const OrderedJson& row : before["rows"]) left.push_back(&row);
  for (const OrderedJson& row : after["rows"]) {
    const std::string what = asked_of(row);
    const auto known =
        std::find_if(left.begin(), left.end(), [&](const OrderedJson* r) { return asked_of(*r) == what; });
    if (known == left.end()) {
      c.only_after.push_back(what);
      continue;
    }
    ComparedRow out{what, {}};
    for (const auto& [name, more_is_better] : kFigures) {
      const auto x = number_of(**known, name), y = number_of(row, name);
      if (x && y && *x > 0 && *y > 0) out.figures.push_back({name, *x, *y, more_is_better});
    }
    left.erase(known);
    c.rows.push_back(std::move(out));
  }
  for (const OrderedJson* row : left) c.only_before.push_back(asked_of(*row));
  if (c.rows.empty())
    return invalid("no row of the one is in the other; before has {}, after has {}",
                   before["rows"].empty() ? "none" : asked_of(before["rows"][0]),
                   after["rows"].empty() ? "none" : asked_of(after["rows"][0]));
  return c;
}

std::string comparison_text(const Comparison& c) {
  std::string out;
  for (const ComparedRow& row : c.rows) {
    out += coloured(Colour::Bold, row.what, stdout) + "\n";
    for (const ComparedFigure& f : row.figures)
      out +=
          fmt::format("  {:<20}{:>14.3f}{:>14.3f}  {}\n", f.name, f.before, f.after,
                      coloured(f.gain() < 1 ? Colour::Red : Colour::Green, fmt::format("x {:.3f}", f.gain()), stdout));
  }
  for (const std::string& what : c.only_before) out += fmt::format("only before: {}\n", what);
  for (const std::string& what : c.only_after) out += fmt::format("only after: {}\n", what);
  return out + "before, after, and how many times as good it became\n";
}

OrderedJson comparison_json(const Comparison& c) {
  OrderedJson j;
  j["obstacles"] = c.obstacles;
  j["rows"] = OrderedJson::array();
  for (const ComparedRow& row : c.rows) {
    OrderedJson figures = OrderedJson::object();
    for (const ComparedFigure& f : row.figures)
      figures[f.name] = {{"before", f.before}, {"after", f.after}, {"gain", f.gain()}};
    j["rows"].push_back({{"row", row.what}, {"figures", std::move(figures)}});
  }
  j["only_before"] = c.only_before;
  j["only_after"] = c.only_after;
  return j;
}

}  // namespace reprise::measurement
