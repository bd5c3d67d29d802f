// Pass, PassContext, PassReport: one named step over a graph, what it may ask, and what it has to tell.
//
// A pass either changes the graph or says why it did not; nothing it says is dropped. Passes are plain values owned by
// the PassManager; a context lives for one run of a pipeline on one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "nn/fused.h"
#include "ops/platform.h"
#include "passes/derived_param.h"

namespace reprise {

// Something a pass did, or refused to do, at the node whose first result is %at.
struct PassRemark {
  uint32_t at = 0;
  std::string reason;
};

struct PassReport {
  std::string name;
  bool required = false;
  std::string skipped;  // why it did not run; empty when it ran
  int64_t tried = 0, matched = 0;
  int64_t refusals = 0;  // how many; the first kMaxRemarks are kept
  std::vector<PassRemark> refused;
  std::vector<PassRemark> applied;  // passes that have something to say about what they did
  double seconds = 0;
  size_t nodes_before = 0, nodes_after = 0;
  std::string graph;  // IR text afterwards, if the options ask for it and the pass changed something
};

class PassContext {
 public:
  static constexpr size_t kMaxRemarks = 32;

  // `platform` may be null: then every op counts as having a kernel.
  PassContext(const OpRegistry& ops, const nn::FusedOps& fused, const Platform* platform)
      : ops_(ops), fused_(fused), platform_(platform) {}

  const OpRegistry& ops() const { return ops_; }
  const nn::FusedOps& fused() const { return fused_; }

  // Null without a platform.
  const DeviceInfo* device() const { return platform_ ? &platform_->device->info() : nullptr; }

  // Ok when the device has a kernel for the call; else Unsupported with one line of reason.
  Status has_kernel(const OpSchema& op, std::span<const TensorType> in, const Attrs& attrs) const;
  // Kernels that the device starts for the node, at least; one where its entry does not tell.
  int kernels_started(const Node& n) const;

  void count_tried() { ++report_.tried; }
  // Asked before every change: false when the bisect limit is reached. Counts the change.
  bool may_apply(const Node& at);
  void applied(const Node& at, std::string what);
  void refuse(const Node& at, std::string reason);
  void refuse(PassRemark remark);

  // Parameters that are not one tensor of the checkpoint as it stands.
  std::vector<DerivedParam>& derived() { return derived_; }
  // How the parameter is made so far: its entry's parts, which are taken out of the list, or what its name says.
  std::vector<ParamPart> take_parts(const std::string& param, const Shape& shape);

  // For the PassManager: a new report, and how many more changes are allowed (negative: any number).
  void begin(std::string name, bool required, int64_t allowance);
  PassReport& report() { return report_; }
  int64_t allowance() const { return allowance_; }
  // The change that used the allowance up, when this pass made it.
  const PassRemark* last_allowed() const { return last_allowed_.reason.empty() ? nullptr : &last_allowed_; }

 private:
  const OpRegistry& ops_;
  const nn::FusedOps& fused_;
  const Platform* platform_;
  PassReport report_;
  int64_t allowance_ = -1;
  PassRemark last_allowed_;
  std::vector<DerivedParam> derived_;
};

struct Pass {
  std::string name;
  bool required = false;  // runs with every setting of the options
  std::function<Status(Graph&, PassContext&)> run;
};

}  // namespace reprise
