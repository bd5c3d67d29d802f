// Entries of the Ascend backend by themselves, over the simulator: operands from the host, results back to it.
//
// A fixture: one device and one stream for the test that derives from it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/all.h"
#include "nn/fused.h"
#include "ops/core.h"
#include "ops/mutation.h"

namespace reprise {

struct AscendOperand {
  TensorType type;
  std::vector<uint8_t> bytes;
};

// Numbers of one C++ type as an operand of a device type.
template <typename T>
AscendOperand operand(TensorType type, const std::vector<T>& values) {
  AscendOperand out{std::move(type), std::vector<uint8_t>(values.size() * sizeof(T))};
  std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
  return out;
}

template <typename T>
std::vector<T> numbers_of(const std::vector<uint8_t>& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

class AscendEntryTest : public testing::Test {
 protected:
  void SetUp() override { open({}); }

  // `member`: the card is one of several ranks'.
  void open(std::shared_ptr<ranks::Member> member) {
    DeviceOptions options;
    options.kind = DeviceKind::Ascend;
    options.ascend_runtime = "sim";
    options.member = std::move(member);
    auto platform = make_platform(options);
    ASSERT_TRUE(platform.is_ok()) << platform.status().message();
    platform_ = std::move(*platform);
    nn::register_fused_ops(*platform_.ops);
    auto stream = platform_.device->make_stream();
    ASSERT_TRUE(stream.is_ok()) << stream.status().message();
    stream_ = std::move(*stream);
  }

  Buffer on_device(const void* data, size_t bytes) {
    auto host = platform_.device->host_pool().allocate(bytes, "test");
    auto device = platform_.device->pool().allocate(bytes, "test");
    EXPECT_TRUE(host.is_ok() && device.is_ok());
    std::memcpy(host->data(), data, bytes);
    EXPECT_TRUE(stream_->copy(device->data(), host->data(), bytes, Copy::HostToDevice).is_ok());
    EXPECT_TRUE(stream_->synchronize().is_ok());
    return std::move(*device);
  }

  // Every verdict on the call, in words.
  Result<const KernelEntry*> chosen(std::string_view op, const std::vector<TensorType>& in, Attrs attrs) const {
    const OpSchema* schema = platform_.ops->find(op);
    RETURN_IF_ERROR(check_attrs(*schema, attrs));
    ASSIGN_OR_RETURN(const std::vector<TensorType> out, schema->infer({schema, in, {}, &attrs, {}}));
    return platform_.kernels->choose(DeviceKind::Ascend, {schema, in, out, &attrs, {}});
  }

  // The results' bytes; results begin as zeros, or as the operand that they continue. An operand may be stored in a
  // layout of its own.
  std::vector<std::vector<uint8_t>> run(const std::string& name, const std::vector<AscendOperand>& in, Attrs attrs,
                                        std::string_view layout = {}) {
    const KernelEntry* entry = platform_.kernels->find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (!entry) return {};
    const OpSchema* op = platform_.ops->find(entry->op);
    const Status complete = check_attrs(*op, attrs);
    EXPECT_TRUE(complete.is_ok()) << complete.message();
    std::vector<TensorType> types;
    for (const AscendOperand& o : in) types.push_back(o.type);
    auto out = op->infer({op, types, {}, &attrs, {}});
    EXPECT_TRUE(out.is_ok()) << out.status().message();
    OpCall call{op, types, *out, &attrs, {}};
    const Status accepted = entry->accepts(call);
    EXPECT_TRUE(accepted.is_ok()) << accepted.message();
    if (!accepted.is_ok()) return {};
    const LiveSizes live;
    const size_t workspace = *entry->workspace(call, live, 1);
    std::vector<Buffer> buffers;
    Thunk thunk;
    thunk.part = entry->part;
    const auto place = [&](size_t at, const std::vector<uint8_t>& bytes) {
      buffers.push_back(on_device(bytes.data(), bytes.size()));
      thunk.args.ptr[at] = buffers.back().data();
    };
    for (size_t i = 0; i < in.size(); ++i) place(i, in[i].bytes);
    std::vector<std::vector<uint8_t>> results;
    for (size_t i = 0; i < out->size(); ++i) {
      const TensorType& type = (*out)[i];
      results.emplace_back(static_cast<size_t>(type.shape.elements(live)) * size_of(type.dtype));
      const int continued = continued_operand(*op, i);
      if (continued < 0)
        place(op->operands.size() + i, results.back());
      else
        thunk.args.ptr[op->operands.size() + i] = thunk.args.ptr[static_cast<size_t>(continued)];
    }
    buffers.push_back(on_device(std::vector<uint8_t>(workspace + 64).data(), workspace + 64));
    thunk.args.workspace = buffers.back().data();
    thunk.args.workspace_bytes = workspace;
    for (size_t k = 0; k < entry->host_operands.size(); ++k)
      thunk.args.host[k] = in[static_cast<size_t>(entry->host_operands[k])].bytes.data();
    call.param_layout = layout;
    entry->bind(call, thunk.args);
    stream_->set_live_sizes(live);
    const Status launched = stream_->launch(thunk);
    EXPECT_TRUE(launched.is_ok()) << launched.message();
    for (size_t i = 0; i < results.size(); ++i) {
      auto back = platform_.device->host_pool().allocate(results[i].size(), "test");
      const void* from = thunk.args.ptr[op->operands.size() + i];
      EXPECT_TRUE(stream_->copy(back->data(), from, results[i].size(), Copy::DeviceToHost).is_ok());
      const Status done = stream_->synchronize();
      EXPECT_TRUE(done.is_ok()) << done.message();
      std::memcpy(results[i].data(), back->data(), results[i].size());
    }
    return results;
  }

  Platform platform_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace reprise
