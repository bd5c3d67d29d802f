// Changing any staged input must change the rows it belongs to, and no others: a replay that keeps an old value, or
// mixes rows, is seen here.
#include <algorithm>

#include "models/model.h"
#include "verification/traffic.h"

namespace reprise::verification {
namespace {

using engine::StagedStep;

// The rows of the step after `before` steps without a change.
Result<Outcome> one_run(engine::Engine& e, int64_t batch, bool decode, const engine::StepHook& change) {
  int step = 0;
  const int when = decode ? 2 : 1;
  e.set_step_hook([&](const StagedStep& s) {
    // Old keys must not look like new ones: pages are handed out again in the same order.
    if (++step == 1) {
      const auto& shape = s.pool.shape();
      for (const auto& item : s.items)
        for (const kv::PageId page : item.sequence->pages())
          for (size_t c = 0; c < shape.caches.size(); ++c) s.fill(s.pool.page(c, page), 0, shape.caches[c].page_bytes);
    }
    if (step == when && change) change(s);
  });
  auto out = run_traffic(e, {batch, decode ? 1 : 0, Feed::Together, false});
  e.set_step_hook({});
  return out;
}

}  // namespace

Result<PerturbResult> perturb_inputs(engine::Engine& e, int64_t batch) {
  PerturbResult result;
  const auto n = static_cast<size_t>(batch);
  // Compares the last `batch` rows with those of the run without a change.
  auto compare = [&](const Outcome& a, const Outcome& b, std::string_view input, int64_t row,
                     const std::vector<size_t>& may, const std::vector<size_t>& must) {
    ++result.checked;
    const size_t base = a.rows.size() - n;
    for (size_t r = 0; r < n; ++r) {
      const bool changed = a.rows[base + r] != b.rows[base + r];
      const bool allowed = std::find(may.begin(), may.end(), r) != may.end();
      const bool needed = std::find(must.begin(), must.end(), r) != must.end();
      if (changed && !allowed)
        result.wrong.push_back(fmt::format("{} of row {} changed row {}", input, row, r));
      else if (!changed && needed)
        result.unchanged.insert(fmt::format("{} of row {}", input, row));
    }
  };
  std::vector<std::string> decode_inputs;  // of which a row depends on its own entry
  ASSIGN_OR_RETURN(const Outcome decode, one_run(e, batch, true, [&](const StagedStep& s) {
                     for (const auto& in : s.stage.inputs())
                       if (in.spec->change) decode_inputs.push_back(in.spec->name);
                   }));
  for (const std::string& input : decode_inputs) {
    for (int64_t r = 0; r < batch; ++r) {
      bool applied = false;
      ASSIGN_OR_RETURN(const Outcome changed, one_run(e, batch, true, [&](const StagedStep& s) {
                         for (const auto& in : s.stage.inputs())
                           if (in.spec->name == input) applied = in.spec->change(in.view, r, s.live);
                       }));
      if (applied) compare(decode, changed, input, r, {static_cast<size_t>(r)}, {static_cast<size_t>(r)});
    }
  }
  // The first token of a prompt is given to the one before: later layers then see another key there.
  ASSIGN_OR_RETURN(const Outcome prefill, one_run(e, batch, false, {}));
  for (int64_t r = 1; r < batch; ++r) {
    const auto row = static_cast<size_t>(r);
    bool applied = false;
    ASSIGN_OR_RETURN(const Outcome changed, one_run(e, batch, false, [&](const StagedStep& s) {
                       const auto cu_seqlens = s.stage.ints(models::kCuSeqlensInput);
                       if (cu_seqlens[row + 1] - cu_seqlens[row] < 2) return;
                       ++cu_seqlens[row];
                       ++s.stage.ints(models::kLengthsInput)[row - 1];
                       applied = true;
                     }));
    if (applied && e.config().num_hidden_layers > 1)
      compare(prefill, changed, models::kCuSeqlensInput, r, {row - 1, row}, {row});
  }
  return result;
}

}  // namespace reprise::verification
