// Histogram and MetricText: numbers for Prometheus, in its text form (version 0.0.4). Plain values; the code that owns
// them guards them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::server {

class Histogram {
 public:
  // Upper bounds, rising; one more bucket takes the rest.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1, 0) {}
  void add(double value, uint64_t times = 1);

  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

class MetricText {
 public:
  // `common` are labels of every sample: `model_name="x"`, values escaped by label().
  explicit MetricText(std::string common) : common_(std::move(common)) {}

  // Names a family; its samples follow. Type: "counter", "gauge" or "histogram".
  void family(std::string_view name, std::string_view type, std::string_view help);
  void sample(double value, std::string_view labels = "") { line("", value, labels); }
  // A family of one sample.
  void single(std::string_view name, std::string_view type, double value, std::string_view help);
  void histogram(std::string_view name, const Histogram& h, std::string_view help);

  std::string take() { return std::move(out_); }
  static std::string label(std::string_view name, std::string_view value);

 private:
  // `ending` follows the family's name.
  void line(std::string_view ending, double value, std::string_view labels);

  std::string common_, family_, out_;
};

}  // namespace reprise::server
