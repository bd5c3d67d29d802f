// The vector and attention ops of the CPU in double precision, written for the reader and not for speed: the tests'
// answer.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace reprise::reference {

using Numbers = std::vector<double>;

inline Numbers rms_norm(const Numbers& x, const Numbers& weight, double eps, const Numbers& bias = {}) {
  Numbers out(x.size());
  const size_t n = weight.size();
  for (size_t row = 0; row < x.size(); row += n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[row + i] * x[row + i];
    for (size_t i = 0; i < n; ++i)
      out[row + i] =
          x[row + i] / std::sqrt(sum / static_cast<double>(n) + eps) * weight[i] + (bias.empty() ? 0 : bias[i]);
  }
  return out;
}

// `weight` and `bias` of a few vectors, which follow one another in turn.
inline Numbers layer_norm(const Numbers& x, const Numbers& weight, size_t n, double eps, const Numbers& bias = {}) {
  Numbers out(x.size());
  for (size_t row = 0; row < x.size(); row += n) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < n; ++i) mean += x[row + i] / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) variance += std::pow(x[row + i] - mean, 2) / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) {
      const size_t w = (row + i) % weight.size();
      out[row + i] = (x[row + i] - mean) / std::sqrt(variance + eps) * weight[w] + (bias.empty() ? 0 : bias[w]);
    }
  }
  return out;
}

struct Ntk {
  double base = 0, factor = 0;
  int64_t window = 0;
};

// The angle is a product of floats by definition; everything after it is exact.
inline Numbers rope_table(const std::vector<int>& positions, const Numbers& inv_freq, double scale, Ntk ntk = {}) {
  const size_t half = inv_freq.size(), dim = 2 * half;
  Numbers out(positions.size() * dim);
  for (size_t t = 0; t < positions.size(); ++t)
    for (size_t i = 0; i < half; ++i) {
      double freq = inv_freq[i];
      const double length = positions[t] + 1.0, d = static_cast<double>(dim);
      if (ntk.window > 0 && length > static_cast<double>(ntk.window)) {
        const double base =
            ntk.base * std::pow(ntk.factor * length / static_cast<double>(ntk.window) - (ntk.factor - 1), d / (d - 2));
        freq = std::pow(base, -2.0 * static_cast<double>(i) / d);
      }
      const double angle = static_cast<float>(positions[t]) * static_cast<float>(freq);
      out[t * dim + i] = std::cos(angle) * scale;
      out[t * dim + half + i] = std::sin(angle) * scale;
    }
  return out;
}

// x [tokens, heads, size], table [tokens, rot].
inline Numbers rope(const Numbers& x, const Numbers& table, size_t tokens, size_t heads, size_t size, size_t rot) {
  Numbers out = x;
  for (size_t t = 0; t < tokens; ++t)
    for (size_t h = 0; h < heads; ++h)
      for (size_t i = 0; i < rot / 2; ++i) {
        const size_t a = (t * heads + h) * size + i, b = a + rot / 2;
        const double c = table[t * rot + i], s = table[t * rot + rot / 2 + i];
        out[a] = x[a] * c - x[b] * s;
        out[b] = x[b] * c + x[a] * s;
      }
  return out;
}

inline double silu(double x) { return std::isinf(x) && x < 0 ? -0.0 : x / (1 + std::exp(-x)); }

inline double gelu(double x) { return std::isinf(x) && x < 0 ? -0.0 : x * std::erfc(-x / std::sqrt(2.0)) / 2; }
inline double gelu_tanh(double x) {
  const double inner = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return std::isinf(x) && x < 0 ? -0.0 : x / (1 + std::exp(-2 * inner));
}

// One query vector against keys and values of one head, [n][size] each; `first` is the first visible key; no cap: 0.
inline Numbers attend(const Numbers& q, const Numbers& k, const Numbers& v, size_t first, size_t end, double scale,
                      double cap = 0, double sink = -INFINITY) {
  const size_t size = q.size();
  Numbers score(end), out(size, 0.0);
  double top = sink, sum = 0;
  for (size_t j = first; j < end; ++j) {
    for (size_t d = 0; d < size; ++d) score[j] += q[d] * k[j * size + d];
    score[j] *= scale;
    if (cap > 0) score[j] = cap * std::tanh(score[j] / cap);
    top = std::max(top, score[j]);
  }
  if (sink > -INFINITY) sum = std::exp(sink - top);
  for (size_t j = first; j < end; ++j) sum += score[j] = std::exp(score[j] - top);
  for (size_t j = first; j < end; ++j)
    for (size_t d = 0; d < size; ++d) out[d] += score[j] / sum * v[j * size + d];
  return out;
}

}  // namespace reprise::reference
