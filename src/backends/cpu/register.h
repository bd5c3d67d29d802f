// register_cpu: every CPU kernel entry and parameter layout of one instruction set, by explicit calls; and Entries, by
// which these are written: what an op's entries have in common on all devices comes from ops/args.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/kernels/table.h"
#include "ops/args/entry.h"
#include "ranks/member.h"

namespace reprise::cpu {

void register_linear(KernelRegistry& kernels, Isa isa);  // linear and ops fused with it, embedding, the panel64 layout
void register_w8a8(KernelRegistry& kernels, Isa isa);    // int8 linears and ops fused with them
void register_packed(KernelRegistry& kernels, Isa isa);  // the same on weights in GGUF blocks
void register_attention(KernelRegistry& kernels, Isa isa);  // kv_write, paged_attention
void register_latent(KernelRegistry& kernels, Isa isa);     // multi-head latent attention
void register_experts(KernelRegistry& kernels, Isa isa);    // mixtures of experts
void register_lora(KernelRegistry& kernels, Isa isa);       // adapters in slots
void register_encoder(KernelRegistry& kernels, Isa isa);    // encoders and pooled outputs
void register_recurrent(KernelRegistry& kernels, Isa isa);  // layers with a state for each sequence
void register_draws(KernelRegistry& kernels, Isa isa);      // tokens drawn from logits, and changes of these
void register_vector(KernelRegistry& kernels, Isa isa);     // norms, rope, elementwise, rows, int8, argmax, fused ops

void register_cpu(KernelRegistry& kernels, Isa isa);

// What ranks exchange goes through the member of this process; without one there is nothing to exchange.
void register_collectives(KernelRegistry& kernels, std::shared_ptr<ranks::Member> member, Isa isa);

// Checks the cache that is operand i: heads and head size are constants, the size is even and at most 256.
Status want_cache(const OpCall& c, size_t i);
template <size_t kOperand>
Status accepts_cache(const OpCall& c) {
  return want_cache(c, kOperand);
}

// What an entry has besides its op, types and first kernel.
struct Extras {
  PerType second{};  // the two parts of a launch
  CpuKernel any_second = nullptr;
  std::optional<DType> other{};                    // of OpArgs::other, where all have the same
  std::function<Status(const OpCall&)> accepts{};  // what these kernels want besides OpArgs::accepts
  Scratch scratch{};
  bool f32_scratch = true;  // false: only kernels of two bytes a number need it
  std::vector<std::string> layouts{};
  std::function<int64_t(const OpCall&)> way{};  // LaunchArgs::way; else whether bf16 takes the dot instruction
  std::string_view variant{};                   // in the name, before the types
};

// Adds entries "cpu.OP.TYPES.ISA" ("cpu.OP.ISA" where one kernel serves every dtype).
class Entries {
 public:
  Entries(KernelRegistry& kernels, Isa isa) : kernels_(kernels), isa_(isa) {}

  void add(std::string_view op, CpuKernel kernel, const Extras& extras = {}) { add(op, std::nullopt, kernel, extras); }
  void add(std::string_view op, const PerType& kernels, const Extras& extras = {});
  void add(std::string_view op, std::optional<EntryTypes> types, CpuKernel kernel, const Extras& extras);

 private:
  KernelRegistry& kernels_;
  Isa isa_;
};

}  // namespace reprise::cpu
