#include "measurement/op_suite.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/progress.h"

namespace reprise::measurement {
namespace {

int64_t most_tokens(const OpSelection& s) { return *std::max_element(s.tokens.begin(), s.tokens.end()); }

// The bench of one piece of work; null where the device has no kernels for it, which goes into `refused`.
Result<std::unique_ptr<OpBench>> bench_of(const OpWork& w, const Platform& platform, const nn::FusedOps& fused,
                                          std::vector<std::string>& refused) {
  auto bench = OpBench::make(w.op, w.dtype, fused, platform);
  if (bench) return bench;
  const std::string name = fmt::format("{} {}", w.op.op, dtype_name(w.dtype));
  if (bench.status().code() != Code::Unsupported) return bench.status().at(name);
  refused.push_back(fmt::format("{}: {}", name, bench.status().message()));
  return std::unique_ptr<OpBench>();
}

// A chain of calls that each have one row of sixteen numbers to do.
Result<double> measure_launch(const Platform& platform, const nn::FusedOps& fused, int64_t repeat) {
  const TensorType tiny{DType::F32, {Dim(1, 1), Dim(16)}};
  const OpCase c{"add", "", "", {{"T", 1}}, {tiny, tiny}, {}};
  ASSIGN_OR_RETURN(auto bench, OpBench::make(c, DType::F32, fused, platform));
  ASSIGN_OR_RETURN(const OpTimes times, bench->measure(1, repeat));
  return times.fused_us;
}

}  // namespace

std::vector<std::string> ops_named(std::string_view part, std::vector<std::string> all) {
  if (std::find(all.begin(), all.end(), part) != all.end()) return {std::string(part)};
  std::erase_if(all, [&](const std::string& op) { return op.find(part) == std::string::npos; });
  return all;
}

OpPlan plan_ops(const OpSelection& s, const nn::FusedOps& fused) {
  OpPlan plan{{}, s.tokens, {}};
  for (const std::string& op : s.ops)
    for (const DType dtype : s.dtypes)
      for (OpCase& c : op_cases(op, fused, most_tokens(s)))
        if (s.model.empty() || s.model == c.model || c.model == "example") plan.work.push_back({std::move(c), dtype});
  return plan;
}

Result<OpPlan> plan_extension_ops(const OpSelection& s, const nn::FusedOps& fused, ModelOfCases model) {
  OpPlan plan{{}, s.tokens, {}};
  for (const DType dtype : s.dtypes) {
    std::vector<OpCase> cases;
    if (model.path.empty()) {
      for (const std::string& op : s.ops)
        for (OpCase& c : op_cases(op, fused, most_tokens(s))) cases.push_back(std::move(c));
    } else {
      model.dtype = dtype;
      ASSIGN_OR_RETURN(cases, cases_in_model(model, s.ops, most_tokens(s), plan.refused));
    }
    for (OpCase& c : cases) plan.work.push_back({std::move(c), dtype});
  }
  return plan;
}

Result<OpReport> measure_ops(const OpPlan& plan, const Platform& platform, const nn::FusedOps& fused, int64_t repeat) {
  OpReport out;
  out.refused = plan.refused;
  out.modelled = platform.device->clock_us().has_value();
  if (!out.modelled) {
    const int threads = platform.device->info().threads;
    out.speed = measure_machine(threads);
    out.caches = measure_caches(threads);
  }
  ASSIGN_OR_RETURN(out.launch_us, measure_launch(platform, fused, repeat));
  Progress bar("ops", plan.work.size() * plan.tokens.size());
  for (const OpWork& w : plan.work) {
    ASSIGN_OR_RETURN(const auto bench, bench_of(w, platform, fused, out.refused));
    if (!bench) {
      bar.advance(plan.tokens.size(), w.op.op);
      continue;
    }
    for (const int64_t tokens : plan.tokens) {
      // On this house's own kernels a difference is an error; a vendor's fused operator may round less often.
      const Status same = bench->check(tokens);
      if (!same.is_ok() && !(out.modelled && same.code() == Code::Internal)) return same;
      ASSIGN_OR_RETURN(const OpTimes times, bench->measure(tokens, repeat));
      out.rows.push_back({w.op.op, w.op.model, w.op.detail, bench->shape(tokens), w.dtype, tokens, times,
                          bench->limit(tokens, out.speed, out.caches), same.is_ok()});
      bar.advance(1, fmt::format("{} {} {}", w.op.op, dtype_name(w.dtype), w.op.model));
    }
  }
  if (out.rows.empty()) return error(Code::Unsupported, "nothing could be measured: {}", fmt::join(out.refused, "; "));
  return out;
}

Status replay_ops(const OpPlan& plan, const Platform& platform, const nn::FusedOps& fused, int64_t times,
                  const std::function<void(const OpWork&, int64_t tokens, int64_t calls)>& done) {
  std::vector<std::string> refused;
  for (const OpWork& w : plan.work) {
    ASSIGN_OR_RETURN(const auto bench, bench_of(w, platform, fused, refused));
    if (!bench) continue;
    for (const int64_t tokens : plan.tokens) {
      RETURN_IF_ERROR(bench->replay(tokens, times));
      done(w, tokens, times * bench->calls());
    }
  }
  return Status::ok();
}

}  // namespace reprise::measurement
