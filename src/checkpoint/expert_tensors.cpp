#include "checkpoint/expert_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "checkpoint/limits.h"

namespace reprise::checkpoint {
namespace {

// Text models inside larger ones have a prefix of their own, in one of two places, and decoders that were stored
// without a head have none.
void rename_text_model(std::string& name) {
  for (const auto& [prefix, instead] :
       {std::pair<std::string_view, std::string_view>{"language_model.model.", "model."},
        {"language_model.lm_head.", "lm_head."},
        {"model.language_model.", "model."},
        {"model.visual.", "visual."},
        {"layers.", "model.layers."},
        {"embed_tokens.", "model.embed_tokens."},
        {"norm.", "model.norm."}})
    if (name.starts_with(prefix)) return void(name.replace(0, prefix.size(), instead));
}

// Where the rule's words are in a name; npos: it is not one of those.
size_t place_of(const NameRule& rule, std::string_view name, std::string_view in_file) {
  constexpr std::string_view kLayers = "model.layers.";
  constexpr size_t kNone = std::string_view::npos;
  if (!rule.within.empty() && in_file.find(rule.within) == kNone) return kNone;
  switch (rule.at) {
    case NameRule::At::Start: return name.starts_with(rule.from) ? 0 : kNone;
    case NameRule::At::End: return name.ends_with(rule.from) ? name.size() - rule.from.size() : kNone;
    case NameRule::At::Anywhere: return name.find(rule.from);
    case NameRule::At::InLayer: break;
  }
  const size_t dot = name.starts_with(kLayers) ? name.find('.', kLayers.size()) : kNone;
  return dot != kNone && name.substr(dot).starts_with(rule.from) ? dot : kNone;
}

// The rules of all families, each table once.
std::vector<std::span<const NameRule>> rules_of(const Families& families) {
  std::vector<std::span<const NameRule>> out;
  for (const Family* f : families.list)
    if (std::none_of(out.begin(), out.end(), [&](const auto& other) { return other.data() == f->names.data(); }))
      out.push_back(f->names);
  return out;
}

// "a.experts.up_proj" or "a.experts.up_proj.weight" -> "a.experts" and "up_proj".
std::optional<std::pair<std::string_view, std::string_view>> stack_name(std::string_view name) {
  constexpr std::string_view kWeight = ".weight", kExperts = ".experts";
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || !name.substr(0, dot).ends_with(kExperts)) return std::nullopt;
  const std::string_view leaf = name.substr(dot + 1);
  for (std::string_view known : {"gate_up_proj", "gate_proj", "up_proj", "down_proj"})
    if (leaf == known) return std::pair{name.substr(0, dot), leaf};
  return std::nullopt;
}

bool is_plain_float(const CheckpointTensor& t) {
  return plain_dtype(t.type) && readable_as_float(t.type) &&
         t.bytes == static_cast<uint64_t>(t.elements()) * block_layout(t.type).bytes;
}

// Takes apart "a.experts.up_proj.bias" of GGUF files: a row for each expert.
bool take_biases(const CheckpointTensor& t, std::vector<CheckpointTensor>& out) {
  constexpr std::string_view kBias = ".bias";
  if (!t.name.ends_with(kBias) || t.shape.size() != 2 || !is_plain_float(t)) return false;
  if (t.shape[0] < 1 || t.shape[0] > kMaxExperts) return false;
  const auto name = stack_name(std::string_view(t.name).substr(0, t.name.size() - kBias.size()));
  if (!name) return false;
  for (int64_t e = 0; e < t.shape[0]; ++e) {
    CheckpointTensor one = t;
    one.name = fmt::format("{}.{}.{}{}", name->first, e, name->second, kBias);
    one.file_name = fmt::format("{}[{}]", t.file_name, e);
    one.shape = {t.shape[1]};
    one.bytes = t.bytes / static_cast<uint64_t>(t.shape[0]);
    one.offset += one.bytes * static_cast<uint64_t>(e);
    out.push_back(std::move(one));
  }
  return true;
}

// Rows [first, first + rows) of a stack's matrix `e`.
CheckpointTensor slice_of(const CheckpointTensor& stack, std::string_view scope, int64_t e, std::string_view leaf,
                          int64_t first, int64_t rows) {
  CheckpointTensor t = stack;
  t.name = fmt::format("{}.{}.{}.weight", scope, e, leaf);
  t.file_name = fmt::format("{}[{}, {}:{}]", stack.file_name, e, first, first + rows);
  t.shape = {rows, stack.shape[2]};
  const uint64_t row_bytes = stack.bytes / static_cast<uint64_t>(stack.rows());
  t.bytes = row_bytes * static_cast<uint64_t>(rows);
  t.offset = stack.offset + row_bytes * static_cast<uint64_t>(e * stack.shape[1] + first);
  return t;
}

// One expert's share of a stack in which parts of gate and up take turns.
struct Share {
  int64_t expert = 0;
  uint64_t first = 0, step = 1;  // every `step`th from the `first` on
};

// A matrix [rows, columns] out of the stack's [experts, columns, rows step].
CheckpointTensor columns_of(const CheckpointTensor& stack, const Share& s) {
  CheckpointTensor t = stack;
  const uint64_t element = block_layout(t.type).bytes, depth = static_cast<uint64_t>(t.shape[1]),
                 width = static_cast<uint64_t>(t.shape[2]);
  t.shape = {stack.shape[2] / static_cast<int64_t>(s.step), stack.shape[1]};
  t.bytes = stack.bytes / static_cast<uint64_t>(stack.shape[0]) / s.step;
  t.offset += (static_cast<uint64_t>(s.expert) * depth * width + s.first) * element;
  t.row_step = s.step * element;
  t.element_step = width * element;
  t.span = (depth * width - s.first) * element;
  return t;
}

// Rows that are the columns [first, first + rows) of a stack's matrix `e`.
CheckpointTensor turned_of(const CheckpointTensor& stack, std::string_view scope, int64_t e, std::string_view leaf,
                           int64_t first, int64_t rows) {
  CheckpointTensor t = stack;
  const uint64_t element = block_layout(t.type).bytes, depth = static_cast<uint64_t>(t.shape[1]),
                 width = static_cast<uint64_t>(t.shape[2]);
  t.name = fmt::format("{}.{}.{}.weight", scope, e, leaf);
  t.file_name = fmt::format("{}[{}, :, {}:{}]", stack.file_name, e, first, first + rows);
  t.shape = {rows, stack.shape[1]};
  t.bytes = static_cast<uint64_t>(rows) * depth * element;
  t.offset += (static_cast<uint64_t>(e) * depth * width + static_cast<uint64_t>(first)) * element;
  t.row_step = element;
  t.element_step = width * element;
  t.span = (depth * width - static_cast<uint64_t>(first)) * element;
  return t;
}

// A vector out of the stack's [experts, numbers step].
CheckpointTensor numbers_of(const CheckpointTensor& stack, const Share& s) {
  CheckpointTensor t = stack;
  const uint64_t element = block_layout(t.type).bytes, width = static_cast<uint64_t>(t.shape[1]);
  t.shape = {stack.shape[1] / static_cast<int64_t>(s.step)};
  t.bytes = width / s.step * element;
  t.offset += (static_cast<uint64_t>(s.expert) * width + s.first) * element;
  t.row_step = width * element;
  t.element_step = s.step * element;
  t.span = (width - s.first) * element;
  return t;
}

// A matrix out of blocks [experts, rows step, blocks, 16] and exponents [experts, rows step, blocks].
CheckpointTensor blocks_of(const CheckpointTensor& stack, const CheckpointTensor& scales, const Share& s) {
  CheckpointTensor t = stack;
  const auto rows = static_cast<uint64_t>(t.shape[1]), blocks = static_cast<uint64_t>(t.shape[2]);
  const uint64_t row = blocks * 16, first = static_cast<uint64_t>(s.expert) * rows + s.first;
  t.type = StorageType::MXFP4;
  t.type_name = storage_name(t.type);
  t.shape = {stack.shape[1] / static_cast<int64_t>(s.step), stack.shape[2] * 32};
  t.bytes = rows / s.step * blocks * 17;
  t.offset += first * row;
  t.row_step = s.step * row;
  t.span = (rows - s.first) * row;
  t.exponents = {scales.file, scales.offset + first * blocks, s.step * blocks};
  return t;
}

bool are_blocks(const CheckpointTensor& blocks, const CheckpointTensor& scales) {
  const auto& b = blocks.shape;
  return b.size() == 4 && b[3] == 16 && scales.shape == std::vector<int64_t>(b.begin(), b.begin() + 3) &&
         blocks.type == StorageType::U8 && scales.type == StorageType::U8 &&
         blocks.bytes == static_cast<uint64_t>(blocks.elements()) &&
         scales.bytes == static_cast<uint64_t>(scales.elements());
}

// Stacks in which gate and up take turns: those of layers that have biases of experts.
class AlternatingStacks {
 public:
  // Takes all tensors, under their names here; they stay where they are.
  explicit AlternatingStacks(const std::vector<CheckpointTensor>& tensors) {
    for (const CheckpointTensor& t : tensors) {
      const std::string_view name = t.name;
      if (name.ends_with(kBias)) scopes_.emplace(name.substr(0, name.size() - kBias.size()));
      if (name.ends_with(kScales)) scales_.emplace(name, &t);
      if (name.ends_with(kBlocks)) blocks_.emplace(name, &t);
    }
  }

  // Takes a stack apart; false: it is none of these, or not as they are. Of blocks the exponents go with the numbers.
  bool take(const CheckpointTensor& t, std::vector<CheckpointTensor>& out) const {
    const size_t dot = t.name.rfind('.');
    if (dot == std::string::npos || !scopes_.contains(t.name.substr(0, dot))) return false;
    std::string_view leaf = std::string_view(t.name).substr(dot + 1);
    constexpr std::string_view kBoth = "gate_up_proj", kDown = "down_proj";
    const bool both = leaf.starts_with(kBoth);
    if (!both && !leaf.starts_with(kDown)) return false;
    leaf.remove_prefix(both ? kBoth.size() : kDown.size());
    const size_t rank = t.shape.size();
    if (rank < 2 || t.shape[0] < 1 || t.shape[0] > kMaxExperts || t.elements() < 1) return false;
    const int64_t step = both ? 2 : 1, parts = leaf == "_blocks" ? t.shape[1] : t.shape.back();
    const CheckpointTensor *blocks = &t, *scales = nullptr;
    if (leaf == kBlocks || leaf == kScales) {
      const std::string stem = t.name.substr(0, t.name.size() - leaf.size());
      const auto b = blocks_.find(stem + std::string(kBlocks)), s = scales_.find(stem + std::string(kScales));
      if (b == blocks_.end() || s == scales_.end() || !are_blocks(*b->second, *s->second)) return false;
      if (b->second->shape[1] % step != 0) return false;
      if (leaf == kScales) return true;
      blocks = b->second, scales = s->second;
    } else if (!is_plain_float(t) || parts % step != 0 || rank != (leaf.empty() ? 3u : 2u) ||
               (!leaf.empty() && leaf != "_bias")) {
      return false;
    }
    for (int64_t e = 0; e < t.shape[0]; ++e)
      for (int64_t i = 0; i < step; ++i) {
        const Share share{e, static_cast<uint64_t>(i), static_cast<uint64_t>(step)};
        CheckpointTensor one = scales      ? blocks_of(*blocks, *scales, share)
                               : rank == 3 ? columns_of(t, share)
                                           : numbers_of(t, share);
        const std::string_view part = !both ? "down" : i == 0 ? "gate" : "up";
        one.name = fmt::format("{}.{}.{}_proj.{}", t.name.substr(0, dot), e, part, leaf == "_bias" ? "bias" : "weight");
        one.file_name = fmt::format("{}[{}, {}::{}]", t.file_name, e, i, step);
        out.push_back(std::move(one));
      }
    return true;
  }

 private:
  static constexpr std::string_view kBias = ".gate_up_proj_bias", kScales = "_scales", kBlocks = "_blocks";
  std::set<std::string, std::less<>> scopes_;
  std::map<std::string, const CheckpointTensor*, std::less<>> scales_, blocks_;
};

// The scopes whose two stacks are [experts, N, 2 I] and [experts, I, N], and not [experts, 2 I, N] and [experts, N, I].
// Shapes tell, but for N = 2 I, which no published model has.
std::set<std::string, std::less<>> turned_scopes(const std::vector<CheckpointTensor>& tensors) {
  std::map<std::string, const CheckpointTensor*, std::less<>> both;
  std::set<std::string, std::less<>> out;
  const auto is_stack = [](const CheckpointTensor& t) { return t.shape.size() == 3 && is_plain_float(t); };
  for (const CheckpointTensor& t : tensors)
    if (const auto name = stack_name(t.name); name && name->second == "gate_up_proj" && is_stack(t))
      both.emplace(name->first, &t);
  for (const CheckpointTensor& t : tensors) {
    const auto name = stack_name(t.name);
    if (!name || name->second != "down_proj" || !is_stack(t)) continue;
    const auto at = both.find(name->first);
    if (at == both.end()) continue;
    const auto &g = at->second->shape, &d = t.shape;
    const bool usual = g[1] == 2 * d[2] && g[2] == d[1], turned = g[2] == 2 * d[1] && g[1] == d[2];
    if (turned && !usual) out.emplace(name->first);
  }
  return out;
}

}  // namespace

std::vector<CheckpointTensor> with_single_experts(std::vector<CheckpointTensor> tensors, const Families& families) {
  std::vector<CheckpointTensor> out;
  out.reserve(tensors.size());
  const auto names = rules_of(families);
  for (CheckpointTensor& t : tensors) {
    rename_text_model(t.name);
    for (const auto& rules : names)
      for (const NameRule& r : rules)
        if (const size_t at = place_of(r, t.name, t.file_name); at != std::string::npos)
          t.name.replace(at, r.from.size(), r.to);
  }
  const AlternatingStacks alternating(tensors);
  const auto turned = turned_scopes(tensors);
  for (CheckpointTensor& t : tensors) {
    if (alternating.take(t, out) || take_biases(t, out)) continue;
    const auto name = stack_name(t.name);
    const bool whole = name && t.shape.size() == 3 && t.shape[0] > 0 && t.shape[0] <= kMaxExperts && t.rows() > 0 &&
                       t.bytes % static_cast<uint64_t>(t.rows()) == 0;
    const bool both = whole && name->second == "gate_up_proj", turns = whole && turned.contains(name->first);
    const int64_t rows_of_all = whole ? t.shape[turns ? 2 : 1] : 0;
    if (!whole || (both && rows_of_all % 2 != 0)) {
      out.push_back(std::move(t));
      continue;
    }
    const std::string_view scope = name->first;
    const int64_t rows = both ? rows_of_all / 2 : rows_of_all;
    const auto part = turns ? turned_of : slice_of;
    for (int64_t e = 0; e < t.shape[0]; ++e) {
      out.push_back(part(t, scope, e, both ? "gate_proj" : name->second, 0, rows));
      if (both) out.push_back(part(t, scope, e, "up_proj", rows, rows));
    }
  }
  return out;
}

}  // namespace reprise::checkpoint
