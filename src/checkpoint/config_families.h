// What the configuration classes of Hugging Face transformers fill in when config.json is silent, and which model types
// an architecture goes with. Plain data, any thread. An architecture need not stand here: then nothing is filled in,
// and its fields are not compared with those of other families.
#pragma once

#include <cstdint>
#include <string_view>

namespace reprise::checkpoint {

// kv_heads 0 = as many as heads, head_dim 0 = hidden / heads, window 0 = none.
struct FamilyDefaults {
  std::string_view architecture, model_type;
  int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, positions, window;
  double eps = 1e-6, theta = 1e4;
  std::string_view other_model_type = {};  // that means the same
};

const FamilyDefaults* family_defaults(std::string_view architecture);
const FamilyDefaults* family_of_model_type(std::string_view model_type);

}  // namespace reprise::checkpoint
