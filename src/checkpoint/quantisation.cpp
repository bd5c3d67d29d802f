#include "checkpoint/quantisation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/lower_case.h"
#include "checkpoint/quantise_rows.h"

namespace reprise::checkpoint {
namespace {

constexpr std::array<std::string_view, 7> kQuantisations{"auto", "none", "w8a8_int8", "modelslim", "compressed-tensors",
                                                         "gguf", "mxfp4"};

// What the files are, independent of what was asked.
Quantization format_of(const ModelConfigFields& config) {
  if (!config.modelslim.is_null()) return Quantization::ModelSlim;
  if (config.quantization.is_null()) return Quantization::None;
  const bool mxfp4 = config.quantization.is_object() && config.quantization.value("quant_method", Json()) == "mxfp4";
  return mxfp4 ? Quantization::Mxfp4 : Quantization::CompressedTensors;
}

// Weights that are integers must be known to the plan, and those it takes for integers must be.
Status check_types(const QuantPlan& plan, const Checkpoint& checkpoint) {
  for (const CheckpointTensor& t : checkpoint.tensors()) {
    if (!is_linear_weight(t)) continue;
    const LinearQuant& q = plan.of(t.name);
    if (q.storage == LinearStorage::Blocks) continue;  // read from the file itself
    const bool integers = q.scheme != LinearScheme::Float && q.storage != LinearStorage::Floats;
    if (integers && t.type != StorageType::I8)
      return invalid("{}: tensor {} is quantised by its description but stored as {}; allowed: I8", checkpoint.source(),
                     t.name, t.type_name);
    if (!integers && !readable_as_float(t.type) && plan.format != Quantization::None)
      return invalid("{}: tensor {} is stored as {}, but its description says that it is not quantised",
                     checkpoint.source(), t.name, t.type_name);
  }
  return Status::ok();
}

// Matrices in MXFP4.
Result<QuantPlan> mxfp4_plan(const ModelConfigFields& config, const Checkpoint& checkpoint) {
  QuantPlan plan;
  plan.format = Quantization::Mxfp4;
  for (const CheckpointTensor& t : checkpoint.tensors())
    if (t.type == StorageType::MXFP4)
      plan.linears[t.name] = {
          .scheme = LinearScheme::Packed, .storage = LinearStorage::Blocks, .block = BlockFormat::Mxfp4};
  if (plan.linears.empty())
    return invalid(
        "{}: quantization_config.quant_method is \"mxfp4\", but {} has no experts in it; expected: "
        "model.layers.<layer>.mlp.experts.gate_up_proj_blocks, _scales and _bias, and the same of down_proj",
        config.source, checkpoint.source());
  return plan;
}

// Matrices in block types.
QuantPlan gguf_plan(const Checkpoint& checkpoint) {
  QuantPlan plan;
  for (const CheckpointTensor& t : checkpoint.tensors()) {
    if (t.shape.size() != 2 || module_of(t.name).empty() || block_layout(t.type).elements == 1) continue;
    LinearQuant& q = plan.linears[t.name];
    // kv_b_proj is folded into products that have no kernels on blocks.
    if (t.name.ends_with(".kv_b_proj.weight")) {
      q.unpacked = t.type_name + " kv_b_proj";
    } else if (!t.whole_blocks()) {  // columns of heads in another order
      q.unpacked = t.type_name + " " + std::string(module_of(t.name).substr(module_of(t.name).rfind('.') + 1));
    } else {
      q = {.scheme = LinearScheme::Packed, .storage = LinearStorage::Blocks, .block = kept_format(t.type).value()};
      plan.format = Quantization::Gguf;
    }
  }
  return plan;
}

// "210 q4_1, 1 q8_0"
std::string counted(const std::map<std::string, int>& names) {
  std::string out;
  for (const auto& [name, n] : names) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", n, name);
  return out;
}

}  // namespace

std::optional<BlockFormat> kept_format(StorageType type) {
  const std::string name = lower_case(storage_name(type));
  const auto format = find_block_format(name);
  if (format)
    CHECK(static_cast<int64_t>(block_layout(type).elements) == block_format_info(*format).elements &&
              static_cast<int64_t>(block_layout(type).bytes) == block_format_info(*format).bytes,
          "blocks of {}", name);
  return format;
}

Result<Quantization> parse_quantization(std::string_view name) {
  for (size_t i = 0; i < kQuantisations.size(); ++i)
    if (name == kQuantisations[i]) return static_cast<Quantization>(i);
  return invalid("quantization \"{}\" is not known; allowed: {}", name, fmt::join(kQuantisations, ", "));
}

std::string_view quantization_name(Quantization q) { return kQuantisations[static_cast<size_t>(q)]; }

const LinearQuant& QuantPlan::of(std::string_view weight) const {
  const auto it = linears.find(weight);
  return it == linears.end() ? others : it->second;
}

std::string QuantPlan::text() const {
  const auto one = [](const LinearQuant& q) {
    return fmt::format("{} {} {} {} {} {}\n", static_cast<int>(q.scheme), static_cast<int>(q.storage), q.input_scale,
                       q.input_offset, static_cast<int>(q.block), q.unpacked);
  };
  std::string out = fmt::format("{}{}\n{}", quantization_name(format), int8_activations ? " int8" : "", one(others));
  for (const auto& [name, q] : linears) out += name + " " + one(q);
  for (const std::string& name : norm_biases) out += name + "\n";
  return out;
}

std::string QuantPlan::summary() const {
  if (format == Quantization::None && linears.empty()) return "none";
  if (format == Quantization::Gguf || format == Quantization::Mxfp4 || format == Quantization::None) {
    std::map<std::string, int> kept, unpacked;
    for (const auto& [name, q] : linears)
      if (q.scheme == LinearScheme::Packed)
        ++kept[std::string(block_format_info(q.block).name)];
      else
        ++unpacked[q.unpacked];
    std::vector<std::string> parts;
    if (!kept.empty())
      parts.push_back(counted(kept) + " kept packed" + (int8_activations ? ", activations in int8" : ""));
    if (!unpacked.empty()) parts.push_back("no kernels, so unpacked: " + counted(unpacked));
    return fmt::format("{} ({})", quantization_name(format), fmt::join(parts, "; "));
  }
  if (linears.empty()) return fmt::format("{} (all linears, dynamic)", quantization_name(format));
  std::array<int, 3> count{};
  for (const auto& entry : linears) ++count[static_cast<size_t>(entry.second.scheme)];
  const std::string biases =
      norm_biases.empty() ? ""
                          : fmt::format(", {} norm bias{}", norm_biases.size(), norm_biases.size() > 1 ? "es" : "");
  return fmt::format("{} ({} static, {} dynamic, {} float linears{})", quantization_name(format), count[1], count[2],
                     count[0], biases);
}

std::string_view module_of(std::string_view weight) {
  constexpr std::string_view kEnding = ".weight";
  return weight.ends_with(kEnding) ? weight.substr(0, weight.size() - kEnding.size()) : std::string_view();
}

bool is_linear_weight(const CheckpointTensor& t) {
  // Tables, the convolution that reads patches, which is a matrix here alone, and norms with weights for each head.
  constexpr std::string_view kOthers[] = {"embed_tokens", "visual.pos_embed", "visual.patch_embed.proj", "norm"};
  const std::string_view module = module_of(t.name);
  return t.shape.size() == 2 && !module.empty() &&
         std::none_of(std::begin(kOthers), std::end(kOthers), [&](auto o) { return module.ends_with(o); });
}

Result<float> single_number(const Checkpoint& checkpoint, const std::string& name) {
  ASSIGN_OR_RETURN(const CheckpointTensor* t, checkpoint.get(name));
  if (t->elements() != 1)
    return invalid("{}: tensor {} has the shape [{}]; allowed: one number", checkpoint.source(), name,
                   fmt::join(t->shape, ", "));
  ASSIGN_OR_RETURN(const std::vector<float> v, read_numbers(checkpoint, *t));
  return v[0];
}

Result<float> positive_number(const Checkpoint& checkpoint, const std::string& name) {
  ASSIGN_OR_RETURN(const float v, single_number(checkpoint, name));
  // Its reciprocal must be a number, too.
  if (!(v > 0) || !std::isfinite(1.0f / v))
    return invalid("{}: tensor {} holds {}; allowed: positive numbers", checkpoint.source(), name, v);
  return v;
}

Status allow_zeros(const Checkpoint& checkpoint, const std::string& name, std::string_view why, QuantPlan& plan) {
  const CheckpointTensor* t = checkpoint.find(name);
  if (!t) return Status::ok();
  ASSIGN_OR_RETURN(const std::vector<float> values, read_numbers(checkpoint, *t));
  for (float v : values)
    if (v != 0)
      return error(Code::Unsupported, "{}: tensor {} holds {}; allowed: 0, {}", checkpoint.source(), name, v, why);
  plan.seen.insert(name);
  return Status::ok();
}

Result<QuantPlan> make_quant_plan(Quantization asked, const ModelConfigFields& config, const Checkpoint* checkpoint) {
  const Quantization stored = format_of(config);
  const auto is = [&] {
    return fmt::format(
        "{}: the checkpoint is {}", config.source,
        stored == Quantization::None ? "not quantised" : fmt::format("quantised ({})", quantization_name(stored)));
  };
  if (asked == Quantization::None && stored != Quantization::None)
    return invalid("{}, `quantization` none cannot undo that; allowed: auto, {}", is(), quantization_name(stored));
  const bool by_name =
      asked == Quantization::ModelSlim || asked == Quantization::CompressedTensors || asked == Quantization::Mxfp4;
  if (by_name && asked != stored)
    return invalid("{}, not {}; allowed: auto, {}", is(), quantization_name(asked),
                   stored == Quantization::None ? "none, w8a8_int8" : quantization_name(stored));
  QuantPlan plan;
  if (checkpoint && checkpoint->format() == Checkpoint::Format::Gguf &&
      (asked == Quantization::Auto || asked == Quantization::Gguf))
    plan = gguf_plan(*checkpoint);
  if (asked == Quantization::Gguf && plan.format != asked)
    return invalid("{} and has no matrix in a GGUF block type with kernels; allowed: auto, {}", is(),
                   stored == Quantization::None ? "none, w8a8_int8" : quantization_name(stored));
  // The older name of both formats: a checkpoint that is W8A8 already stays as it is.
  if (stored == Quantization::ModelSlim) {
    ASSIGN_OR_RETURN(plan, read_modelslim_plan(config, checkpoint));
  } else if (stored == Quantization::CompressedTensors || stored == Quantization::Mxfp4) {
    if (!checkpoint)
      return error(Code::Unsupported,
                   "{}, whose dummy weights would need its tensors; allowed with `load_format` dummy: models without "
                   "quantization_config, with `quantization` none or w8a8_int8",
                   is());
    if (stored == Quantization::Mxfp4 && asked == Quantization::W8A8Int8)
      return invalid("{}, whose experts have no int8 form; allowed: auto, mxfp4", is());
    ASSIGN_OR_RETURN(plan, stored == Quantization::Mxfp4 ? mxfp4_plan(config, *checkpoint)
                                                         : read_compressed_tensors_plan(config, *checkpoint));
  } else if (asked == Quantization::W8A8Int8) {
    plan.format = asked;
    plan.others = {LinearScheme::W8A8Dynamic, LinearStorage::Floats};
  }
  if (checkpoint) RETURN_IF_ERROR(check_types(plan, *checkpoint));
  return plan;
}

}  // namespace reprise::checkpoint
