#include "checkpoint/vision.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "checkpoint/config.h"
#include "checkpoint/config_rope.h"
#include "checkpoint/field_reader.h"
#include "checkpoint/limits.h"

namespace reprise::checkpoint {
namespace {

Status read_integers(const FieldReader& in, std::string_view key, int64_t most, std::vector<int64_t>& out) {
  const Json* list = in.find(key);
  if (!list) return Status::ok();
  const std::string allowed = fmt::format("a list of integers from 0 to {}", most);
  if (!list->is_array() || list->size() > static_cast<size_t>(kMaxLayers)) return in.wrong(key, *list, allowed);
  out.clear();
  for (const Json& v : *list) {
    if (!v.is_number_integer() || v.get<int64_t>() < 0 || v.get<int64_t>() > most) return in.wrong(key, *list, allowed);
    out.push_back(v.get<int64_t>());
  }
  return Status::ok();
}

Status read_tower(const FieldReader& in, const VisionDefaults& d, int64_t text_hidden, VisionFields& v) {
  RETURN_IF_ERROR(in.integer("depth", 1, kMaxLayers, d.depth, v.depth));
  RETURN_IF_ERROR(in.integer("hidden_size", 1, kMaxHidden, d.hidden, v.hidden));
  RETURN_IF_ERROR(in.integer("intermediate_size", 1, kMaxIntermediate, d.intermediate, v.intermediate));
  RETURN_IF_ERROR(in.integer("num_heads", 1, kMaxHeads, d.heads, v.heads));
  if (v.hidden % v.heads != 0 || v.hidden / v.heads % 4 != 0)
    return in.wrong("num_heads", Json(v.heads), "a number of heads whose size is a multiple of 4");
  RETURN_IF_ERROR(in.integer("patch_size", 1, 1 << 10, d.patch, v.patch));
  RETURN_IF_ERROR(in.integer("spatial_merge_size", 1, 16, 2, v.merge));
  RETURN_IF_ERROR(in.integer("temporal_patch_size", 1, 16, 2, v.temporal));
  int64_t channels = 3;
  RETURN_IF_ERROR(in.integer("in_channels", 3, 3, 3, channels));
  RETURN_IF_ERROR(in.integer("out_hidden_size", text_hidden, text_hidden, text_hidden, v.out_hidden));
  RETURN_IF_ERROR(in.boolean("gguf_queries_apart", false, v.apart));
  if (const Json* rules = in.find("gguf_preprocessor")) v.preprocessor = *rules;
  std::string act;
  RETURN_IF_ERROR(
      in.choice("hidden_act", {"silu", "gelu", "gelu_pytorch_tanh"}, d.windows ? "silu" : "gelu_pytorch_tanh", act));
  v.activation = act == "gelu_pytorch_tanh" ? "gelu_tanh" : act;
  if (d.windows) {
    int64_t side = 0;
    RETURN_IF_ERROR(in.integer("window_size", 1, 1 << 16, 112, side));
    v.window = side / v.merge / v.patch * v.merge;
    if (v.window < 1) return in.wrong("window_size", Json(side), fmt::format("at least {}", v.merge * v.patch));
    // Published files say 2; of one that is silent transformers takes 4.
    RETURN_IF_ERROR(in.number("tokens_per_second", 0.0, 1e3, 4.0, v.positions_per_second));
    v.full_blocks = {7, 15, 23, 31};
    RETURN_IF_ERROR(read_integers(in, "fullatt_block_indexes", v.depth - 1, v.full_blocks));
  }
  if (!d.learned) return Status::ok();
  int64_t positions = 0;
  RETURN_IF_ERROR(in.integer("num_position_embeddings", 1, 1 << 24, 2304, positions));
  v.side = static_cast<int64_t>(std::sqrt(static_cast<double>(positions)));
  if (v.side * v.side != positions) return in.wrong("num_position_embeddings", Json(positions), "a square");
  if (!d.deepstack) return Status::ok();
  v.deepstack_blocks = {8, 16, 24};
  RETURN_IF_ERROR(read_integers(in, "deepstack_visual_indexes", v.depth - 1, v.deepstack_blocks));
  return std::is_sorted(v.deepstack_blocks.begin(), v.deepstack_blocks.end(), std::less_equal<>())
             ? Status::ok()
             : in.wrong("deepstack_visual_indexes", *in.find("deepstack_visual_indexes"),
                        "ascending numbers of blocks");
}

// What a file says of the tower and nothing above reads. Keys of transformers' bookkeeping pass, and those that
// published files repeat a size under; any other one may change what a tower computes.
Status check_others(const FieldReader& in, const Json& tower, const VisionDefaults& d, const VisionFields& v) {
  static constexpr std::string_view kRead[] = {
      "depth",       "hidden_size",         "intermediate_size", "num_heads",  "patch_size",     "spatial_merge_size",
      "in_channels", "temporal_patch_size", "out_hidden_size",   "hidden_act", "rope_parameters"};
  static constexpr std::string_view kWindows[] = {"window_size", "tokens_per_second", "fullatt_block_indexes"};
  static constexpr std::string_view kPlain[] = {"model_type",
                                                "architectures",
                                                "initializer_range",
                                                "dtype",
                                                "torch_dtype",
                                                "return_dict",
                                                "id2label",
                                                "label2id",
                                                "problem_type",
                                                "output_hidden_states",
                                                "use_cache",
                                                "num_labels",
                                                "output_attentions",
                                                "is_encoder_decoder",
                                                "chunk_size_feed_forward",
                                                "transformers_version"};
  const auto has = [](std::span<const std::string_view> list, std::string_view key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  const std::pair<std::string_view, int64_t> same[] = {{"in_chans", 3},
                                                       {"spatial_patch_size", v.patch},
                                                       {"num_hidden_layers", v.depth},
                                                       {"num_attention_heads", v.heads}};
  for (const auto& [key, value] : tower.items()) {
    if (value.is_null() || has(kRead, key) || has(kPlain, key) || key.starts_with("_") || key.starts_with("gguf_"))
      continue;
    if (d.windows && has(kWindows, key)) continue;
    if (d.learned && (key == "num_position_embeddings" || key == "deepstack_visual_indexes")) continue;
    const auto* repeated =
        std::find_if(std::begin(same), std::end(same), [&key = key](const auto& s) { return s.first == key; });
    if (repeated == std::end(same)) return in.wrong(key, value, "null, as the tower does not go by it");
    if (value != repeated->second) return in.wrong(key, value, fmt::format("null, {}", repeated->second));
  }
  const Json* rope = in.find("rope_parameters");
  if (!rope) return Status::ok();
  if (!rope->is_object()) return in.wrong("rope_parameters", *rope, "an object, null");
  for (const auto& [key, value] : rope->items()) {
    const bool type = key == "rope_type" && (value == "axial" || value == "default");
    if (!value.is_null() && !type && !(key == "rope_theta" && value == 10000))
      return in.wrong("rope_parameters", *rope, "null, {\"rope_type\": \"axial\", \"rope_theta\": 10000}");
  }
  return Status::ok();
}

// transformers builds none of these mergers for such a tower.
void note_deepstack(const Json& tower, ModelConfigFields& out) {
  const auto it = tower.find("deepstack_visual_indexes");
  if (it != tower.end() && !it->is_null() && !it->empty())
    out.notices.push_back("vision_config.deepstack_visual_indexes has no effect: the tower has no deepstack");
}

}  // namespace

bool VisionFields::full(int64_t index) const {
  return window == 0 || std::find(full_blocks.begin(), full_blocks.end(), index) != full_blocks.end();
}

std::vector<double> VisionFields::axes(int64_t count) const {
  std::vector<double> out(static_cast<size_t>(count), 0);
  for (int64_t i = 0; i < count; ++i) {
    double& axis = out[static_cast<size_t>(i)];
    if (interleaved) {
      for (int64_t a : {1, 2})
        if (i % 3 == a && i < 3 * sections[static_cast<size_t>(a)]) axis = static_cast<double>(a);
    } else {
      axis = i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
    }
  }
  return out;
}

Status read_vision(const FieldReader& in, const VisionDefaults& defaults, ModelConfigFields& out) {
  VisionFields v;
  const Json* tower = in.find("vision_config");
  if (!tower && in.find("gguf_rope_freqs")) return Status::ok();  // a GGUF file without its `mmproj`
  if (!tower) return in.absent("vision_config", "an object");
  if (!tower->is_object()) return in.wrong("vision_config", *tower, "an object");
  const FieldReader inside(*tower, out.source, "vision_config.");
  RETURN_IF_ERROR(read_tower(inside, defaults, out.hidden_size, v));
  RETURN_IF_ERROR(check_others(inside, *tower, defaults, v));
  if (static_cast<int64_t>(v.deepstack_blocks.size()) > out.num_hidden_layers)
    return invalid("{}: vision_config.deepstack_visual_indexes has {} entries; allowed: num_hidden_layers {}",
                   out.source, v.deepstack_blocks.size(), out.num_hidden_layers);
  RETURN_IF_ERROR(in.integer("image_token_id", 0, out.vocab_size - 1, defaults.image_token, v.image_token));
  RETURN_IF_ERROR(in.integer("video_token_id", 0, out.vocab_size - 1, defaults.video_token, v.video_token));
  v.told_times = !defaults.windows;
  if (!defaults.deepstack) note_deepstack(*tower, out);
  const auto turned = static_cast<int64_t>(static_cast<double>(out.head_dim) * stated_rotation(in, out));
  const int64_t half = turned / 2;
  v.interleaved = defaults.interleaved;
  v.sections.assign(defaults.sections.begin(), defaults.sections.end());
  for (const char* place : {"rope_scaling", "rope_parameters"})
    if (const Json* rope = in.find(place); rope && rope->is_object()) {
      const FieldReader inner(*rope, out.source, fmt::format("{}.", place));
      RETURN_IF_ERROR(read_integers(inner, "mrope_section", half, v.sections));
      // transformers goes by the family alone.
      bool interleaved = v.interleaved;
      RETURN_IF_ERROR(inner.boolean("mrope_interleaved", v.interleaved, interleaved));
      if (interleaved != v.interleaved)
        return inner.wrong("mrope_interleaved", Json(interleaved), v.interleaved ? "null, true" : "null, false");
    }
  if (v.sections.size() != 3 || v.sections[0] + v.sections[1] + v.sections[2] != half)
    return invalid("{}: mrope_section [{}]; allowed: three numbers that add up to half of what turns of a head, {}",
                   out.source, fmt::join(v.sections, ", "), half);
  out.vision = std::move(v);
  return Status::ok();
}

}  // namespace reprise::checkpoint
