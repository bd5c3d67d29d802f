#include "verify/traffic.h"

#include <xxhash.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "models/model.h"

namespace reprise::apps {
namespace {

using engine::Engine;
using engine::Sequence;
using engine::StepItem;

constexpr size_t kKept = 4;  // rows of logits kept to say how large a difference is

// The sequences of one run; their pages go back at the end.
struct TrafficBatch {
  TrafficBatch(Engine& e, int64_t size) : engine(e), seed(static_cast<uint32_t>(size) * 2654435761u + 1) {
    for (int64_t i = 0; i < size; ++i) {
      std::vector<int32_t> prompt(static_cast<size_t>(1 + (i * 5) % 11));
      for (auto& t : prompt) t = token();
      sequences.emplace_back(std::move(prompt));
    }
  }
  ~TrafficBatch() {
    for (auto& s : sequences) engine.release(s);
  }
  Status reserve(int64_t more) {
    for (auto& s : sequences) RETURN_IF_ERROR(engine.reserve(s, s.size() + more));
    return Status::ok();
  }
  int32_t token() {
    seed = seed * 1664525u + 1013904223u;
    return static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(engine.config().vocab_size));
  }
  Engine& engine;
  uint32_t seed;
  std::vector<Sequence> sequences;
};

uint64_t hash_of(std::span<const float> row) { return XXH3_64bits(row.data(), row.size_bytes()); }

void keep(Outcome& out, std::span<const float> row, const Outcome* expected) {
  const size_t index = out.rows.size();
  out.rows.push_back(hash_of(row));
  if (!expected || (index < expected->rows.size() && expected->rows[index] == out.rows.back())) return;
  out.differing.push_back(index);
  if (out.differing.size() <= kKept) out.logits.insert(out.logits.end(), row.begin(), row.end());
}

// One step of these items; every row it returns.
Status step(Engine& e, std::span<const StepItem> items, bool greedy, Outcome& out, const Outcome* expected) {
  if (greedy) {
    ASSIGN_OR_RETURN(auto next, e.step_greedy(items));
    for (const int32_t id : next) {
      const auto as_float = static_cast<float>(id);
      keep(out, {&as_float, 1}, expected);
    }
    return Status::ok();
  }
  ASSIGN_OR_RETURN(auto logits, e.step(items));
  const auto vocab = static_cast<size_t>(e.config().vocab_size);
  for (size_t r = 0; r * vocab < logits.size(); ++r) keep(out, logits.subspan(r * vocab, vocab), expected);
  return Status::ok();
}

// Everything uncached of one sequence, `chunk` tokens at a time; the last step gives the row.
Status feed(Engine& e, Sequence& s, int64_t chunk, bool greedy, Outcome& out, const Outcome* expected) {
  while (s.uncached() > 0) {
    const int64_t count = std::min(chunk, s.uncached());
    const StepItem item{&s, count, count == s.uncached(), false};
    RETURN_IF_ERROR(step(e, {&item, 1}, greedy, out, expected));
  }
  return Status::ok();
}

}  // namespace

Result<Outcome> run_traffic(Engine& e, const TrafficOptions& o, const Outcome* expected) {
  TrafficBatch b(e, o.batch);
  RETURN_IF_ERROR(b.reserve(o.decode_steps));
  Outcome out;
  for (int i = 0; i <= o.decode_steps; ++i) {
    if (o.feed == Feed::Together) {
      std::vector<StepItem> items;
      for (auto& s : b.sequences) items.push_back({&s, s.uncached(), true, false});
      RETURN_IF_ERROR(step(e, items, o.greedy, out, expected));
    } else {
      for (auto& s : b.sequences)
        RETURN_IF_ERROR(feed(e, s, o.feed == Feed::Chunked ? 3 : s.uncached(), o.greedy, out, expected));
    }
    for (auto& s : b.sequences) s.append(b.token());
  }
  return out;
}

engine::StepHook poison() {
  return [](const engine::StagedStep& s) {
    s.fill(s.arena.data(), 0xff, s.arena.size());  // NaN in every floating dtype
    const auto& shape = s.pool.shape();
    for (size_t c = 0; c < shape.caches.size(); ++c) s.fill(s.pool.cache(c), 0xff, shape.caches[c].page_bytes);
    const auto& b = s.stage.buffers();
    const auto rows = static_cast<size_t>(s.live.value[models::kTokens]);
    for (size_t i = rows; i < b.tokens.size(); ++i) {
      b.tokens[i] = static_cast<int32_t>(i % 17);
      b.positions[i] = static_cast<int32_t>(i % 23);
    }
    const auto wanted = static_cast<size_t>(s.live.value[models::kLogitRows]);
    for (size_t i = wanted; rows > 0 && i < s.stage.last_rows().size(); ++i)
      s.stage.last_rows()[i] = static_cast<int32_t>(i % rows);
  };
}

Result<VerifyCase> load_case(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, size_t{256} << 20));
  ASSIGN_OR_RETURN(const Json file, parse_json(text, path));
  const auto list = file.find("sequences");
  if (!file.is_object() || list == file.end() || !list->is_array() || list->empty())
    return invalid("{}: not a replay report: it has no list \"sequences\"", path);
  VerifyCase out;
  for (const Json& s : *list) {
    VerifyCase::Part part;
    const bool ok = s.is_object() && s.contains("tokens") && s["tokens"].is_array() && s.contains("cached") &&
                    s["cached"].is_number_unsigned() && s.contains("count") && s["count"].is_number_unsigned();
    if (!ok) return invalid("{}: a sequence is not of the form {{tokens: [..], cached: n, count: n}}", path);
    for (const Json& t : s["tokens"]) {
      if (!t.is_number_integer()) return invalid("{}: token {} is not a number", path, t.dump());
      part.tokens.push_back(t.get<int32_t>());
    }
    part.cached = s["cached"].get<int64_t>();
    part.count = s["count"].get<int64_t>();
    part.all = s.value("logits", "last") == "all";
    if (part.count < 1 || part.cached + part.count > static_cast<int64_t>(part.tokens.size()))
      return invalid("{}: {} cached and {} computed tokens of {}", path, part.cached, part.count, part.tokens.size());
    out.sequences.push_back(std::move(part));
  }
  return out;
}

Result<Outcome> run_case(Engine& e, const VerifyCase& c, const Outcome* expected) {
  std::vector<Sequence> sequences;
  for (const auto& part : c.sequences)
    sequences.emplace_back(std::vector<int32_t>(part.tokens.begin(), part.tokens.begin() + part.cached + part.count));
  Outcome out;
  auto run = [&]() -> Status {
    std::vector<StepItem> items;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = sequences[i];
      RETURN_IF_ERROR(e.reserve(s, s.size()));
      while (s.cached() < c.sequences[i].cached) {
        const StepItem item{&s, std::min(e.max_step_tokens(), c.sequences[i].cached - s.cached()), false, false};
        RETURN_IF_ERROR(e.step({&item, 1}).status());
      }
      items.push_back({&s, c.sequences[i].count, true, c.sequences[i].all});
    }
    return step(e, items, false, out, expected);
  };
  const Status done = run();
  for (auto& s : sequences) e.release(s);
  if (!done.is_ok()) return done;
  return out;
}

}  // namespace reprise::apps
