#include "checkpoint/mmproj.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/convert.h"

namespace reprise::checkpoint {
namespace {

constexpr std::string_view kPatches = "v.patch_embd.weight", kPatchesLater = "v.patch_embd.weight.1",
                           kPlaces = "v.position_embd.weight", kDeep = "clip.vision.is_deepstack_layers";

Result<std::string> projector_type(const GgufFile& file) {
  ASSIGN_OR_RETURN(const auto architecture, file.string("general.architecture"));
  if (architecture.value_or("") != "clip")
    return invalid("`mmproj` {}: general.architecture is \"{}\"; allowed: \"clip\", a vision tower", file.source(),
                   architecture.value_or(""));
  for (const char* key : {"clip.vision.projector_type", "clip.projector_type"}) {
    ASSIGN_OR_RETURN(const auto type, file.string(key));
    if (type) return *type;
  }
  return invalid("`mmproj` {}: metadata \"clip.projector_type\" is missing", file.source());
}

// Metadata of the tower; required ones are named when they are missing.
class TowerFields {
 public:
  TowerFields(const GgufFile& file, Json& out) : file_(file), out_(out) {}

  static std::string key(std::string_view name) { return fmt::format("clip.vision.{}", name); }
  Result<std::optional<int64_t>> get(std::string_view name) const { return file_.integer(key(name)); }
  Result<int64_t> need(std::string_view name) const {
    ASSIGN_OR_RETURN(const auto v, get(name));
    if (!v) return invalid("`mmproj` {}: metadata \"{}\" is missing", file_.source(), key(name));
    return *v;
  }
  Status copy(std::string_view name, const char* to) {
    ASSIGN_OR_RETURN(out_[to], need(name));
    return Status::ok();
  }
  // A list of integers or booleans; none: it is not there.
  Result<std::optional<std::vector<int64_t>>> list(std::string_view key) const {
    const GgufValue* v = file_.find_value(key);
    if (!v) return std::optional<std::vector<int64_t>>();
    std::vector<int64_t> out;
    if (v->is_array_of(GgufValueType::Bool)) {
      for (const uint8_t b : v->bytes) out.push_back(b != 0);
      return std::optional(std::move(out));
    }
    if (v->type != GgufValueType::Array || !GgufValue::is_integer_type(v->element))
      return invalid("`mmproj` {}: metadata \"{}\" is no list of integers or booleans", file_.source(), key);
    for (uint64_t i = 0; i < v->count; ++i) {
      ASSIGN_OR_RETURN(const int64_t n, v->as_int(i));
      out.push_back(n);
    }
    return std::optional(std::move(out));
  }

 private:
  const GgufFile& file_;
  Json& out_;
};

// Blocks that attend over the whole image: every so many, or those of a list. What the file does not say is as
// published: windows of 112 pixels, two positions for a second.
Status add_windows(const GgufFile& file, TowerFields& in, Json& vision) {
  ASSIGN_OR_RETURN(const int64_t depth, in.need("block_count"));
  ASSIGN_OR_RETURN(const auto listed, in.list(TowerFields::key("wa_layer_indexes")));
  std::vector<int64_t> full = listed.value_or(std::vector<int64_t>{});
  if (!listed) {
    ASSIGN_OR_RETURN(const int64_t every, in.need("n_wa_pattern"));
    if (every < 0 || every > depth)
      return invalid("`mmproj` {}: metadata \"{}\" is {}; allowed: 0 to {}", file.source(),
                     TowerFields::key("n_wa_pattern"), every, depth);
    for (int64_t i = every - 1; every > 0 && i < depth; i += every) full.push_back(i);
  }
  vision["fullatt_block_indexes"] = full;
  ASSIGN_OR_RETURN(const auto window, in.get("window_size"));
  vision["window_size"] = window.value_or(112);
  vision["tokens_per_second"] = 2;
  vision["hidden_act"] = "silu";
  return Status::ok();
}

Result<std::vector<int64_t>> deep_blocks(const GgufFile& file, const TowerFields& in) {
  ASSIGN_OR_RETURN(const auto flags, in.list(kDeep));
  std::vector<int64_t> out;
  for (size_t i = 0; flags && i < flags->size(); ++i)
    if ((*flags)[i] != 0) out.push_back(static_cast<int64_t>(i));
  return out;
}

// Learned positions and rows for the text model's first layers, of which that has a number.
Status add_learned(const GgufFile& file, const GgufFile& text, std::string_view arch, const TowerFields& in,
                   Json& vision) {
  const StoredTensor* places = file.find(kPlaces);
  if (!places || places->shape.size() != 2)
    return invalid("`mmproj` {}: tensor \"{}\" is {}; allowed: a row for each learned position", file.source(), kPlaces,
                   places ? fmt::format("of shape [{}]", fmt::join(places->shape, ", ")) : "missing");
  vision["num_position_embeddings"] = places->shape[0];
  vision["hidden_act"] = "gelu_pytorch_tanh";
  ASSIGN_OR_RETURN(const std::vector<int64_t> deep, deep_blocks(file, in));
  ASSIGN_OR_RETURN(const auto levels, text.integer(fmt::format("{}.n_deepstack_layers", arch)));
  if (const auto count = static_cast<int64_t>(deep.size()); levels && *levels != count)
    return invalid("`mmproj` {}: deepstack of {} levels ({}); its text model {} has {}", file.source(), count, kDeep,
                   text.source(), *levels);
  vision["deepstack_visual_indexes"] = deep;
  return Status::ok();
}

Result<Json> three_numbers(const GgufFile& file, std::string_view name) {
  const std::string key = TowerFields::key(name);
  const GgufValue* v = file.find_value(key);
  if (!v || v->type != GgufValueType::Array || v->count != 3)
    return invalid("`mmproj` {}: metadata \"{}\" is {}; allowed: three numbers", file.source(), key,
                   v ? "no such list" : "missing");
  Json out = Json::array();
  for (uint64_t i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(const double x, v->as_double(i));
    out.push_back(x);
  }
  return out;
}

// How pictures are cut, in the words of preprocessor_config.json. Where the file names no bounds, they are llama.cpp's:
// 8 to 4096 tokens.
Status add_cutting(const GgufFile& file, const TowerFields& in, Json& vision) {
  const auto patch = vision["patch_size"].get<int64_t>(), merge = vision["spatial_merge_size"].get<int64_t>();
  constexpr int64_t kMostSide = 1 << 10;
  if (patch < 1 || patch > kMostSide || merge < 1 || merge > kMostSide)
    return invalid("`mmproj` {}: patches of {} pixels a side, merged by {}; allowed: 1 to {}", file.source(), patch,
                   merge, kMostSide);
  const int64_t side = patch * merge;
  ASSIGN_OR_RETURN(const auto least, in.get("image_min_pixels"));
  ASSIGN_OR_RETURN(const auto most, in.get("image_max_pixels"));
  Json rules{
      {"patch_size", vision["patch_size"]},
      {"merge_size", vision["spatial_merge_size"]},
      {"temporal_patch_size", 2},
      {"size",
       {{"shortest_edge", least.value_or(8 * side * side)}, {"longest_edge", most.value_or(4096 * side * side)}}}};
  ASSIGN_OR_RETURN(rules["image_mean"], three_numbers(file, "image_mean"));
  ASSIGN_OR_RETURN(rules["image_std"], three_numbers(file, "image_std"));
  vision["gguf_preprocessor"] = std::move(rules);
  return Status::ok();
}

// The tokens that stand for pictures and for parts of videos: text files have no other word of them.
Status add_marks(const GgufTower& tower, const GgufFile& text, Json& config) {
  const GgufValue* tokens = text.find_value("tokenizer.ggml.tokens");
  for (const auto& [mark, to] : {std::pair{tower.image_mark, "image_token_id"}, {tower.video_mark, "video_token_id"}}) {
    size_t at = 0;
    const size_t count = tokens ? tokens->strings.size() : 0;
    while (at < count && tokens->strings[at] != mark) ++at;
    if (at == count)
      return invalid("{}: tokenizer.ggml.tokens has no {}, in whose place `mmproj` has rows", text.source(), mark);
    config[to] = at;
  }
  return Status::ok();
}

constexpr GgufTensorName kNames[] = {{"v.patch_embd.", "visual.patch_embed.proj."},
                                     {"v.position_embd.", "visual.pos_embed."}};
constexpr GgufTensorName kBlockNames[] = {
    {"ln1.", "norm1."},     {"ln2.", "norm2."},     {"attn_qkv.", "attn.qkv."}, {"attn_q.", "attn.q."},
    {"attn_k.", "attn.k."}, {"attn_v.", "attn.v."}, {"attn_out.", "attn.proj."}};
constexpr GgufTensorName kDeepMergers[] = {{"norm.", "norm."}, {"fc1.", "linear_fc1."}, {"fc2.", "linear_fc2."}};

std::optional<std::string> named(std::string_view name, std::string_view before,
                                 std::span<const GgufTensorName> names) {
  for (const GgufTensorName& n : names)
    if (name.starts_with(n.gguf)) return fmt::format("{}{}{}", before, n.hf, name.substr(n.gguf.size()));
  return std::nullopt;
}

// "v.blk.12.ln1.weight" -> 12 and "ln1.weight".
std::optional<std::pair<int64_t, std::string_view>> numbered(std::string_view name, std::string_view before) {
  if (!name.starts_with(before)) return std::nullopt;
  name.remove_prefix(before.size());
  constexpr size_t kMostDigits = 5;
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > kMostDigits || (dot > 1 && name[0] == '0'))
    return std::nullopt;
  int64_t number = 0;
  for (const char c : name.substr(0, dot)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  return std::pair{number, name.substr(dot + 1)};
}

// None: the tower has no such tensor.
std::optional<std::string> tower_name(std::string_view name, const GgufTower& tower, const std::vector<int64_t>& deep) {
  if (const auto block = numbered(name, "v.blk.")) {
    const std::string before = fmt::format("visual.blocks.{}.", block->first);
    if (auto found = named(block->second, before, kBlockNames)) return found;
    return named(block->second, before, tower.block_names);
  }
  if (const auto merger = numbered(name, "v.deepstack.")) {
    const auto at = std::find(deep.begin(), deep.end(), merger->first);
    if (at == deep.end()) return std::nullopt;
    return named(merger->second, fmt::format("visual.deepstack_merger_list.{}.", at - deep.begin()), kDeepMergers);
  }
  if (auto found = named(name, "", kNames)) return found;
  return named(name, "", tower.names);
}

// The tower that text models of an architecture take; an error names those that take one.
Result<const GgufTower*> tower_of(const GgufFile& mmproj, std::string_view arch, const Families& families) {
  std::vector<std::string_view> known;
  for (const Family* f : families.list) {
    if (!f->gguf.tower) continue;
    if (f->gguf.name == arch) return f->gguf.tower;
    if (known.empty() || known.back() != f->gguf.name) known.push_back(f->gguf.name);
  }
  return error(Code::Unsupported, "`mmproj` {}: text models of general.architecture \"{}\" take none here; allowed: {}",
               mmproj.source(), arch, fmt::join(known, ", "));
}

// [rows, 3, side, side] of either frame as [rows, 3 x 2 x side x side], which a patch is.
Result<CheckpointTensor> joined_patches(const GgufFile& file, const StoredTensor& one, size_t to,
                                        std::vector<uint8_t>& made) {
  const StoredTensor* two = file.find(kPatchesLater);
  if (!two) return invalid("`mmproj` {}: tensor \"{}\" is missing", file.source(), kPatchesLater);
  const bool plain = plain_dtype(one.type) && readable_as_float(one.type);
  if (one.shape.size() != 4 || one.shape[1] != 3 || one.shape != two->shape || one.type != two->type || !plain)
    return invalid(
        "`mmproj` {}: tensors \"{}\" {} [{}] and \"{}\" {} [{}]; allowed: [N, 3, side, side] of one type of "
        "floats",
        file.source(), kPatches, one.type_name, fmt::join(one.shape, ", "), kPatchesLater, two->type_name,
        fmt::join(two->shape, ", "));
  const size_t run = static_cast<size_t>(one.shape[2] * one.shape[3]) * block_layout(one.type).bytes;
  const auto runs = static_cast<size_t>(one.shape[0] * one.shape[1]);
  made.resize(2 * runs * run);
  for (size_t i = 0; i < runs; ++i) {
    std::memcpy(made.data() + 2 * i * run, file.bytes(one).data() + i * run, run);
    std::memcpy(made.data() + (2 * i + 1) * run, file.bytes(*two).data() + i * run, run);
  }
  CheckpointTensor t = CheckpointTensor::from(one, to);
  t.shape = {one.shape[0], 2 * one.shape[1] * one.shape[2] * one.shape[3]};
  t.offset = 0;
  t.bytes = made.size();
  return t;
}

}  // namespace

Status add_mmproj_fields(const GgufFile& mmproj, const GgufFile& text, const Families& families, Json& config) {
  ASSIGN_OR_RETURN(const std::string type, projector_type(mmproj));
  ASSIGN_OR_RETURN(const auto given, text.string("general.architecture"));
  const std::string arch = given.value_or("");
  ASSIGN_OR_RETURN(const GgufTower* tower, tower_of(mmproj, arch, families));
  if (tower->projector != type)
    return error(Code::Unsupported, "`mmproj` {}: clip.projector_type is \"{}\"; allowed with {}: \"{}\"",
                 mmproj.source(), type, text.source(), tower->projector);
  Json vision = Json::object();
  TowerFields in(mmproj, vision);
  for (const auto& [name, to] : {std::pair{"block_count", "depth"},
                                 {"embedding_length", "hidden_size"},
                                 {"feed_forward_length", "intermediate_size"},
                                 {"attention.head_count", "num_heads"},
                                 {"patch_size", "patch_size"},
                                 {"projection_dim", "out_hidden_size"}})
    RETURN_IF_ERROR(in.copy(name, to));
  if (vision["out_hidden_size"] != config["hidden_size"])
    return invalid("`mmproj` {}: its rows have {} numbers and those of {} have {}; allowed: the file of that model",
                   mmproj.source(), vision["out_hidden_size"].dump(), text.source(), config["hidden_size"].dump());
  ASSIGN_OR_RETURN(const auto merge, in.get("spatial_merge_size"));
  vision["spatial_merge_size"] = merge.value_or(2);
  vision["gguf_queries_apart"] = mmproj.find("v.blk.0.attn_q.weight") != nullptr;
  RETURN_IF_ERROR(tower->windows ? add_windows(mmproj, in, vision) : add_learned(mmproj, text, arch, in, vision));
  RETURN_IF_ERROR(add_cutting(mmproj, in, vision));
  RETURN_IF_ERROR(add_marks(*tower, text, config));
  config["vision_config"] = std::move(vision);
  return Status::ok();
}

Result<std::vector<CheckpointTensor>> mmproj_tensors(const GgufFile& mmproj, const Families& families, size_t file,
                                                     std::vector<uint8_t>& made) {
  ASSIGN_OR_RETURN(const std::string type, projector_type(mmproj));
  GgufTower tower;  // of a kind that none takes, which the reader of its metadata refuses
  for (const Family* f : families.list)
    if (f->gguf.tower && f->gguf.tower->projector == type) tower = *f->gguf.tower;
  Json none;
  ASSIGN_OR_RETURN(const std::vector<int64_t> deep, deep_blocks(mmproj, TowerFields(mmproj, none)));
  std::vector<CheckpointTensor> out;
  for (const StoredTensor& t : mmproj.tensors()) {
    if (t.name == kPatchesLater && mmproj.find(kPatches)) continue;
    CheckpointTensor one = CheckpointTensor::from(t, file);
    if (t.name == kPatches) {
      ASSIGN_OR_RETURN(one, joined_patches(mmproj, t, file + 1, made));
    }
    if (auto name = tower_name(t.name, tower, deep)) one.name = std::move(*name);
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace reprise::checkpoint
