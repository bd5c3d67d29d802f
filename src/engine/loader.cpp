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

int64_t rows_of(const TensorType& t) { return t.shape.rank() == 1 ? 1 : t.shape[0].factor; }
int64_t row_elements(const TensorType& t) { return t.shape.back().factor; }

struct Block {
  size_t param = 0;
  int64_t first = 0, count = 0;
};

std::vector<Block> cut_into_blocks(std::span<const ParamPlan> params) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t rows = rows_of(params[i].type);
    const auto row_bytes = static_cast<size_t>(row_elements(params[i].type)) * size_of(params[i].type.dtype);
    // Whole panels of 64 rows where possible, so that threads do not share cache lines of a packed panel.
    int64_t step = static_cast<int64_t>(std::max<size_t>(1, kBlockBytes / row_bytes));
    step = std::max<int64_t>(64, step / 64 * 64);
    for (int64_t r = 0; r < rows; r += step) blocks.push_back({i, r, std::min(step, rows - r)});
  }
  return blocks;
}

// Runs `work` on every block from several threads; the first error stops all.
Status for_each_block(std::span<const ParamPlan> params, const LoadOptions& options, const char* title,
                      const std::function<Status(const Block&, std::vector<uint8_t>& scratch)>& work) {
  const std::vector<Block> blocks = cut_into_blocks(params);
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
      const TensorType& type = params[b.param].type;
      const auto bytes = static_cast<size_t>(b.count * row_elements(type)) * size_of(type.dtype);
      scratch.resize(std::max(scratch.size(), bytes));
      Status s = work(b, scratch);
      std::lock_guard lock(mutex);
      progress.advance(bytes, params[b.param].name);
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

Status check_names(const checkpoint::Checkpoint& checkpoint, std::span<const ParamPlan> params,
                   const LoadOptions& options) {
  std::vector<std::string> missing, left;
  std::unordered_set<std::string> wanted;
  for (auto& p : params) {
    wanted.insert(p.name);
    const checkpoint::CheckpointTensor* t = checkpoint.find(p.name);
    if (!t) {
      missing.push_back(p.name);
      continue;
    }
    std::vector<int64_t> shape;
    for (Dim d : p.type.shape.dims()) shape.push_back(d.factor);
    if (t->shape != shape)
      return invalid("{}: tensor {} has the shape [{}], the configuration asks for [{}]", checkpoint.source(), p.name,
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
  RETURN_IF_ERROR(check_names(checkpoint, plans, options));
  std::vector<std::atomic<int64_t>> rows_left(plans.size());
  std::vector<std::atomic<uint64_t>> non_finite(plans.size());
  for (size_t i = 0; i < plans.size(); ++i) rows_left[i] = rows_of(plans[i].type);
  return for_each_block(plans, options, "loading", [&](const Block& b, std::vector<uint8_t>& scratch) -> Status {
    const ParamPlan& p = plans[b.param];
    const checkpoint::CheckpointTensor& t = *checkpoint.find(p.name);
    uint64_t bad = 0;
    RETURN_IF_ERROR(checkpoint.read_rows(t, b.first, b.count, p.type.dtype, scratch.data(), &bad));
    if (bad) non_finite[b.param] += bad;
    params.pack_rows(b.param, scratch.data(), b.first, b.count);
    if (rows_left[b.param].fetch_sub(b.count) == b.count) {
      checkpoint.release(t);
      return checkpoint.require_finite(t, non_finite[b.param]);
    }
    return Status::ok();
  });
}

Status fill_random(ParamStore& params, uint64_t seed, const LoadOptions& options) {
  const auto plans = params.params();
  return for_each_block(plans, options, "making random weights", [&](const Block& b, std::vector<uint8_t>& scratch) {
    const ParamPlan& p = plans[b.param];
    const int64_t width = row_elements(p.type);
    const uint64_t key = mix(seed) ^ hash_name(p.name);
    const bool norm = p.name.find("norm") != std::string::npos;
    const bool matrix = p.type.shape.rank() == 2;
    const float amplitude = matrix ? std::sqrt(3.0f / static_cast<float>(width)) : 0.1f;
    const float centre = norm && !matrix ? 1.0f : 0.0f;
    for (int64_t i = 0; i < b.count * width; ++i) {
      const uint64_t bits = mix(key + static_cast<uint64_t>(b.first * width + i));
      const float u = static_cast<float>(bits >> 40) * (2.0f / 16777216.0f) - 1.0f;
      store(p.type.dtype, scratch.data(), i, centre + amplitude * u);
    }
    params.pack_rows(b.param, scratch.data(), b.first, b.count);
    return Status::ok();
  });
}

}  // namespace reprise::engine
