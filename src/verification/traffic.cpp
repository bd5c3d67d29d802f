#include "verification/traffic.h"

#include <xxhash.h>

#include <algorithm>

#include "base/half.h"
#include "models/model.h"

namespace reprise::verification {
namespace {

using engine::Engine;
using engine::Sequence;
using engine::StepItem;

// Prompts that end around the border of a page, and their chunks.
constexpr int64_t kBorderPrompt = kv::kPageTokens - 2;
constexpr int64_t kChunk = 3, kBorderChunk = 50;
constexpr size_t kKept = 4;  // rows of logits kept to say how large a difference is

// The sequences of one run; their pages go back at the end.
struct TrafficBatch {
  TrafficBatch(Engine& e, int64_t size, bool borders) : engine(e), seed(static_cast<uint32_t>(size) * 2654435761u + 1) {
    for (int64_t i = 0; i < size; ++i) {
      std::vector<int32_t> prompt(static_cast<size_t>(borders ? kBorderPrompt + i : 1 + (i * 5) % 11));
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

void keep(Outcome& out, std::span<const float> row, const Outcome* expected, bool all) {
  const size_t index = out.rows.size();
  out.rows.push_back(hash_of(row));
  if (all) out.logits.insert(out.logits.end(), row.begin(), row.end());
  if (all || !expected || (index < expected->rows.size() && expected->rows[index] == out.rows.back())) return;
  out.differing.push_back(index);
  if (out.differing.size() <= kKept) out.logits.insert(out.logits.end(), row.begin(), row.end());
}

// The last step's hidden states, of the rows whose tokens were asked for.
Status keep_hidden(Engine& e, Outcome& out) {
  ASSIGN_OR_RETURN(const TensorView v, e.hidden_states());
  const auto* half = static_cast<const uint16_t*>(v.data);
  for (size_t i = 0; i < static_cast<size_t>(v.elements()); ++i)
    out.logits.push_back(v.dtype == DType::F32    ? static_cast<const float*>(v.data)[i]
                         : v.dtype == DType::BF16 ? bf16_to_float(half[i])
                                                  : half_to_float(half[i]));
  return Status::ok();
}

struct Keeping {
  Outcome& out;
  const Outcome* expected;
  bool greedy, all;
};

// One step of these items; every row it returns.
Status step(Engine& e, std::span<const StepItem> items, const Keeping& k) {
  if (k.greedy) {
    ASSIGN_OR_RETURN(auto next, e.step_greedy(items));
    for (const int32_t id : next) {
      const auto as_float = static_cast<float>(id);
      keep(k.out, {&as_float, 1}, k.all ? nullptr : k.expected, false);
    }
    return k.all ? keep_hidden(e, k.out) : Status::ok();
  }
  ASSIGN_OR_RETURN(auto logits, e.step(items));
  const auto vocab = static_cast<size_t>(e.config().vocab_size);
  for (size_t r = 0; r * vocab < logits.size(); ++r) keep(k.out, logits.subspan(r * vocab, vocab), k.expected, k.all);
  return Status::ok();
}

// Everything uncached of one sequence, `chunk` tokens at a time; the last step gives the row.
Status feed(Engine& e, Sequence& s, int64_t chunk, const Keeping& k) {
  while (s.uncached() > 0) {
    const int64_t count = std::min(chunk, s.uncached());
    const StepItem item{&s, count, count == s.uncached()};
    RETURN_IF_ERROR(step(e, {&item, 1}, k));
  }
  return Status::ok();
}

// The decode steps of the batch as one: its rows in the order of those steps, without those of drafts that are wrong.
Status verify(Engine& e, TrafficBatch& b, int steps, const Keeping& k) {
  std::vector<std::vector<int32_t>> drafts(b.sequences.size());
  for (int i = 0; i < steps; ++i)
    for (size_t s = 0; s < drafts.size(); ++s) drafts[s].push_back(b.token());
  std::vector<StepItem> items;
  for (size_t s = 0; s < drafts.size(); ++s) {
    b.sequences[s].append(drafts[s].front());
    drafts[s].erase(drafts[s].begin());
    if (s % 2 == 1) drafts[s].push_back(0);  // sequences have different numbers of rows
    const auto rows = static_cast<int64_t>(1 + drafts[s].size());
    items.push_back({&b.sequences[s], rows, rows, drafts[s]});
  }
  ASSIGN_OR_RETURN(auto logits, e.step(items));
  const auto vocab = static_cast<size_t>(e.config().vocab_size);
  for (size_t i = 0; i < static_cast<size_t>(steps); ++i) {
    size_t first = 0;
    for (const StepItem& item : items) {
      keep(k.out, logits.subspan((first + i) * vocab, vocab), k.expected, k.all);
      first += static_cast<size_t>(item.count);
    }
  }
  return Status::ok();
}

}  // namespace

Result<Outcome> run_traffic(Engine& e, const TrafficOptions& o, const Outcome* expected) {
  TrafficBatch b(e, o.batch, o.borders);
  RETURN_IF_ERROR(b.reserve(o.decode_steps + 1));
  Outcome out;
  const Keeping keeping{out, expected, o.greedy, o.keep_all};
  const int64_t chunk = o.borders ? kBorderChunk : kChunk;
  for (int i = 0; i <= o.decode_steps; ++i) {
    if (o.feed == Feed::Drafted && i == 1) {
      RETURN_IF_ERROR(verify(e, b, o.decode_steps, keeping));
      break;
    }
    if (o.feed == Feed::Together || o.feed == Feed::Drafted) {
      std::vector<StepItem> items;
      for (auto& s : b.sequences) items.push_back({&s, s.uncached(), 1});
      RETURN_IF_ERROR(step(e, items, keeping));
    } else {
      for (auto& s : b.sequences) RETURN_IF_ERROR(feed(e, s, o.feed == Feed::Chunked ? chunk : s.uncached(), keeping));
    }
    if (o.feed == Feed::Drafted) continue;
    for (auto& s : b.sequences) s.append(b.token());
  }
  return out;
}

engine::StepHook poison() {
  return [](const engine::StagedStep& s) {
    s.fill(s.arena.data(), 0xff, s.arena.size());  // NaN in every floating dtype
    const auto& shape = s.pool.shape();
    for (size_t c = 0; c < shape.caches.size(); ++c) s.fill(s.pool.cache(c), 0xff, shape.caches[c].page_bytes);
    for (size_t c = 0; c < s.states.caches().size(); ++c)
      s.fill(s.states.slot(c, kv::kScratchSlot), 0xff, s.states.caches()[c].slot_bytes);
    for (const auto& in : s.stage.inputs()) {
      const int64_t below = in.spec->padding_below.value(s.live);
      const auto numbers = models::ints(in.view);
      const int64_t used = in.spec->type.shape.elements(s.live);
      for (int64_t i = used; below > 0 && i < in.view.elements(); ++i) numbers[i] = static_cast<int32_t>(i % below);
    }
  };
}

Result<Outcome> run_case(Engine& e, const engine::ReplayCase& c, std::string_view source, const Outcome* expected,
                         bool keep_all) {
  RETURN_IF_ERROR(check_case(c, engine::limits_of(e), source));
  std::vector<Sequence> sequences;
  for (const auto& part : c.sequences)
    sequences.emplace_back(
        std::vector<int32_t>(part.tokens.begin(), part.tokens.begin() + part.cached + part.count - part.drafts));
  Outcome out;
  auto run = [&]() -> Status {
    std::vector<StepItem> items;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = sequences[i];
      const auto& part = c.sequences[i];
      RETURN_IF_ERROR(e.reserve(s, s.size() + part.drafts));
      while (s.cached() < c.sequences[i].cached) {
        const StepItem item{&s, std::min(e.max_step_tokens(), c.sequences[i].cached - s.cached())};
        RETURN_IF_ERROR(e.step({&item, 1}).status());
      }
      items.push_back({&s, part.count, part.all ? part.count : 1});
      items.back().drafts =
          std::span(part.tokens).subspan(static_cast<size_t>(s.size()), static_cast<size_t>(part.drafts));
    }
    return step(e, items, {out, expected, false, keep_all});
  };
  const Status done = run();
  for (auto& s : sequences) e.release(s);
  if (!done.is_ok()) return done;
  return out;
}

}  // namespace reprise::verification
