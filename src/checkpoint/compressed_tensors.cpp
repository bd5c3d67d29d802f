// compressed-tensors: groups of targets in config.json's quantization_config, of which we compute int8 weights with
// int8 activations.
#include <algorithm>
#include <optional>
#include <unordered_set>

#include "checkpoint/field_reader.h"
#include "checkpoint/name_pattern.h"
#include "checkpoint/quantisation.h"

namespace reprise::checkpoint {
namespace {

// A module's name, "re:" and an expression that its beginning must match (Python's re.match), or the class "Linear".
class Matcher {
 public:
  static Result<Matcher> parse(const std::string& text, const FieldReader& in, std::string_view key) {
    Matcher m;
    m.text_ = text;
    constexpr std::string_view kPrefix = "re:";
    if (!text.starts_with(kPrefix)) return m;
    auto pattern = NamePattern::compile(std::string_view(text).substr(kPrefix.size()));
    if (pattern.is_ok()) {
      m.pattern_ = std::move(*pattern);
      return m;
    }
    return in.wrong(key, Json(text),
                    fmt::format("\"re:\" with a regular expression of Python's re, without look-around and references, "
                                "that makes a small program ({})",
                                pattern.status().message()));
  }

  bool is_pattern() const { return pattern_.has_value(); }
  bool fits(std::string_view module) const { return pattern_ && pattern_->matches(module); }
  const std::string& text() const { return text_; }
  size_t cost() const { return pattern_ ? pattern_->cost() : 0; }

 private:
  std::string text_;
  std::optional<NamePattern> pattern_;
};

// Names of one list: exact ones are looked up, however many there are; patterns are tried in turn.
struct Matchers {
  std::unordered_set<std::string> names;
  std::vector<Matcher> patterns;  // sorted

  bool any_linear() const { return names.contains("Linear"); }
  bool empty() const { return names.empty() && patterns.empty(); }
  // By the alphabet; null when none fits.
  const Matcher* first_pattern(std::string_view module) const {
    for (const Matcher& m : patterns)
      if (m.fits(module)) return &m;
    return nullptr;
  }
};

Result<Matchers> matchers(const FieldReader& in, std::string_view key) {
  constexpr size_t kMostPatterns = 256;
  Matchers out;
  const Json* list = in.find(key);
  if (!list) return out;
  if (!list->is_array()) return in.wrong(key, *list, "a list of strings");
  for (const Json& entry : *list) {
    if (!entry.is_string()) return in.wrong(key, entry, "strings");
    ASSIGN_OR_RETURN(Matcher m, Matcher::parse(entry.get<std::string>(), in, key));
    if (!m.is_pattern()) {
      out.names.insert(m.text());
      continue;
    }
    if (out.patterns.size() == kMostPatterns)
      return in.wrong(key, Json(m.text()), fmt::format("up to {} expressions in a list", kMostPatterns));
    out.patterns.push_back(std::move(m));
  }
  std::sort(out.patterns.begin(), out.patterns.end(),
            [](const Matcher& a, const Matcher& b) { return a.text() < b.text(); });
  return out;
}

Status want(const FieldReader& in, std::string_view key, const Json& allowed, bool may_be_absent) {
  const Json* v = in.find(key);
  const std::string text = allowed.is_string() ? allowed.get<std::string>() : allowed.dump();
  if (!v) return may_be_absent ? Status::ok() : in.absent(key, text);
  return *v == allowed ? Status::ok() : in.wrong(key, *v, text);
}

// Null, absent, or an object with nothing in it.
Status want_nothing(const FieldReader& in, std::string_view key) {
  const Json* v = in.find(key);
  if (!v || (v->is_object() && v->empty())) return Status::ok();
  if (v->is_object() && v->value("format", Json()) == "dense")
    return Status::ok();  // a sparsity_config that does nothing
  return in.wrong(key, *v, "null");
}

struct Group {
  Matchers targets;
  bool dynamic = true, symmetric = true;
  bool channel = true;  // a weight scale per row; else one for all
  std::string place;
};

class Reader {
 public:
  Reader(const ModelConfigFields& config, const Checkpoint& checkpoint) : config_(config), checkpoint_(checkpoint) {}

  Result<QuantPlan> run() {
    plan_.format = Quantization::CompressedTensors;
    const FieldReader in(config_.quantization, config_.source, "quantization_config.");
    constexpr std::string_view kMethods = "compressed-tensors, mxfp4";
    const Json* method = in.find("quant_method");
    if (!method) return in.absent("quant_method", kMethods);
    if (*method != "compressed-tensors") return in.wrong("quant_method", *method, kMethods);
    RETURN_IF_ERROR(want_format(in));
    for (const char* key : {"kv_cache_scheme", "sparsity_config", "transform_config"})
      RETURN_IF_ERROR(want_nothing(in, key));
    if (const Json* status = in.find("quantization_status"); status && *status != "compressed" && *status != "frozen")
      return in.wrong("quantization_status", *status, "compressed, frozen");
    ASSIGN_OR_RETURN(ignore_, matchers(in, "ignore"));
    const Json* groups = in.find("config_groups");
    if (!groups) return in.absent("config_groups", "an object");
    if (!groups->is_object()) return in.wrong("config_groups", *groups, "an object");
    for (const auto& [name, group] : groups->items()) {
      if (!group.is_object()) return in.wrong("config_groups", group, "objects");
      RETURN_IF_ERROR(read_group(group, fmt::format("quantization_config.config_groups.{}.", name)));
    }
    RETURN_IF_ERROR(check_cost());
    for (const CheckpointTensor& t : checkpoint_.tensors())
      if (is_linear_weight(t)) RETURN_IF_ERROR(add(t));
    return std::move(plan_);
  }

 private:
  static Status want_format(const FieldReader& in) {
    const Json* v = in.find("format");
    if (!v || *v == "int-quantized") return Status::ok();
    return in.wrong("format", *v, "int-quantized");
  }

  Status read_group(const Json& json, const std::string& place) {
    const FieldReader in(json, config_.source, place);
    Group g;
    g.place = place;
    RETURN_IF_ERROR(want_format(in));
    RETURN_IF_ERROR(want_nothing(in, "output_activations"));
    ASSIGN_OR_RETURN(g.targets, matchers(in, "targets"));
    if (g.targets.empty()) return in.absent("targets", "Linear, names of modules, or re: with an expression");

    const Json none = Json::object();
    const Json* weights = in.find("weights");
    const Json* activations = in.find("input_activations");
    if (!weights || !weights->is_object()) return in.wrong("weights", weights ? *weights : Json(), "an object");
    if (!activations || !activations->is_object())
      return in.wrong("input_activations", activations ? *activations : Json(), "an object (weights alone are not)");

    const FieldReader w(*weights, config_.source, place + "weights.");
    RETURN_IF_ERROR(want(w, "num_bits", 8, false));
    RETURN_IF_ERROR(want(w, "type", "int", true));
    RETURN_IF_ERROR(want(w, "symmetric", true, true));
    RETURN_IF_ERROR(want(w, "dynamic", false, true));
    const Json* strategy = w.find("strategy");
    if (!strategy) return w.absent("strategy", "channel, tensor");
    if (*strategy != "channel" && *strategy != "tensor") return w.wrong("strategy", *strategy, "channel, tensor");
    g.channel = *strategy == "channel";

    const FieldReader a(*activations, config_.source, place + "input_activations.");
    RETURN_IF_ERROR(want(a, "num_bits", 8, false));
    RETURN_IF_ERROR(want(a, "type", "int", true));
    RETURN_IF_ERROR(a.boolean("dynamic", false, g.dynamic));
    RETURN_IF_ERROR(a.boolean("symmetric", true, g.symmetric));
    RETURN_IF_ERROR(want(a, "strategy", g.dynamic ? "token" : "tensor", false));
    if (g.dynamic && !g.symmetric) return a.wrong("symmetric", false, "true where dynamic is true");
    RETURN_IF_ERROR(check_unique(g));
    groups_.push_back(std::move(g));
    return Status::ok();
  }

  // A hostile file has the most expensive patterns and the most names; time is bounded by their product.
  Status check_cost() const {
    constexpr double kMostSteps = 2e10;
    double instructions = 0, bytes = 0;
    const auto count = [&](const Matchers& list) {
      for (const Matcher& m : list.patterns) instructions += static_cast<double>(m.cost());
    };
    count(ignore_);
    for (const Group& g : groups_) count(g.targets);
    for (const CheckpointTensor& t : checkpoint_.tensors())
      if (is_linear_weight(t)) bytes += static_cast<double>(t.name.size());
    if (instructions * bytes <= kMostSteps) return Status::ok();
    return error(Code::Unsupported,
                 "{}: quantization_config: the expressions of ignore and targets are too large for this many tensors "
                 "({:.0f} instructions, {:.0f} bytes of names); allowed: a product of {:g}",
                 config_.source, instructions, bytes, kMostSteps);
  }

  // Mixtral's files have another name for the modules of experts, and their configuration uses that.
  template <typename Fits>
  static bool fits(const CheckpointTensor& t, const Fits& one) {
    const std::string_view module = module_of(t.name), in_file = module_of(t.file_name);
    return one(module) || (in_file != module && !in_file.empty() && one(in_file));
  }

  // Names go before patterns and patterns before the class, whichever group they stand in; of patterns the first by
  // the alphabet counts. That is the format's own order.
  const Group* group_of(const CheckpointTensor& t) const {
    const auto named = [&](const Matchers& list) {
      return fits(t, [&](std::string_view module) { return list.names.contains(std::string(module)); });
    };
    const auto matched = [&](const Matchers& list) {
      return fits(t, [&](std::string_view module) { return list.first_pattern(module) != nullptr; });
    };
    if (ignore_.any_linear() || named(ignore_) || matched(ignore_)) return nullptr;
    for (const Group& g : groups_)
      if (named(g.targets)) return &g;
    const Group* best = nullptr;
    std::string_view first;
    for (const Group& g : groups_)
      fits(t, [&](std::string_view module) {
        const Matcher* m = g.targets.first_pattern(module);
        if (m && (!best || m->text() < first)) {
          best = &g;
          first = m->text();
        }
        return false;
      });
    if (best) return best;
    for (const Group& g : groups_)
      if (g.targets.any_linear()) return &g;
    return nullptr;
  }

  Status check_unique(const Group& group) const {
    for (const Group& other : groups_) {
      for (const std::string& name : group.targets.names)
        if (other.targets.names.contains(name)) return twice(group, other, name);
      for (const Matcher& m : group.targets.patterns)
        for (const Matcher& o : other.targets.patterns)
          if (m.text() == o.text()) return twice(group, other, m.text());
    }
    return Status::ok();
  }
  Status twice(const Group& group, const Group& other, const std::string& target) const {
    return invalid("{}: the target \"{}\" stands in {}targets and in {}targets; allowed: one of them", config_.source,
                   target, other.place, group.place);
  }

  Status add(const CheckpointTensor& t) {
    const std::string module(module_of(t.name));
    LinearQuant q;
    if (const Group* g = group_of(t)) {
      q.storage = LinearStorage::CompressedTensors;
      q.scheme = g->dynamic ? LinearScheme::W8A8Dynamic : LinearScheme::W8A8Static;
      ASSIGN_OR_RETURN(const CheckpointTensor* scale, checkpoint_.get(module + ".weight_scale"));
      if (scale->elements() != (g->channel ? t.shape[0] : 1))
        return invalid("{}: tensor {} has the shape [{}], but {}weights.strategy is {}", checkpoint_.source(),
                       scale->name, fmt::join(scale->shape, ", "), g->place, g->channel ? "channel" : "tensor");
      RETURN_IF_ERROR(allow_zeros(checkpoint_, module + ".weight_zero_point", "as weights are symmetric", plan_));
      if (!g->dynamic) {
        ASSIGN_OR_RETURN(q.input_scale, positive_number(checkpoint_, module + ".input_scale"));
        plan_.seen.insert(module + ".input_scale");
        if (g->symmetric) {
          RETURN_IF_ERROR(
              allow_zeros(checkpoint_, module + ".input_zero_point", "as activations are symmetric", plan_));
        } else {
          ASSIGN_OR_RETURN(q.input_offset, single_number(checkpoint_, module + ".input_zero_point"));
          plan_.seen.insert(module + ".input_zero_point");
        }
      }
    }
    plan_.linears.emplace(t.name, q);
    return Status::ok();
  }

  const ModelConfigFields& config_;
  const Checkpoint& checkpoint_;
  Matchers ignore_;
  std::vector<Group> groups_;
  QuantPlan plan_;
};

}  // namespace

Result<QuantPlan> read_compressed_tensors_plan(const ModelConfigFields& config, const Checkpoint& checkpoint) {
  return Reader(config, checkpoint).run();
}

}  // namespace reprise::checkpoint
