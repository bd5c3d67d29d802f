#include "engine/replay_check.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/half.h"
#include "models/model.h"

namespace reprise::engine {
namespace {

size_t bytes_of(const TensorView& v) { return static_cast<size_t>(v.elements()) * size_of(v.dtype); }

double number_at(DType t, const uint8_t* bytes, size_t i) {
  switch (t) {
    case DType::F32: {
      float f;
      std::memcpy(&f, bytes + 4 * i, 4);
      return f;
    }
    case DType::I32: {
      int32_t v;
      std::memcpy(&v, bytes + 4 * i, 4);
      return v;
    }
    case DType::BF16:
    case DType::F16: {
      uint16_t h;
      std::memcpy(&h, bytes + 2 * i, 2);
      return t == DType::BF16 ? bf16_to_float(h) : half_to_float(h);
    }
    default: return 0;
  }
}

void compare_output(std::string_view name, const TensorView& replayed, const TensorView& expected, const uint8_t* bytes,
                    ReplayDifference& d) {
  const auto* r = static_cast<const uint8_t*>(replayed.data);
  const size_t unit = size_of(expected.dtype);
  const auto columns = static_cast<size_t>(expected.rank > 1 ? expected.size[expected.rank - 1] : 1);
  for (size_t i = 0; i < static_cast<size_t>(expected.elements()); ++i) {
    if (std::memcmp(r + i * unit, bytes + i * unit, unit) == 0) continue;
    const double a = number_at(expected.dtype, r, i), b = number_at(expected.dtype, bytes, i);
    if (d.what.empty())
      d.what = fmt::format("{} row {} column {}: replay {}, eager {}", name, i / columns, i % columns, a, b);
    ++d.elements;
    const double gap = std::fabs(a - b);
    if (!(gap <= d.max_abs_diff)) d.max_abs_diff = gap;
  }
}

// Whether the node's results are where an output lies.
bool gives(const Node& n, std::string_view output) {
  return std::any_of(n.out.begin(), n.out.end(), [&](const auto& v) {
    return std::find(v->outputs.begin(), v->outputs.end(), output) != v->outputs.end();
  });
}

bool writes_cache(const Node& n, const std::string& name) {
  for (size_t i = 0; i < n.in.size() && i < n.op->operands.size(); ++i) {
    const Node* root = storage_root(n.in[i])->def;
    if (n.op->operands[i].mutated && root->is_input() && root->attrs.text("name") == name) return true;
  }
  return false;
}

// The last launch that does so.
template <typename Writes>
void name_writer(const CompiledModel& model, const Writes& writes, ReplayDifference& d) {
  for (const Piece& piece : model.pieces())
    for (const Thunk& t : piece.thunks)
      if (const Node* n = model.node(t.node); n && writes(*n)) d.op = n->op->name, d.node = t.node;
}

}  // namespace

std::string ReplayDifference::text() const {
  return Json{{"what", what}, {"max_abs_diff", max_abs_diff}, {"elements", elements}, {"fusion", fusion}, {"op", op},
              {"node", node}}
      .dump();
}

Result<ReplayDifference> ReplayDifference::parse(std::string_view text, int rank) {
  ASSIGN_OR_RETURN(const Json j, parse_json(text, fmt::format("rank {}", rank)));
  ReplayDifference d;
  try {
    d.what = j.at("what").get<std::string>();
    // A difference that is no number has none in JSON either.
    d.max_abs_diff = j.at("max_abs_diff").is_null() ? std::nan("") : j.at("max_abs_diff").get<double>();
    d.elements = j.at("elements").get<uint64_t>();
    d.fusion = j.at("fusion").get<bool>();
    d.op = j.at("op").get<std::string>();
    d.node = j.at("node").get<int64_t>();
  } catch (const Json::exception& e) {
    return error(Code::Internal, "what rank {} says of a replay: {}", rank, e.what());
  }
  d.rank = rank;
  return d;
}

Result<std::optional<ReplayDifference>> ReplayDifference::first_of(std::span<const std::string> found) {
  std::optional<ReplayDifference> first;
  std::vector<size_t> more;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank].empty()) continue;
    if (first) {
      more.push_back(rank);
      continue;
    }
    ASSIGN_OR_RETURN(first, parse(found[rank], static_cast<int>(rank)));
  }
  if (!more.empty()) first->what += fmt::format("; rank {} differs too", fmt::join(more, ", "));
  return first;
}

StepPlaces places_of(std::span<const StepItem> items) {
  StepPlaces out;
  for (const StepItem& item : items) {
    const auto pages = std::span(item.sequence->pages());
    const auto used = static_cast<size_t>(kv::pages_for(item.sequence->cached() + item.count));
    out.pages.insert(out.pages.end(), pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(used));
    if (item.sequence->states()) out.slots.push_back(item.sequence->states().next());
  }
  return out;
}

Result<StepPlaces> staged_places(const StepStage& stage, const LiveSizes& live, const PoolSizes& pools) {
  StepPlaces out;
  const auto lens = stage.ints(models::kLengthsInput), table = stage.ints(models::kPageTableInput),
             slots = stage.ints(models::kStateWriteInput);
  const auto rows = static_cast<size_t>(live.value[models::kSequences]);
  if (!table.empty()) {
    const size_t columns = table.size() / lens.size();
    if (rows > lens.size()) return error(Code::Internal, "{} sequences in a step of {}", rows, lens.size());
    for (size_t r = 0; r < rows; ++r) {
      const auto used = static_cast<size_t>(kv::pages_for(lens[r]));
      if (used > columns) return error(Code::Internal, "{} pages in a table of {}", used, columns);
      for (const int32_t page : table.subspan(r * columns, used)) {
        if (page < 1 || page > pools.pages) return error(Code::Internal, "page {} of {}", page, pools.pages);
        out.pages.push_back(page);
      }
    }
  }
  for (const int32_t slot : slots.first(std::min(rows, slots.size()))) {
    if (slot < 0 || slot >= pools.slots) return error(Code::Internal, "slot {} of {}", slot, pools.slots);
    out.slots.push_back(slot);
  }
  return out;
}

Result<std::vector<uint64_t>> ReplayCheck::digest(const StepCaches& caches, Stream& stream) {
  std::vector<uint64_t> out;
  const auto add = [&](void* data, size_t bytes, uint64_t& hash) -> Status {
    ASSIGN_OR_RETURN(const void* here, copy_.fetch(device(), stream, data, bytes));
    hash = XXH3_64bits_withSeed(here, bytes, hash);
    return Status::ok();
  };
  const auto& [pool, states] = caches;
  for (size_t c = 0; c < pool.shape().caches.size(); ++c) {
    uint64_t hash = 0;
    for (const kv::PageId page : places_.pages)
      RETURN_IF_ERROR(add(pool.page(c, page), pool.shape().caches[c].page_bytes, hash));
    out.push_back(hash);
  }
  for (size_t c = 0; c < states.caches().size(); ++c) {
    uint64_t hash = 0;
    for (const kv::SlotId slot : places_.slots)
      RETURN_IF_ERROR(add(states.slot(c, slot), states.caches()[c].slot_bytes, hash));
    out.push_back(hash);
  }
  return out;
}

Result<std::vector<ReplayCheck::Expected>> ReplayCheck::outputs_of(const CompiledModel& model, StepOutput output,
                                                                   Stream& stream) {
  std::vector<Expected> out;
  for (auto& o : model.graph().outputs()) {
    if ((model.heads_of_output(o.name) & head_of(output)) == 0) continue;
    ASSIGN_OR_RETURN(const TensorView v, model.output(o.name));
    ASSIGN_OR_RETURN(void* data, copy_.fetch(device(), stream, v.data, bytes_of(v)));
    const auto* begin = static_cast<const uint8_t*>(data);
    out.push_back({o.name, v, {begin, begin + bytes_of(v)}});
  }
  return out;
}

Status ReplayCheck::begin(CheckRun run, std::span<const StepItem> items, const PoolSizes& pools, StepStage& stage,
                          const CheckLaunch& launch) const {
  ASSIGN_OR_RETURN(const LiveSizes live, stage.fill(items, pools));
  run.unfused = true;
  run.keep = CheckRun::Keep::Unfused;
  if (!bound().exact()) RETURN_IF_ERROR(launch(run, live));
  run.unfused = bound().exact();
  run.keep = CheckRun::Keep::Expected;
  RETURN_IF_ERROR(launch(run, live));
  // Other tokens, so that what this step must write is wrong until the replay has written it.
  for (int32_t& token : stage.ints(models::kTokensInput).first(static_cast<size_t>(live.value[models::kTokens])))
    token = token > 0 ? token - 1 : 1;
  run.keep = CheckRun::Keep::Nothing;
  RETURN_IF_ERROR(launch(run, live));
  return stage.fill(items, pools).status();
}

Status ReplayCheck::keep(CheckRun::Keep as, const CompiledModel& model, StepOutput output, StepPlaces places,
                         const StepCaches& caches, Stream& stream) {
  // What is computed anew leaves a state in another slot than before.
  places_ = std::move(places);
  if (as == CheckRun::Keep::Nothing) return Status::ok();
  ASSIGN_OR_RETURN(auto outputs, outputs_of(model, output, stream));
  if (as == CheckRun::Keep::Unfused) {
    unfused_ = std::move(outputs);
    return Status::ok();
  }
  outputs_ = std::move(outputs);
  ASSIGN_OR_RETURN(left_, digest(caches, stream));
  return Status::ok();
}

Result<std::optional<ReplayDifference>> ReplayCheck::compare(const CompiledModel& replayed, const StepCaches& caches,
                                                             Stream& stream) {
  ReplayDifference d;
  for (const Expected& e : outputs_) {
    ASSIGN_OR_RETURN(TensorView v, replayed.output(e.name));
    ASSIGN_OR_RETURN(v.data, copy_.fetch(device(), stream, v.data, bytes_of(v)));
    const bool first = d.what.empty();
    compare_output(e.name, v, e.view, e.bytes.data(), d);
    if (first && !d.what.empty())
      name_writer(
          replayed, [&](const Node& n) { return gives(n, e.name); }, d);
  }
  ASSIGN_OR_RETURN(const std::vector<uint64_t> left, digest(caches, stream));
  const auto& paged = caches.pool.shape().caches;
  for (size_t c = 0; c < left.size(); ++c) {
    if (left[c] == left_[c]) continue;
    ++d.elements;
    const std::string& name = c < paged.size() ? paged[c].name : caches.states.caches()[c - paged.size()].name;
    if (!d.what.empty()) continue;
    d.what = fmt::format("{}: the replay left something else in this cache", name);
    name_writer(
        replayed, [&](const Node& n) { return writes_cache(n, name); }, d);
  }
  if (d.elements == 0) {
    d.what = judge_fusions();
    d.fusion = !d.what.empty();
    if (!d.fusion) return std::optional<ReplayDifference>();
  }
  return std::optional<ReplayDifference>(std::move(d));
}

std::string ReplayCheck::judge_fusions() {
  const int64_t before = fusions_.outside();
  for (const Expected& fused : outputs_) {
    const auto plain = std::find_if(unfused_.begin(), unfused_.end(), [&](auto& e) { return e.name == fused.name; });
    if (plain == unfused_.end() || fused.view.rank != 2 || (fused.name != "logits" && fused.name != "hidden")) continue;
    const auto width = static_cast<size_t>(fused.view.size[1]);
    std::vector<float> row(width), reference(width);
    for (size_t r = 0; r < static_cast<size_t>(fused.view.size[0]); ++r) {
      for (size_t i = 0; i < width; ++i) {
        row[i] = static_cast<float>(number_at(fused.view.dtype, fused.bytes.data(), r * width + i));
        reference[i] = static_cast<float>(number_at(plain->view.dtype, plain->bytes.data(), r * width + i));
      }
      fusions_.add(row_distance(row, reference));
    }
  }
  // Rows that were routed otherwise are only known by how many they are.
  const bool fine = bound().routes ? fusions_.holds() : fusions_.outside() == before;
  return fine ? std::string() : fusions_.words();
}

Status ReplayCheck::recover(const CheckRun& step, std::span<const StepItem> items, const PoolSizes& pools,
                            int64_t chunk, StepStage& stage, const CheckLaunch& launch) {
  CheckRun prefill = step;
  prefill.phase = kAnyPhase;
  prefill.size = 1;
  for (const StepItem& item : items) {
    Sequence& s = *item.sequence;
    const int64_t cached = s.cached();
    s.restart();  // what was kept behind some of its tokens is not gone on from
    for (int64_t done = 0; done < cached;) {
      const int64_t count = std::min(chunk, cached - done);
      s.set_cached(done);
      StepItem chunk_of{&s, count};
      chunk_of.part = item.part;
      auto live = stage.fill({&chunk_of, 1}, pools);
      const Status ran = live.is_ok() ? launch(prefill, *live) : live.status();
      s.set_cached(cached);
      RETURN_IF_ERROR(ran);
      s.states().turn();
      done += count;
    }
  }
  ASSIGN_OR_RETURN(const LiveSizes live, stage.fill(items, pools));
  return launch(step, live);
}

Status ReplayCheck::rebind(const std::unordered_map<std::string, void*>& external) {
  for (auto& shadow : shadows_)
    if (shadow) RETURN_IF_ERROR(shadow->rebind(external));
  return Status::ok();
}

Result<std::string> write_replay_report(const std::string& folder, int64_t step, const OrderedJson& report) {
  const std::filesystem::path dir = folder.empty() ? "." : folder;
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  if (failed) return invalid("{}: {}", dir.string(), failed.message());
  const std::string path = (dir / fmt::format("replay-difference-{}-{}.json", ::getpid(), step)).string();
  RETURN_IF_ERROR(write_file_atomically(path, report.dump(1) + "\n"));
  return path;
}

}  // namespace reprise::engine
