#include "checkpoint/config_rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "checkpoint/limits.h"

namespace reprise::checkpoint {
namespace {

constexpr double kMinTheta = 1.0, kMaxTheta = 1e12;
constexpr std::string_view kOriginal = "original_max_position_embeddings";
// RopeParameters of transformers, and what else published files have: some with YaRN say that they were "finetuned"
// with it, and a few models of text keep the word of those that see.
constexpr std::array<std::string_view, 20> kRopeWords = {"rope_type",
                                                         "type",
                                                         "rope_theta",
                                                         "partial_rotary_factor",
                                                         "factor",
                                                         kOriginal,
                                                         "attention_factor",
                                                         "beta_fast",
                                                         "beta_slow",
                                                         "short_factor",
                                                         "long_factor",
                                                         "low_freq_factor",
                                                         "high_freq_factor",
                                                         "mscale",
                                                         "mscale_all_dim",
                                                         "truncate",
                                                         "mrope_section",
                                                         "mrope_interleaved",
                                                         "alpha",
                                                         "finetuned"};

bool given(const Json& config, std::string_view key) {
  const auto it = config.find(key);
  return it != config.end() && !it->is_null() && !(it->is_object() && it->empty());
}

// What a file says of rotation, on its way into the fields.
class RopeReader {
 public:
  RopeReader(const FieldReader& top, const Json& object, std::string_view place, ModelConfigFields& out)
      : top_(top), in_(object, out.source, fmt::format("{}.", place)), object_(object), place_(place), out_(out) {}

  Status run() {
    for (const auto& [inner, value] : object_.items())
      if (value.is_object())
        return error(Code::Unsupported, "{}: {}.{} is an object; parameters by layer type cannot be read", out_.source,
                     place_, inner);
    RETURN_IF_ERROR(in_.number("rope_theta", kMinTheta, kMaxTheta, out_.rope_theta, out_.rope_theta));
    RETURN_IF_ERROR(
        in_.number("partial_rotary_factor", 1e-3, 1.0, out_.partial_rotary_factor, out_.partial_rotary_factor));
    RETURN_IF_ERROR(read_kind());
    if (out_.rope.kind == RopeKind::Long) return read_long();
    RETURN_IF_ERROR(read_factor());
    RETURN_IF_ERROR(read_original());
    RETURN_IF_ERROR(read_alpha());
    if (out_.rope.kind == RopeKind::Llama3) RETURN_IF_ERROR(read_llama3());
    if (out_.rope.kind == RopeKind::Yarn) RETURN_IF_ERROR(read_yarn());
    RETURN_IF_ERROR(read_score_factor());
    return note_others();
  }

 private:
  Status read_kind() {
    std::optional<std::string> name;
    RETURN_IF_ERROR(in_.string("type", name));
    RETURN_IF_ERROR(in_.string("rope_type", name));  // the newer spelling wins
    kind_ = name.value_or("default");
    constexpr std::pair<std::string_view, RopeKind> kKinds[] = {
        {"default", RopeKind::None},    {"mrope", RopeKind::None},    {"linear", RopeKind::Linear},
        {"dynamic", RopeKind::Dynamic}, {"llama3", RopeKind::Llama3}, {"yarn", RopeKind::Yarn},
        {"longrope", RopeKind::Long},   {"su", RopeKind::Long}};
    if (kind_ == "yarn" && out_.family && out_.family->long_rotation_only) kind_ = "longrope";
    for (const auto& [known, kind] : kKinds) {
      if (known != kind_) continue;
      out_.rope.kind = kind;
      return Status::ok();
    }
    return error(Code::Unsupported,
                 "{}: {}.rope_type is \"{}\"; allowed: default, linear, dynamic, llama3, yarn, longrope", out_.source,
                 place_, kind_);
  }

  // YaRN's may be null, which is then the new length over the old one; but the key must be there.
  Status read_factor() {
    if (out_.rope.kind == RopeKind::None) return Status::ok();
    read_.push_back("factor");
    RETURN_IF_ERROR(in_.number("factor", 1.0, 1e6, out_.rope.factor));
    if (out_.rope.factor || (out_.rope.kind == RopeKind::Yarn && object_.contains("factor"))) return Status::ok();
    return in_.absent("factor", "numbers from 1 to 1000000");
  }

  // The one next to the object outranks the one inside.
  Status read_original() {
    RopeScaling& rope = out_.rope;
    std::optional<int64_t> inside, outside;
    RETURN_IF_ERROR(in_.integer(kOriginal, 1, kMaxPositions, inside));
    RETURN_IF_ERROR(top_.integer(kOriginal, 1, kMaxPositions, outside));
    read_.push_back(kOriginal);
    if (rope.kind == RopeKind::Llama3 || rope.kind == RopeKind::Yarn) {
      if (inside && outside && *inside != *outside)
        note(fmt::format("{}.{} {} has no effect: the one beside it is {}", place_, kOriginal, *inside, *outside));
      rope.original_max_position_embeddings = outside ? *outside : inside.value_or(out_.max_position_embeddings);
      return Status::ok();
    }
    for (const auto& original : {inside, outside})
      if (original && *original != out_.max_position_embeddings)
        note(fmt::format("{} {} has no effect with rope_type {}; effective: max_position_embeddings {}", kOriginal,
                         *original, kind_, out_.max_position_embeddings));
    return Status::ok();
  }

  Status read_llama3() {
    RopeScaling& rope = out_.rope;
    RETURN_IF_ERROR(in_.number("low_freq_factor", 1e-6, 1e6, std::nullopt, rope.low_freq_factor));
    RETURN_IF_ERROR(in_.number("high_freq_factor", 1e-6, 1e6, std::nullopt, rope.high_freq_factor));
    read_.insert(read_.end(), {"low_freq_factor", "high_freq_factor"});
    if (rope.high_freq_factor >= rope.low_freq_factor) return Status::ok();
    return invalid("{}: {}.high_freq_factor {} must not be below low_freq_factor {}", out_.source, place_,
                   rope.high_freq_factor, rope.low_freq_factor);
  }

  Status read_yarn() {
    RopeScaling& rope = out_.rope;
    RETURN_IF_ERROR(in_.number("attention_factor", 1e-6, 1e6, rope.attention_factor));
    RETURN_IF_ERROR(in_.number("beta_fast", 1e-6, 1e6, rope.beta_fast, rope.beta_fast));
    RETURN_IF_ERROR(in_.number("beta_slow", 1e-6, 1e6, rope.beta_slow, rope.beta_slow));
    if (rope.beta_fast < rope.beta_slow)
      return invalid("{}: {}.beta_fast {} must not be below beta_slow {}", out_.source, place_, rope.beta_fast,
                     rope.beta_slow);
    RETURN_IF_ERROR(in_.number("mscale", 0.0, 1e6, rope.mscale));
    RETURN_IF_ERROR(in_.number("mscale_all_dim", 0.0, 1e6, rope.mscale_all_dim));
    // null is not absence here: transformers tests the value.
    RETURN_IF_ERROR(in_.boolean("truncate", !object_.contains("truncate"), rope.truncate));
    read_.insert(read_.end(), {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"});
    return Status::ok();
  }

  // Hunyuan: the base times a power of "alpha", for any length.
  Status read_alpha() {
    std::optional<double> alpha;
    if (out_.rope.kind != RopeKind::Dynamic || !out_.family || !out_.family->fixed_ntk) return Status::ok();
    RETURN_IF_ERROR(in_.number("alpha", 0.0, 1e9, alpha));
    if (alpha.value_or(0) == 0) return Status::ok();
    const auto size = static_cast<double>(out_.head_dim);
    if (out_.head_dim <= 2) return invalid("{}: {}.alpha needs heads above 2", out_.source, place_);
    out_.rope_theta *= std::pow(*alpha, size / (size - 2));
    out_.rope = {};
    read_.push_back("alpha");
    return Status::ok();
  }

  // One list of factors for contexts up to the old length and one for longer ones. The old length is the usual one;
  // who asks for more gets the other list. Both scale cosines and sines by what the whole stretch is.
  Status read_long() {
    RopeScaling& rope = out_.rope;
    RETURN_IF_ERROR(in_.number("factor", 1.0, 1e6, rope.factor));
    RETURN_IF_ERROR(in_.number("attention_factor", 1e-6, 1e6, rope.attention_factor));
    std::optional<int64_t> inside, outside;
    RETURN_IF_ERROR(in_.integer(kOriginal, 1, kMaxPositions, inside));
    RETURN_IF_ERROR(top_.integer(kOriginal, 1, kMaxPositions, outside));
    if (!outside && !inside) return in_.absent(kOriginal, fmt::format("integers from 1 to {}", kMaxPositions));
    const int64_t original = outside ? *outside : *inside;
    rope.original_max_position_embeddings = original;
    RETURN_IF_ERROR(read_factors("short_factor", rope.short_factor));
    RETURN_IF_ERROR(read_factors("long_factor", rope.long_factor));
    const double length = static_cast<double>(original);
    const double stretch = rope.factor.value_or(static_cast<double>(out_.max_position_embeddings) / length);
    if (!rope.attention_factor)
      rope.attention_factor = stretch <= 1 ? 1.0 : std::sqrt(1 + std::log(stretch) / std::log(length));
    rope.factor.reset();
    if (out_.max_position_embeddings > original)
      rope.long_positions = std::exchange(out_.max_position_embeddings, original);
    read_.insert(read_.end(), {"factor", "attention_factor", kOriginal, "short_factor", "long_factor", "short_mscale",
                               "long_mscale"});
    for (const std::string_view key : {"short_mscale", "long_mscale"})
      if (const Json* v = in_.find(key)) return in_.wrong(key, *v, "null");
    return note_others();
  }

  Status read_factors(std::string_view key, std::vector<double>& out) const {
    const Json* list = in_.find(key);
    const auto count = static_cast<size_t>(static_cast<double>(out_.head_dim) * out_.partial_rotary_factor) / 2;
    const std::string allowed = fmt::format("a list of {} numbers above 0", count);
    if (!list) return in_.absent(key, allowed);
    if (!list->is_array() || list->size() != count) return in_.wrong(key, *list, allowed);
    for (const Json& v : *list) {
      if (!v.is_number() || !(v.get<double>() > 0)) return in_.wrong(key, *list, allowed);
      out.push_back(v.get<double>());
    }
    return Status::ok();
  }

  // DeepSeek scales its scores by it, regardless of the kind of scaling.
  Status read_score_factor() {
    if (!out_.latent || out_.rope.kind == RopeKind::None) return Status::ok();
    RETURN_IF_ERROR(in_.number("mscale_all_dim", 0.0, 1e6, out_.rope.mscale_all_dim));
    read_.push_back("mscale_all_dim");
    if (out_.rope.mscale_all_dim.value_or(0) == 0 || out_.rope.factor) return Status::ok();
    return invalid("{}: {}.factor is null, but mscale_all_dim {} needs it; allowed: numbers from 1 to 1000000",
                   out_.source, place_, *out_.rope.mscale_all_dim);
  }

  Status note_others() {
    read_.insert(read_.end(), {"type", "rope_type", "rope_theta", "partial_rotary_factor"});
    // Three rows of positions, which are the same for text, all that a text model out of a larger one gets.
    if (out_.family && !out_.family->wrapper.empty()) read_.insert(read_.end(), {"mrope_section", "mrope_interleaved"});
    if (out_.rope.kind == RopeKind::Dynamic && in_.find("alpha"))
      return in_.wrong("alpha", *in_.find("alpha"), "null: a fixed NTK factor is not computed here");
    if (out_.numbers.contains("llama_4_scaling_beta"))  // read by the family
      read_.insert(read_.end(), {"llama_4_scaling_beta", "max_position_embeddings"});
    if (out_.vision) read_.insert(read_.end(), {"mrope_section", "mrope_interleaved"});  // read with the tower
    for (const auto& [key, value] : object_.items()) {
      if (value.is_null() || std::find(read_.begin(), read_.end(), key) != read_.end()) continue;
      // Parameters of other kinds have no effect in transformers either; what a key of no kind changes is not known.
      if (std::find(kRopeWords.begin(), kRopeWords.end(), key) == kRopeWords.end())
        return in_.wrong(key, value, fmt::format("null, as the keys of rope_type {} are {}", kind_, keys_of_kind()));
      note(fmt::format("{}.{} has no effect with rope_type {}", place_, key, kind_));
    }
    return Status::ok();
  }

  std::string keys_of_kind() const {
    std::vector<std::string_view> keys(read_);
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return fmt::format("{}", fmt::join(keys, ", "));
  }

  void note(std::string text) { out_.notices.push_back(std::move(text)); }

  const FieldReader& top_;
  const FieldReader in_;
  const Json& object_;
  std::string place_, kind_;
  ModelConfigFields& out_;
  std::vector<std::string_view> read_;
};

// The families that transformers has rotate whole heads: with plain RoPE the factor has no effect, with any scaling its
// code fails.
Status resolve_partial_rotation(const FieldReader& in, ModelConfigFields& out) {
  const double factor = out.partial_rotary_factor;
  if (in.find("gguf_partial_rotary_factor"))
    return in.number("gguf_partial_rotary_factor", 1e-3, 1.0, 1.0, out.partial_rotary_factor);
  if (!out.family) return Status::ok();
  const auto turned = static_cast<int64_t>(static_cast<double>(out.head_dim) * factor);
  if (turned == out.head_dim) return Status::ok();
  if (out.family->partial_rotation) {
    if (turned > 0 && turned % 2 == 0) return Status::ok();
    return invalid("{}: partial_rotary_factor {} of heads of {} is {}; allowed: even numbers above 0", out.source,
                   factor, out.head_dim, turned);
  }
  if (out.rope.kind != RopeKind::None)
    return error(Code::Unsupported, "{}: partial_rotary_factor is {} with rope_type {}; allowed for {}: 1", out.source,
                 factor, rope_kind_name(out.rope.kind), out.architecture);
  out.notices.push_back(
      fmt::format("partial_rotary_factor {} has no effect: {} rotates whole heads", factor, out.architecture));
  out.partial_rotary_factor = 1.0;
  return Status::ok();
}

// Files say it by layer type, or once for the layers that see everything and the base of the others beside it.
Status read_sliding_rope(const FieldReader& in, std::string_view key, ModelConfigFields& out) {
  constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";
  const Json* object = key.empty() ? nullptr : in.find(key);
  const bool by_type = object && (object->contains(kFull) || object->contains(kSliding));
  const double theta = out.rope_theta;
  SlidingRope& sliding = out.sliding_rope.emplace();
  if (object && !by_type) RETURN_IF_ERROR(RopeReader(in, *object, key, out).run());
  sliding.theta = out.family->sliding_theta ? out.family->sliding_theta : out.rope_theta;
  if (out.family->sliding_theta)
    RETURN_IF_ERROR(in.number("rope_local_base_freq", kMinTheta, kMaxTheta, sliding.theta, sliding.theta));
  if (!by_type) return Status::ok();
  for (const auto& [type, value] : object->items())
    if ((type != kFull && type != kSliding) || !value.is_object())
      return in.wrong(fmt::format("{}.{}", key, type), value, "objects \"full_attention\" and \"sliding_attention\"");
  if (object->contains(kSliding)) {
    ModelConfigFields other = out;
    other.rope_theta = sliding.theta;
    RETURN_IF_ERROR(RopeReader(in, (*object)[kSliding], fmt::format("{}.{}", key, kSliding), other).run());
    if (other.rope.kind == RopeKind::Dynamic || other.rope.kind == RopeKind::Long)
      return in.wrong(fmt::format("{}.{}.rope_type", key, kSliding), Json(rope_kind_name(other.rope.kind)),
                      "\"default\", \"linear\", \"llama3\", \"yarn\"");
    sliding = {other.rope_theta, other.rope};
    out.notices = std::move(other.notices);
  }
  out.rope_theta = theta;
  if (!object->contains(kFull)) return Status::ok();
  return RopeReader(in, (*object)[kFull], fmt::format("{}.{}", key, kFull), out).run();
}

}  // namespace

std::string_view rope_object_in_effect(const Json& config) {
  for (const std::string_view key : {"rope_scaling", "rope_parameters"})
    if (given(config, key)) return key;
  return {};
}

double stated_rotation(const FieldReader& in, const ModelConfigFields& fields) {
  if (!fields.family || !fields.family->partial_rotation) return 1;
  double factor = fields.family->sizes.rotated;
  const auto see = [&](const Json* v) {
    if (v && v->is_number()) factor = std::clamp(v->get<double>(), 0.0, 1.0);
  };
  see(in.find("partial_rotary_factor"));
  if (const std::string_view key = rope_object_in_effect(fields.raw_json); !key.empty()) {
    const Json* object = in.find(key);
    if (object && object->is_object()) see(FieldReader(*object, fields.source).find("partial_rotary_factor"));
  }
  see(in.find("gguf_partial_rotary_factor"));
  return factor;
}

Status read_rope(const FieldReader& in, ModelConfigFields& out) {
  const double theta = out.family ? out.family->sizes.theta : SizeDefaults{}.theta;
  RETURN_IF_ERROR(in.number("rope_theta", kMinTheta, kMaxTheta, theta, out.rope_theta));
  if (out.partial_rotary_factor == 1 && out.family) out.partial_rotary_factor = out.family->sizes.rotated;
  RETURN_IF_ERROR(in.number("partial_rotary_factor", 1e-3, 1.0, out.partial_rotary_factor, out.partial_rotary_factor));
  for (const std::string_view key : {"rope_scaling", "rope_parameters"})
    if (const Json* object = in.find(key); object && !object->is_object())
      return in.wrong(key, *object, "an object, null");
  const std::string_view key = rope_object_in_effect(out.raw_json);
  if (out.family && out.family->sliding_rotation) {
    RETURN_IF_ERROR(read_sliding_rope(in, key, out));
  } else if (!key.empty()) {
    RETURN_IF_ERROR(RopeReader(in, *in.find(key), key, out).run());
  }
  if (key == "rope_scaling" && given(out.raw_json, "rope_parameters") && *in.find(key) != *in.find("rope_parameters"))
    out.notices.push_back(
        fmt::format("rope_parameters has no effect beside rope_scaling; effective: rope_theta {}", out.rope_theta));
  if (out.rope.kind == RopeKind::Dynamic)
    out.notices.push_back(
        "rope_type dynamic: each token is rotated for its own position; transformers rotates all tokens of a prompt "
        "for its length, and later ones as here");
  RETURN_IF_ERROR(resolve_partial_rotation(in, out));
  return in.boolean("gguf_rope_freqs", false, out.has_rope_freqs);
}

}  // namespace reprise::checkpoint
