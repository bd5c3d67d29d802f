// AdapterMemory: slots for the adapters of tests/data/lora that are of llama_gqa3_tied, without an engine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/null/null_device.h"
#include "engine/adapter_slots.h"

namespace reprise::testing_support {

class AdapterMemory {
 public:
  explicit AdapterMemory(int64_t slots, int64_t rank = 8) {
    std::vector<std::pair<std::string, TensorType>> inputs;
    for (int layer = 0; layer < 2; ++layer)
      for (const auto& [module, in, out] :
           std::vector<std::tuple<const char*, int64_t, int64_t>>{{"self_attn.q_proj", 72, 216},
                                                                  {"self_attn.k_proj", 72, 72},
                                                                  {"self_attn.v_proj", 72, 72},
                                                                  {"self_attn.o_proj", 216, 72},
                                                                  {"mlp.gate_proj", 72, 100},
                                                                  {"mlp.up_proj", 72, 100},
                                                                  {"mlp.down_proj", 100, 72}}) {
        const std::string name = "lora.model.layers." + std::to_string(layer) + "." + module;
        inputs.emplace_back(name + ".a", TensorType{DType::F32, {Dim(slots), Dim(rank), Dim(in)}});
        inputs.emplace_back(name + ".b", TensorType{DType::F32, {Dim(slots), Dim(rank), Dim(out)}});
      }
    auto made = engine::AdapterSlots::create(device_->pool(), *stream_, inputs, slots, rank);
    EXPECT_TRUE(made.is_ok()) << made.status().message();
    if (made) slots_ = std::move(*made);
  }
  engine::AdapterSlots& slots() { return slots_; }

  static std::string folder(const std::string& name) {
    return std::string(REPRISE_SOURCE_DIR) + "/tests/data/lora/llama_gqa3_tied." + name;
  }

 private:
  std::unique_ptr<Device> device_ = null::make_null_device({});
  std::unique_ptr<Stream> stream_ = device_->make_stream().value();
  engine::AdapterSlots slots_;
};

}  // namespace reprise::testing_support
