// What the files that register kernels share: how an entry is made, and how a kernel learns its operands' types.
#pragma once

#include "backends/ascend/ascend_device.h"
#include "backends/ascend/context.h"

namespace reprise::ascend {

struct Entry {
  const char* op;
  AscendKernel kernel;
  // Sizes, scalars and constants into the arguments; types come by themselves (type_of).
  std::function<void(const OpCall&, LaunchArgs&)> bind;
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
// is what these ask for at the bounds.
void add(KernelRegistry& kernels, const std::shared_ptr<Context>& context, Entry entry);

// Type of operand i (results follow the schema's operands), for i below 8.
DType type_of(const LaunchArgs& args, int i);
void set_type(LaunchArgs& args, int i, DType type);  // once for each operand

// Product of the sizes from dimension `first` on; they must be constants (want_constant_rows).
int64_t row_size(const Shape& s, int first = 1);
Status want_constant_rows(const OpCall& c);

// The entry's kernel of paged_attention_rows: query [T, H, D], keys and values [P, 128, G * D], page table [R, C],
// result (ptr 0-3, 6), causal mask (ptr 7); dims T, H, D, P, G, R, C; scalar 0 the scale; lengths and starts on the
// host.
Status fused_attention_rows(const LaunchArgs& args, const LiveSizes& live, Launch& launch);

void register_dense(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_rotation(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_heads(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_attention(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_latent(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_experts(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_quantised(KernelRegistry& kernels, const std::shared_ptr<Context>& context);
void register_quantised_experts(KernelRegistry& kernels, const std::shared_ptr<Context>& context);

}  // namespace reprise::ascend
