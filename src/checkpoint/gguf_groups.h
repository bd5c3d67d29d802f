// GgufFields, and groups of GGUF metadata that several families have, for GgufFamily::add: what a file says under
// "<architecture>.<name>", in config.json's words. It borrows file and JSON; one thread.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "checkpoint/gguf.h"

namespace reprise::checkpoint {

class GgufFields {
 public:
  GgufFields(const GgufFile& file, std::string arch, Json& out) : file_(file), arch_(std::move(arch)), out_(out) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }
  Result<std::optional<int64_t>> get(std::string_view name) const { return file_.integer(key(name)); }
  Status missing(std::string_view name) const {
    return invalid("{}: metadata \"{}\" is missing", file_.source(), key(name));
  }
  // The number, under another name; required ones are named when they are missing.
  Status copy(std::string_view name, const char* to, bool required = true) {
    ASSIGN_OR_RETURN(const auto v, get(name));
    if (!v && required) return missing(name);
    if (v) out_[to] = *v;
    return Status::ok();
  }
  Status copy_number(std::string_view name, const char* to) {
    ASSIGN_OR_RETURN(const auto v, file_.number(key(name)));
    if (v) out_[to] = *v;
    return Status::ok();
  }
  const std::string& arch() const { return arch_; }
  bool has(std::string_view tensor) const { return file_.find(tensor) != nullptr; }
  const GgufFile& file() const { return file_; }
  Json& out() { return out_; }

 private:
  const GgufFile& file_;
  std::string arch_;
  Json& out_;
};

// Sizes of experts that have keys of their own; whether their weights are normalised where a file says nothing of it.
Status add_expert_sizes(GgufFields& in, bool normalised);
// Experts behind the first layers, chosen among the best of some groups, and shared ones.
Status add_grouped_experts(GgufFields& in, bool normalised);
// mlp_only_layers: those that have no tensors of experts.
void add_dense_layers(GgufFields& in);
// Longrope, whose lists are tensors.
Status add_long_factors(GgufFields& in);
// Which layers have the window, where a file lists them.
Status add_window_pattern(GgufFields& in);
// Positions in three rows: how many frequencies turn with each.
Status add_position_sections(GgufFields& in);
// Mamba-2's sizes, by the names of config.json; `inner`: those of all heads together.
struct MambaNames {
  const char *heads, *groups, *state, *taps, *inner;
};
Status add_mamba(GgufFields& in, const MambaNames& names);
// Latent attention.
Status add_latent(GgufFields& in);

}  // namespace reprise::checkpoint
