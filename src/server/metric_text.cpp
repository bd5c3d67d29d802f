#include "server/metric_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace reprise::server {
namespace {

std::string number(double v) {
  if (v == std::floor(v) && std::abs(v) < 1e15) return fmt::format("{:.0f}", v);
  return fmt::format("{}", v);
}

}  // namespace

void Histogram::add(double value, uint64_t times) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(at)] += times;
  sum_ += value * static_cast<double>(times);
}

std::string MetricText::label(std::string_view name, std::string_view value) {
  std::string out(name);
  out += "=\"";
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

void MetricText::family(std::string_view name, std::string_view type, std::string_view help) {
  family_ = name;
  out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricText::line(std::string_view ending, double value, std::string_view labels) {
  const bool both = !common_.empty() && !labels.empty();
  const bool any = !common_.empty() || !labels.empty();
  out_ += fmt::format("{}{}{}{}{}{}{} {}\n", family_, ending, any ? "{" : "", common_, both ? "," : "", labels,
                      any ? "}" : "", number(value));
}

void MetricText::single(std::string_view name, std::string_view type, double value, std::string_view help) {
  family(name, type, help);
  sample(value);
}

void MetricText::histogram(std::string_view name, const Histogram& h, std::string_view help) {
  family(name, "histogram", help);
  uint64_t below = 0;
  for (size_t i = 0; i < h.bounds().size(); ++i) {
    below += h.counts()[i];
    line("_bucket", static_cast<double>(below), label("le", fmt::format("{}", h.bounds()[i])));
  }
  below += h.counts().back();
  line("_bucket", static_cast<double>(below), label("le", "+Inf"));
  line("_sum", h.sum(), "");
  line("_count", static_cast<double>(below), "");
}

}  // namespace reprise::server
