// LoraAdapter: one LoRA adapter as PEFT saves it: a folder with adapter_config.json and adapter_model.safetensors.
//
// Everything that can be said without the model is checked when it is opened: the configuration, that tensors come in
// pairs with the ranks of the configuration, and that it names their modules. What PEFT can write and this cannot apply
// (DoRA, biases, saved modules, embeddings) is an error that names it. Owns the mapping; immutable afterwards, so any
// thread may read.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoint/name_pattern.h"
#include "checkpoint/safetensors.h"

namespace reprise::checkpoint {

class FieldReader;

// adapter_config.json, as far as it says what a module's product is.
class LoraConfig {
 public:
  static constexpr int64_t kMostRank = 4096;

  static Result<LoraConfig> parse(std::string_view text, std::string_view source);

  int64_t rank() const { return rank_; }
  // The base model that it was made for, as it was named there; empty where it is not said.
  const std::string& base_model() const { return base_model_; }
  // Keys that this version does not know, which are not used.
  const std::vector<std::string>& unknown() const { return unknown_; }

  // Whether target_modules names the module ("model.layers.0.self_attn.q_proj").
  bool targets(std::string_view module) const;
  int64_t rank_of(std::string_view module) const;  // with rank_pattern
  // What the product is multiplied with: alpha / rank, or alpha / sqrt(rank) with use_rslora.
  double scale_of(std::string_view module) const;

 private:
  struct PatternValue {
    NamePattern pattern;
    double value = 0;
  };
  Status read_targets(const FieldReader& in);
  double value_of(std::string_view module, const std::vector<PatternValue>& patterns, double otherwise) const;

  int64_t rank_ = 8;
  double alpha_ = 8;
  bool rank_stabilised_ = false;
  std::string base_model_;
  std::vector<std::string> target_names_;
  std::optional<NamePattern> target_pattern_;
  bool all_linear_ = false;
  std::vector<PatternValue> ranks_, alphas_;  // the first that matches counts
  std::vector<std::string> unknown_;
};

struct LoraModule {
  std::string name;  // of the linear layer: the parameter's without ".weight"
  int64_t rank = 0, in = 0, out = 0;
  double scale = 1;
  const StoredTensor* a = nullptr;  // [rank, in]
  const StoredTensor* b = nullptr;  // [out, rank]
};

class LoraAdapter {
 public:
  static Result<LoraAdapter> open(const std::string& folder);
  // From memory, for tests and fuzzing; the caller keeps what the file views alive.
  static Result<LoraAdapter> from(LoraConfig config, SafetensorsFile file);

  const std::string& source() const { return source_; }
  const LoraConfig& config() const { return config_; }
  const std::vector<LoraModule>& modules() const { return modules_; }  // by name
  int64_t rank() const;                                                // the largest of all modules
  // All numbers of a tensor of modules() as fp32; one that is not finite is an error.
  Result<std::vector<float>> read(const StoredTensor& tensor) const;

 private:
  LoraAdapter(LoraConfig config, std::unique_ptr<SafetensorsFile> file)
      : config_(std::move(config)), file_(std::move(file)), source_(file_->source()) {}
  Status pair_tensors();

  LoraConfig config_;
  std::unique_ptr<SafetensorsFile> file_;  // modules_ point into it
  std::string source_;
  std::vector<LoraModule> modules_;
};

}  // namespace reprise::checkpoint
