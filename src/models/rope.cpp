#include "models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace reprise::models {
namespace {

using checkpoint::ModelConfigFields;
using checkpoint::RopeKind;
using checkpoint::RopeScaling;

// Wavelengths longer than the old context / low_freq_factor are stretched by `factor`, shorter than the old context /
// high_freq_factor are kept, and those between are blended. Equal factors, as Llama 4 Scout has them, leave none
// between.
void scale_llama3(std::vector<double>& freq, const RopeScaling& s, double old_context) {
  const double factor = s.factor.value_or(1.0);
  const double low_wave = old_context / s.low_freq_factor, high_wave = old_context / s.high_freq_factor;
  for (double& f : freq) {
    const double wave = 2 * std::numbers::pi / f;
    if (wave < high_wave) continue;
    if (wave > low_wave || s.high_freq_factor == s.low_freq_factor) {
      f /= factor;
      continue;
    }
    const double smooth = (old_context / wave - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    f = (1 - smooth) * f / factor + smooth * f;
  }
}

double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

// Yarn (arXiv 2309.00071): interpolates slow dimensions, keeps fast ones, with a linear ramp between the dimensions
// that turn beta_slow and beta_fast times over the old context.
double scale_yarn(std::vector<double>& freq, const ModelConfigFields& f, const RopeScaling& s, double theta,
                  int64_t dim, double old_context) {
  const double factor = s.factor.value_or(static_cast<double>(f.max_position_embeddings) / old_context);
  auto dimension_of = [&](double turns) {
    return static_cast<double>(dim) * std::log(old_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension_of(s.beta_fast), high = dimension_of(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;  // a ramp needs a width
  for (size_t i = 0; i < freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    freq[i] = freq[i] / factor * ramp + freq[i] * (1 - ramp);
  }
  if (s.attention_factor) return *s.attention_factor;
  if (s.mscale && s.mscale_all_dim && *s.mscale != 0 && *s.mscale_all_dim != 0)
    return yarn_mscale(factor, *s.mscale) / yarn_mscale(factor, *s.mscale_all_dim);
  return yarn_mscale(factor, 1.0);
}

}  // namespace

nn::RopeSpec rope_spec(const ModelConfig& config, bool sliding) {
  const ModelConfigFields& f = config.fields;
  const RopeScaling& scaling = sliding && f.sliding_rope ? f.sliding_rope->scaling : f.rope;
  const double theta = sliding && f.sliding_rope ? f.sliding_rope->theta : f.rope_theta;
  nn::RopeSpec spec;
  spec.dim = static_cast<int64_t>(static_cast<double>(f.head_dim) * f.partial_rotary_factor);
  spec.dim -= spec.dim % 2;
  for (int64_t i = 0; i < spec.dim; i += 2)
    spec.inv_freq.push_back(1.0 / std::pow(theta, static_cast<double>(i) / static_cast<double>(spec.dim)));
  const double old_context =
      static_cast<double>(scaling.original_max_position_embeddings.value_or(f.max_position_embeddings));
  switch (scaling.kind) {
    case RopeKind::None: break;
    case RopeKind::Linear:
      for (double& x : spec.inv_freq) x /= scaling.factor.value_or(1.0);
      break;
    case RopeKind::Dynamic:
      spec.ntk_base = theta;
      spec.ntk_factor = scaling.factor.value_or(1.0);
      spec.ntk_window = static_cast<int64_t>(old_context);
      break;
    case RopeKind::Llama3: scale_llama3(spec.inv_freq, scaling, old_context); break;
    case RopeKind::Yarn: spec.scale = scale_yarn(spec.inv_freq, f, scaling, theta, spec.dim, old_context); break;
    case RopeKind::Long:
      for (size_t i = 0; i < spec.inv_freq.size(); ++i) spec.inv_freq[i] /= scaling.divisors()[i];
      spec.scale = scaling.attention_factor.value_or(1.0);
      break;
  }
  for (size_t i = 0; i < spec.inv_freq.size() && i < config.rope_divisors.size(); ++i)
    spec.inv_freq[i] /= config.rope_divisors[i];
  return spec;
}

double latent_score_factor(const ModelConfig& config) {
  const RopeScaling& s = config.fields.rope;
  if (s.kind == RopeKind::None || s.mscale_all_dim.value_or(0) == 0) return 1;
  const double factor = yarn_mscale(s.factor.value_or(1), *s.mscale_all_dim);
  return factor * factor;
}

}  // namespace reprise::models
