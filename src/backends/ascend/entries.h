// What the files that register kernels share: how an entry is made.
#pragma once

#include "backends/ascend/ascend_device.h"
#include "backends/ascend/context.h"
#include "ops/args/op_args.h"

namespace reprise::ascend {

// Matrix products take this to keep their operands' precision.
inline constexpr int8_t kKeepType = 0;
// Attention takes this to see as many tokens before and after as there are.
inline constexpr int64_t kNoLimit = 2147483647;

struct Entry {
  const char* op;
  AscendKernel kernel;
  // Behind what the op's own struct says (ops/args): LaunchArgs::constant and way.
  std::function<void(const OpCall&, LaunchArgs&)> bind = {};
  // What the vendor's operators refuse is found by asking them; this is for what they would not notice.
  std::function<Status(const OpCall&)> accepts = {};
  std::vector<int> host_operands = {};
  const char* variant = "";  // of the entry's name, where there are several
  int score = 100;           // the way around what an older CANN lacks has a lower one
  std::vector<std::string> param_layouts = {};
  bool exact = true;       // KernelEntry::exact
  bool announced = false;  // KernelEntry::announced
};

// The entry "ascend.OP". It accepts what `accepts` and the first phases of all its operators accept, and its workspace
// is what these ask for at the bounds; it starts as many kernels as operators have a first phase.
void add(KernelRegistry& kernels, const std::shared_ptr<Context>& context, Entry entry);

// Product of the sizes from dimension `first` on; they must be constants (want_constant_rows).
int64_t row_size(const Shape& s, int first = 1);
Status want_constant_rows(const OpCall& c);

// The entry's kernel of paged_attention_rows: its arguments (ops/args/attention.h), as constant the causal mask,
// lengths and starts on the host.
Status fused_attention_rows(const LaunchArgs& args, const LiveSizes& live, Launch& launch);

void register_dense(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_rotation(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_heads(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_attention(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_encoder(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_recurrent(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_state_space(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_functions(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_latent(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_experts(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_quantised(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_quantised_experts(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
// The last two: nothing where the device is alone.
void register_dispatch(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_expert_ranks(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_collectives(KernelRegistry& kernels, const std::shared_ptr<Context>& context);

}  // namespace reprise::ascend
