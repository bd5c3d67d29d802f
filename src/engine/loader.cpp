#include "engine/loader.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "base/half.h"
#include "base/progress.h"

namespace reprise::engine {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;  // per read: small enough for the cache, large enough to stream

// One tensor of the checkpoint and where it goes: rows [row, row + rows) of a parameter. A vector counts as one
// column of rows here, so that vectors can be packed one after another as matrices are.
struct Source {
  size_t param = 0;
  std::string name;
  int64_t row = 0, rows = 0, width = 0;
};

struct Block {
  size_t source = 0;
  int64_t first = 0, count = 0;  // rows of the source
};

Result<std::vector<Source>> find_sources(std::span<const ParamPlan> params, const LoadOptions& options) {
  std::vector<Source> out;
  for (size_t i = 0; i < params.size(); ++i) {
    const bool vector = params[i].type.shape.rank() == 1;
    const int64_t rows = params[i].type.shape[0].factor, width = vector ? 1 : params[i].type.shape[1].factor;
    auto packed =
        std::find_if(options.packed.begin(), options.packed.end(), [&](auto& p) { return p.name == params[i].name; });
    if (packed == options.packed.end()) {
      out.push_back({i, params[i].name, 0, rows, width});
      continue;
    }
    int64_t row = 0;
    for (auto& part : packed->parts) {
      const int64_t n = packed->rows[static_cast<size_t>(&part - packed->parts.data())];
      out.push_back({i, part, row, n, width});
      row += n;
    }
    if (row != rows)
      return error(Code::Internal, "parameter {} has {} rows, its parts have {}", params[i].name, rows, row);
  }
  return out;
}

std::vector<Block> cut_into_blocks(std::span<const Source> sources, std::span<const ParamPlan> params) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Source& s = sources[i];
    const bool vector = params[s.param].type.shape.rank() == 1;
    const auto row_bytes = static_cast<size_t>(s.width) * size_of(params[s.param].type.dtype);
    // Whole panels of 64 rows where possible, so that threads do not share cache lines of a packed panel.
    int64_t step = static_cast<int64_t>(std::max<size_t>(1, kBlockBytes / row_bytes));
    step = vector ? s.rows : std::max<int64_t>(64, step / 64 * 64);
    for (int64_t r = 0; r < s.rows; r += step) blocks.push_back({i, r, std::min(step, s.rows - r)});
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
      const auto bytes = static_cast<size_t>(b.count * source.width) * size_of(params[source.param].type.dtype);
      scratch.resize(std::max(scratch.size(), bytes));
      Status s = work(b, scratch);
      std::lock_guard lock(mutex);
      progress.advance(bytes, source.name);
      if (!s.is_ok()) {
        if (failure.is_ok()) failure = std::move(s);
        next.store(blocks.size());
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < options.threads; ++t) threads.emplace_back(run);
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
  return name.ends_with("rotary_emb.inv_freq") || name == "rope_freqs.weight" ||
         (options.tied_head && name == "lm_head.weight");
}

Status check_names(const checkpoint::Checkpoint& checkpoint, std::span<const Source> sources,
                   std::span<const ParamPlan> params, const LoadOptions& options) {
  std::vector<std::string> missing, left;
  std::unordered_set<std::string> wanted;
  for (const Source& s : sources) {
    wanted.insert(s.name);
    const checkpoint::CheckpointTensor* t = checkpoint.find(s.name);
    if (!t) {
      missing.push_back(s.name);
      continue;
    }
    std::vector<int64_t> shape{s.rows};
    if (params[s.param].type.shape.rank() == 2) shape.push_back(s.width);
    if (t->shape != shape)
      return invalid("{}: tensor {} has the shape [{}], the configuration asks for [{}]", checkpoint.source(), s.name,
                     fmt::join(t->shape, ", "), fmt::join(shape, ", "));
  }
  for (auto& t : checkpoint.tensors())
    if (!wanted.contains(t.name) && !ignorable(t.name, options)) left.push_back(t.name);
  if (missing.empty() && left.empty()) return Status::ok();
  std::string message = fmt::format("{}: the tensors do not match the configuration:", checkpoint.source());
  if (!missing.empty()) message += fmt::format(" {} missing ({})", missing.size(), list(missing));
  if (!missing.empty() && !left.empty()) message += ";";
  if (!left.empty()) message += fmt::format(" {} left over ({})", left.size(), list(left));
  return Status(Code::Invalid, std::move(message));
}

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t hash_name(std::string_view name) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325u;
  for (char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return h;
}

void store(DType dtype, void* out, int64_t i, float v) {
  switch (dtype) {
    case DType::BF16: static_cast<uint16_t*>(out)[i] = float_to_bf16(v); break;
    case DType::F16: static_cast<uint16_t*>(out)[i] = float_to_half(v); break;
    default: static_cast<float*>(out)[i] = v; break;
  }
}

}  // namespace

Status load_params(const checkpoint::Checkpoint& checkpoint, ParamStore& params, const LoadOptions& options) {
  const auto plans = params.params();
  ASSIGN_OR_RETURN(const auto sources, find_sources(plans, options));
  RETURN_IF_ERROR(check_names(checkpoint, sources, plans, options));
  std::vector<std::atomic<int64_t>> rows_left(sources.size());
  std::vector<std::atomic<uint64_t>> non_finite(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) rows_left[i] = sources[i].rows;
  return for_each_block(
      sources, plans, options, "loading", [&](const Block& b, std::vector<uint8_t>& scratch) -> Status {
        const Source& s = sources[b.source];
        const TensorType& type = plans[s.param].type;
        const checkpoint::CheckpointTensor& t = *checkpoint.find(s.name);
        uint64_t bad = 0;
        const bool vector = type.shape.rank() == 1;  // a checkpoint's vector is one row
        RETURN_IF_ERROR(
            checkpoint.read_rows(t, vector ? 0 : b.first, vector ? 1 : b.count, type.dtype, scratch.data(), &bad));
        if (bad) non_finite[b.source] += bad;
        params.pack_rows(s.param, scratch.data(), s.row + b.first, b.count);
        if (rows_left[b.source].fetch_sub(b.count) == b.count) {
          checkpoint.release(t);
          return checkpoint.require_finite(t, non_finite[b.source]);
        }
        return Status::ok();
      });
}

Status fill_random(ParamStore& params, uint64_t seed, const LoadOptions& options) {
  const auto plans = params.params();
  ASSIGN_OR_RETURN(const auto sources, find_sources(plans, options));
  return for_each_block(sources, plans, options, "making random weights",
                        [&](const Block& b, std::vector<uint8_t>& scratch) {
                          const Source& s = sources[b.source];
                          const TensorType& type = plans[s.param].type;
                          const uint64_t key = mix(seed) ^ hash_name(s.name);
                          const bool matrix = type.shape.rank() == 2;
                          const bool norm = !matrix && s.name.find("norm") != std::string::npos;
                          const float amplitude = matrix ? std::sqrt(3.0f / static_cast<float>(s.width)) : 0.1f;
                          const float centre = norm ? 1.0f : 0.0f;
                          for (int64_t i = 0; i < b.count * s.width; ++i) {
                            const uint64_t bits = mix(key + static_cast<uint64_t>(b.first * s.width + i));
                            const float u = static_cast<float>(bits >> 40) * (2.0f / 16777216.0f) - 1.0f;
                            store(type.dtype, scratch.data(), i, centre + amplitude * u);
                          }
                          params.pack_rows(s.param, scratch.data(), s.row + b.first, b.count);
                          return Status::ok();
                        });
}

}  // namespace reprise::engine
