#include "weights/loader.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "base/hooks.h"
#include "base/progress.h"
#include "checkpoint/fit_to_tensors.h"
#include "weights/load_recipes.h"

namespace reprise::weights {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;  // per read: small enough for the cache, large enough to stream

// One part of a parameter and where it goes: its rows begin at row `row`. A vector counts as one column of rows here,
// so that vectors can be packed one after another as matrices are.
struct Source {
  size_t param = 0;
  ParamPart part;
  int64_t row = 0;
};

struct Block {
  size_t source = 0;
  RowBlock rows;
};

Result<std::vector<Source>> find_sources(std::span<const ParamPlan> params, const LoadOptions& options) {
  std::unordered_map<std::string_view, const DerivedParam*> derived;
  for (const DerivedParam& p : options.derived) derived[p.name] = &p;
  std::vector<Source> out;
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t rows = rows_of(params[i].type.shape);
    const auto it = derived.find(params[i].name);
    int64_t row = 0;
    for (const ParamPart& part :
         it == derived.end() ? parts_of_name(params[i].name, params[i].type.shape) : it->second->parts) {
      out.push_back({i, part, row});
      row += part.rows;
    }
    if (row != rows)
      return error(Code::Internal, "parameter {} has {} rows, its parts have {}", params[i].name, rows, row);
  }
  return out;
}

// Newer GGUF files have kv_b_proj of latent attention in two tensors, each as it is folded: matrix after matrix, those
// of the keys transposed.
void use_halves(const checkpoint::Checkpoint& checkpoint, std::span<const ParamPlan> params, Source& s) {
  constexpr std::string_view kWhole = ".kv_b_proj.weight";
  if (s.part.of == 0 || !s.part.tensor.ends_with(kWhole) || checkpoint.find(s.part.tensor)) return;
  const bool keys = s.part.recipe == Recipe::Transposed;
  const std::string half =
      s.part.tensor.substr(0, s.part.tensor.size() - kWhole.size()) + (keys ? ".k_b_proj.weight" : ".v_b_proj.weight");
  if (!checkpoint.find(half)) return;
  // The halves have as many matrices as the whole has groups of rows.
  const int64_t each = s.part.all_rows(),
                matrices = checkpoint.find(half)->elements() / (each * width_of(params[s.param].type.shape));
  if (matrices < 1 || s.part.of % matrices != 0) return;  // the check of its shape tells
  ParamPart part{.tensor = half, .rows = s.part.rows, .from = s.part.from, .whole = s.part.whole};
  part.first = s.part.first / (s.part.of / matrices) * each;
  part.of = matrices * each;
  s.part = std::move(part);
}

std::vector<Block> cut_into_blocks(std::span<const Source> sources, std::span<const ParamPlan> params) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Source& s = sources[i];
    const ParamPlan& param = params[s.param];
    const size_t cost = row_cost(param, s.part);
    // Whole panels of 64 rows where possible, so that threads do not share cache lines of a packed panel.
    int64_t step = static_cast<int64_t>(std::max<size_t>(1, kBlockBytes / cost));
    const bool small = param.type.shape.rank() == 1 && cost == size_of(param.type.dtype);
    step = small ? std::max<int64_t>(1, s.part.rows) : std::max<int64_t>(64, step / 64 * 64);
    for (int64_t r = 0; r < s.part.rows; r += step) blocks.push_back({i, {r, std::min(step, s.part.rows - r)}});
  }
  return blocks;
}

// Runs `work` on every block from several threads; the first error stops all.
Status for_each_block(std::span<const Source> sources, std::span<const ParamPlan> params, const LoadOptions& options,
                      const char* title,
                      const std::function<Status(const Block&, std::vector<uint8_t>& scratch)>& work) {
  const std::vector<Block> blocks = cut_into_blocks(sources, params);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status failure;
  uint64_t total = 0;
  for (auto& p : params) total += p.bytes;
  Progress progress(title, total, options.progress);
  auto run = [&] {
    std::vector<uint8_t> scratch;
    for (size_t i; (i = next.fetch_add(1)) < blocks.size();) {
      const Block& b = blocks[i];
      const Source& source = sources[b.source];
      const ParamPlan& param = params[source.param];
      const int64_t width = width_of(param.type.shape);
      Status s = work(b, scratch);
      std::lock_guard lock(mutex);
      progress.advance(static_cast<size_t>(b.rows.count * width) * size_of(param.type.dtype), param.name);
      if (progress.given_up()) s = Status(Code::Cancelled, "loading was given up");
      if (!s.is_ok()) {
        if (failure.is_ok()) failure = std::move(s);
        next.store(blocks.size());
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < options.threads; ++t) threads.push_back(start_thread("load", run));
  run();
  for (auto& t : threads) t.join();
  return failure;
}

std::string list(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string out;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) out += fmt::format("{}{}", i ? ", " : "", names[i]);
  if (names.size() > kShown) out += fmt::format(" and {} more", names.size() - kShown);
  return out;
}

// Tensors that checkpoints carry and no forward function reads.
bool ignorable(const std::string& name, const LoadOptions& options) {
  return name.ends_with("rotary_emb.inv_freq") || name == "rope_freqs.weight" || name.starts_with("rope_factors_") ||
         (options.tied_head && name == "lm_head.weight") || options.known.contains(name);
}

Status check_names(const checkpoint::Checkpoint& checkpoint, std::span<const Source> sources,
                   std::span<const ParamPlan> params, const LoadOptions& options) {
  std::vector<std::string> missing, left;
  std::unordered_set<std::string> wanted;
  for (const Source& s : sources) {
    bool complete = true;
    for (const std::string& name : tensors_of(s.part)) {
      const bool first = wanted.insert(name).second;
      if (checkpoint.find(name)) continue;
      complete = false;
      if (first) missing.push_back(name);
    }
    if (complete) RETURN_IF_ERROR(check_part(checkpoint, params[s.param], s.part));
  }
  for (const DerivedParam& p : options.derived)
    for (const ParamPart& part : p.parts)
      if (p.elsewhere)
        for (std::string& name : tensors_of(part)) wanted.insert(std::move(name));
  for (auto& t : checkpoint.tensors())
    if (!wanted.contains(t.name) && !ignorable(t.name, options)) left.push_back(t.name);
  if (missing.empty() && left.empty()) return Status::ok();
  std::string message = fmt::format("{}: the tensors do not match the configuration:", checkpoint.source());
  if (!missing.empty()) message += fmt::format(" {} missing ({})", missing.size(), list(missing));
  if (!missing.empty() && !left.empty()) message += ";";
  if (!left.empty()) message += fmt::format(" {} left over ({})", left.size(), list(left));
  const auto behind = std::count_if(left.begin(), left.end(), [&](const std::string& name) {
    return options.layers > 0 && checkpoint::layer_name(name).layer >= options.layers;
  });
  if (behind > 0)
    message += fmt::format(
        "; {} of them are of layers behind num_hidden_layers {}, which num_nextn_predict_layers {} does "
        "not explain",
        behind, options.layers, options.nextn_layers);
  return Status(Code::Invalid, std::move(message));
}

}  // namespace

Status load_params(const checkpoint::Checkpoint& checkpoint, ParamStore& params, const LoadOptions& options) {
  const auto plans = params.params();
  ASSIGN_OR_RETURN(auto sources, find_sources(plans, options));
  for (Source& s : sources) use_halves(checkpoint, plans, s);
  RETURN_IF_ERROR(check_names(checkpoint, sources, plans, options));
  std::vector<std::atomic<int64_t>> rows_left(sources.size());
  std::vector<std::atomic<uint64_t>> non_finite(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) rows_left[i] = sources[i].part.rows;
  return for_each_block(
      sources, plans, options, "loading", [&](const Block& b, std::vector<uint8_t>& scratch) -> Status {
        const Source& s = sources[b.source];
        if (params.lent(s.param)) return Status::ok();
        uint64_t bad = 0;
        RETURN_IF_ERROR(make_rows(checkpoint, plans[s.param], s.part, b.rows, scratch, &bad));
        if (bad) non_finite[b.source] += bad;
        RETURN_IF_ERROR(params.pack_rows(s.param, scratch.data(), s.row + b.rows.first, b.rows.count));
        const bool last = rows_left[b.source].fetch_sub(b.rows.count) == b.rows.count;
        if (!last || s.part.tensor.empty()) return Status::ok();
        const checkpoint::CheckpointTensor& t = *checkpoint.find(s.part.tensor);
        checkpoint.release(t);
        return checkpoint.require_finite(t, non_finite[b.source]);
      });
}

Status fill_random(ParamStore& params, uint64_t seed, const LoadOptions& options) {
  const auto plans = params.params();
  ASSIGN_OR_RETURN(const auto sources, find_sources(plans, options));
  return for_each_block(sources, plans, options, "making random weights",
                        [&](const Block& b, std::vector<uint8_t>& scratch) {
                          const Source& s = sources[b.source];
                          if (params.lent(s.param)) return Status::ok();
                          random_rows(plans[s.param], s.part, b.rows, seed, scratch);
                          return params.pack_rows(s.param, scratch.data(), s.row + b.rows.first, b.rows.count);
                        });
}

}  // namespace reprise::weights
