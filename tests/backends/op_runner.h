// OpRunner: runs one op through the real registries on given buffers, with real threads, for kernel tests:
//   OpRunner runner(Isa::Avx512);
//   TestTensor x = random_tensor(DType::BF16, {3, 64}, 1);
//   std::vector<TestTensor> out = runner.run("silu", {x}, {}, {.threads = 2});
//
// Types come from the op's own shape function, parameters are packed into the layout the entry asks for, results start
// as poison and are fenced by guard bytes, the workspace holds NaN. An operand left out at the end is simply not
// passed. A runner of a platform does all this in the memory of its device. A runner may be used by one thread at a
// time; tensors are plain values.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "backends/aligned_bytes.h"
#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/register.h"
#include "backends/test_threads.h"
#include "base/half.h"
#include "compile/binding.h"
#include "nn/fused.h"
#include "ops/core.h"
#include "ops/kernel.h"
#include "ops/platform.h"
#include "ops/schema.h"

namespace reprise::cpu {

// Whether the address sanitizer looks on, under which a kernel takes forty times as long: tests run fewer combinations.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

inline constexpr DType kDTypes[] = {DType::F32, DType::BF16, DType::F16};
inline std::string isa_test_name(const testing::TestParamInfo<Isa>& info) {
  std::string name(isa_name(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
// For tests of products: those of this processor, and tile registers by their emulation where it can run. Under
// sanitizers tiles_test alone runs that.
inline std::vector<Isa> isas_with_tiles() {
  std::vector<Isa> out = supported_isas();
  if (!kSanitized && parse_isa(isa_name(Isa::AmxEmulated))) out.push_back(Isa::AmxEmulated);
  return out;
}

// For tests of GGUF blocks: those of this processor, and both that have tile registers for them, where they can run.
inline std::vector<Isa> isas_with_block_tiles() {
  std::vector<Isa> out = supported_isas();
  if (kSanitized) return out;
  for (const Isa isa : {Isa::AmxBlocks, Isa::AmxBlocksEmulated})
    if (parse_isa(isa_name(isa))) out.push_back(isa);
  return out;
}

using Bytes = AlignedBytes;

// A dense tensor on the host. Dims are constants unless the test gives them a symbol; then `live` of the run resolves
// them.
struct TestTensor {
  TensorType type;
  Bytes bytes;

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  int64_t size() const { return static_cast<int64_t>(bytes.size() / size_of(type.dtype)); }

  double get(int64_t i) const {
    switch (type.dtype) {
      case DType::F32: return as<float>()[i];
      case DType::BF16: return bf16_to_float(as<uint16_t>()[i]);
      case DType::F16: return half_to_float(as<uint16_t>()[i]);
      case DType::I32: return as<int32_t>()[i];
      case DType::I8: return as<int8_t>()[i];
      case DType::F64: return as<double>()[i];
      default: CHECK(false, "no test access to {}", dtype_name(type.dtype));
    }
    return 0;
  }
  // Rounds to nearest even into the tensor's dtype.
  void set(int64_t i, double v) {
    switch (type.dtype) {
      case DType::F32: as<float>()[i] = static_cast<float>(v); break;
      case DType::BF16: as<uint16_t>()[i] = float_to_bf16(static_cast<float>(v)); break;
      case DType::F16: as<uint16_t>()[i] = float_to_half(static_cast<float>(v)); break;
      case DType::I32: as<int32_t>()[i] = static_cast<int32_t>(v); break;
      case DType::I8: as<int8_t>()[i] = static_cast<int8_t>(v); break;
      case DType::F64: as<double>()[i] = v; break;
      default: CHECK(false, "no test access to {}", dtype_name(type.dtype));
    }
  }
};

inline Shape constant_shape(const std::vector<int64_t>& sizes) {
  Shape s;
  for (int64_t n : sizes) s.push_back(Dim(n));
  return s;
}

inline TestTensor zero_tensor(DType dtype, const std::vector<int64_t>& sizes) {
  TestTensor t{{dtype, constant_shape(sizes)}, {}};
  t.bytes.resize(static_cast<size_t>(t.type.shape.elements(LiveSizes{})) * size_of(dtype));
  return t;
}

// Uniform in [lo, hi), rounded to the dtype; the same seed gives the same values in every dtype up to rounding.
inline TestTensor random_tensor(DType dtype, const std::vector<int64_t>& sizes, uint32_t seed, double lo = -1,
                                double hi = 1) {
  TestTensor t = zero_tensor(dtype, sizes);
  std::mt19937 gen(seed);
  for (int64_t i = 0; i < t.size(); ++i) t.set(i, lo + (hi - lo) * (static_cast<double>(gen()) / 4294967296.0));
  return t;
}

inline TestTensor tensor_of(DType dtype, const std::vector<int64_t>& sizes, const std::vector<double>& values) {
  TestTensor t = zero_tensor(dtype, sizes);
  CHECK(static_cast<size_t>(t.size()) == values.size(), "{} values for {} elements", values.size(), t.size());
  for (int64_t i = 0; i < t.size(); ++i) t.set(i, values[static_cast<size_t>(i)]);
  return t;
}

inline std::vector<double> to_doubles(const TestTensor& t) {
  std::vector<double> v(static_cast<size_t>(t.size()));
  for (int64_t i = 0; i < t.size(); ++i) v[static_cast<size_t>(i)] = t.get(i);
  return v;
}

// Half the distance between neighbours near 1: the rounding error of one store, relative.
inline double unit_roundoff(DType t) {
  return t == DType::BF16 ? 1.0 / 256 : t == DType::F16 ? 1.0 / 2048 : t == DType::F32 ? 1.0 / 16777216 : 0;
}

// |got - want| <= abs + rel * |want| for every element; NaN equals NaN, an infinity equals itself.
inline void expect_close(const TestTensor& got, const std::vector<double>& want, double rel, double abs,
                         const std::string& what = "") {
  ASSERT_EQ(static_cast<size_t>(got.size()), want.size()) << what;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double g = got.get(i), w = want[static_cast<size_t>(i)];
    const bool good = std::isnan(w) ? std::isnan(g) : g == w || std::abs(g - w) <= abs + rel * std::abs(w);
    ASSERT_TRUE(good) << what << ": element " << i << " is " << g << ", expected " << w;
  }
}

inline void expect_same_bits(const TestTensor& a, const TestTensor& b, const std::string& what = "") {
  ASSERT_EQ(a.bytes.size(), b.bytes.size()) << what;
  if (a.bytes.empty() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0) return;
  for (int64_t i = 0; i < a.size(); ++i) {
    const size_t at = static_cast<size_t>(i) * size_of(a.type.dtype);
    ASSERT_EQ(std::memcmp(&a.bytes[at], &b.bytes[at], size_of(a.type.dtype)), 0)
        << what << ": element " << i << " is " << a.get(i) << " and " << b.get(i);
  }
}

// Rows [first, first + count) of the first dimension as a tensor of their own.
inline TestTensor rows_of(const TestTensor& t, int64_t first, int64_t count) {
  TestTensor r{t.type, {}};
  const size_t row = t.bytes.size() / static_cast<size_t>(t.type.shape[0].factor);
  r.type.shape[0] = Dim(count);
  r.bytes.assign(t.bytes.begin() + static_cast<int64_t>(row) * first,
                 t.bytes.begin() + static_cast<int64_t>(row) * (first + count));
  return r;
}

struct RunOptions {
  int threads = 1;
  LiveSizes live{};
  std::string layout{};                       // of the parameter; empty: the entry's first
  std::function<void(LaunchArgs&)> adjust{};  // after bind, before launch
};

// Bytes of a test where a kernel works on them: those of the host, or a copy of them on a device.
class PlacedBytes {
 public:
  // `device` null: in place.
  PlacedBytes(Bytes& host, Device* device, Stream* stream) : host_(host), stream_(stream) {
    if (!device) return;
    there_ = device->pool().allocate(host.size(), "test").value();
    copy(there_.data(), host.data(), Copy::HostToDevice);
  }
  void* data() const { return there_ ? there_.data() : host_.data(); }
  // The host's bytes are what the kernel left.
  void fetch() {
    if (there_) copy(host_.data(), there_.data(), Copy::DeviceToHost);
  }

 private:
  void copy(void* to, const void* from, Copy kind) {
    const Status copied = stream_->copy(to, from, host_.size(), kind), done = stream_->synchronize();
    CHECK(copied.is_ok() && done.is_ok(), "{}{}", copied.message(), done.message());
  }

  Bytes& host_;
  Stream* stream_;
  Buffer there_;
};

class OpRunner {
 public:
  // How an entry's parts are run: with real threads on the CPU, by other means elsewhere.
  using Runs =
      std::function<void(const KernelEntry& entry, const LaunchArgs& args, const LiveSizes& live, int threads)>;

  explicit OpRunner(Isa isa) : runs_(launch) {
    register_core_ops(ops_);
    nn::register_fused_ops(ops_);
    register_cpu(kernels_, isa);
  }
  // Another device's entries.
  OpRunner(DeviceKind kind, const std::function<void(KernelRegistry&)>& fill, Runs runs)
      : kind_(kind), runs_(std::move(runs)) {
    register_core_ops(ops_);
    nn::register_fused_ops(ops_);
    fill(kernels_);
  }
  // A whole device: its entries, its memory, launches on a stream of its own.
  explicit OpRunner(std::shared_ptr<const Platform> platform)
      : kind_(platform->device->info().kind), platform_(std::move(platform)) {
    stream_ = platform_->device->make_stream().value();
    runs_ = [stream = stream_.get()](const KernelEntry& entry, const LaunchArgs& args, const LiveSizes& live, int) {
      Thunk thunk;
      thunk.part = entry.part;
      thunk.args = args;
      stream->set_live_sizes(live);
      const Status launched = stream->launch(thunk), done = stream->synchronize();
      ASSERT_TRUE(launched.is_ok()) << entry.name << ": " << launched.message();
      ASSERT_TRUE(done.is_ok()) << entry.name << ": " << done.message();
    };
  }

  const OpRegistry& ops() const { return platform_ ? *platform_->ops : ops_; }
  const KernelRegistry& kernels() const { return platform_ ? *platform_->kernels : kernels_; }

  // The entry the registry chooses for these operand types, or why there is none.
  Result<const KernelEntry*> choose(std::string_view op, const std::vector<TensorType>& in, Attrs attrs = {}) const {
    const OpSchema* schema = ops().find(op);
    CHECK(schema, "op {}", op);
    RETURN_IF_ERROR(check_attrs(*schema, attrs));
    OpCall call{schema, in, {}, &attrs, {}};
    ASSIGN_OR_RETURN(const std::vector<TensorType> out, schema->infer(call));
    call.out = out;
    return kernels().choose(kind_, call);
  }

  std::vector<TestTensor> run(std::string_view op, const std::vector<TestTensor>& inputs, Attrs attrs = {},
                              const RunOptions& options = {}) const {
    const OpSchema* schema = ops().find(op);
    CHECK(schema, "op {}", op);
    const Status checked = check_attrs(*schema, attrs);
    CHECK(checked.is_ok(), "{}", checked.message());
    std::vector<TensorType> in;
    for (auto& t : inputs) in.push_back(t.type);
    OpCall call{schema, in, {}, &attrs, {}};
    auto inferred = schema->infer(call);
    const std::vector<TensorType> out_types = inferred.value();
    call.out = out_types;
    const KernelEntry& entry = **kernels().choose(kind_, call);

    // Operands are copied: a kernel that writes one it may not write is caught below.
    std::vector<Bytes> operand, result;
    operand.reserve(inputs.size()), result.reserve(out_types.size());
    for (auto& t : inputs) operand.push_back(t.bytes);
    if (schema->has(OperandRole::Weight) || schema->has(OperandRole::Table)) {
      call.param_layout = !options.layout.empty()       ? std::string_view(options.layout)
                          : entry.param_layouts.empty() ? std::string_view("row_major")
                                                        : std::string_view(entry.param_layouts.front());
      for (size_t at = 0; at < inputs.size(); ++at)
        if (schema->operands[at].has_own_layout()) operand[at] = pack(inputs[at], call.param_layout);
    }
    const std::vector<Bytes> given = operand;

    for (size_t i = 0; i < out_types.size(); ++i) {
      const int mutated = i == 0 ? schema->mutated_operand() : -1;
      const size_t bytes = static_cast<size_t>(out_types[i].shape.elements(options.live)) * size_of(out_types[i].dtype);
      result.emplace_back(bytes + kGuard, kPoison);
      if (mutated >= 0) std::memcpy(result[i].data(), operand[static_cast<size_t>(mutated)].data(), bytes);
    }
    Bytes workspace(entry.workspace ? *entry.workspace(call, options.live, options.threads) + kGuard : kGuard, kPoison);
    launch_on(entry, call, operand, result, workspace, options);

    for (size_t i = 0; i < operand.size(); ++i)
      EXPECT_TRUE(operand[i] == given[i]) << entry.name << " wrote operand " << i;
    expect_guard(workspace, entry.name + " workspace");
    std::vector<TestTensor> out;
    for (size_t i = 0; i < result.size(); ++i) {
      expect_guard(result[i], entry.name + " result");
      result[i].resize(result[i].size() - kGuard);
      out.push_back({out_types[i], std::move(result[i])});
    }
    return out;
  }

  // The parameter as the layout stores it.
  Bytes pack(const TestTensor& t, std::string_view layout_name) const {
    if (layout_name == "row_major") return t.bytes;
    const ParamLayout* layout = kernels().layout(kind_, layout_name);
    CHECK(layout, "layout {}", layout_name);
    Bytes packed(layout->bytes(t.type), 0);
    int64_t rows = 1;  // of all matrices of a stack
    for (int d = 0; d + 1 < t.type.shape.rank(); ++d) rows *= t.type.shape[d].factor;
    layout->pack(t.type, packed.data(), t.bytes.data(), 0, rows);
    return packed;
  }

  // Every part on `threads` threads with a barrier after each. They help each other, as on the CPU device.
  static void launch(const KernelEntry& entry, LaunchArgs args, const LiveSizes& live, int threads) {
    std::barrier barrier(threads);
    std::vector<std::atomic<int32_t>> taken(static_cast<size_t>(threads));
    if (threads > 1) args.taken = taken.data();
    auto body = [&](int thread) {
      for (OpaqueKernel part : entry.part)
        if (part) {
          reinterpret_cast<CpuKernel>(part)(args, live, thread, threads);
          barrier.arrive_and_wait();
        }
    };
    TestThreads::run(threads, body);
    for (const auto& of : taken) EXPECT_EQ(of.load(), 0) << entry.name << " left a count behind";
  }

 private:
  // Everything is placed, bound and launched, and what came of it is with the host again.
  void launch_on(const KernelEntry& entry, const OpCall& call, std::vector<Bytes>& operand, std::vector<Bytes>& result,
                 Bytes& workspace, const RunOptions& options) const {
    Device* device = platform_ ? platform_->device.get() : nullptr;
    std::vector<PlacedBytes> placed;
    LaunchArgs args;
    for (size_t i = 0; i < operand.size(); ++i)
      args.ptr[i] = placed.emplace_back(operand[i], device, stream_.get()).data();
    for (size_t i = 0; i < result.size(); ++i) {
      void* at = placed.emplace_back(result[i], device, stream_.get()).data();
      args.ptr[call.op->operands.size() + i] = at;
      if (i == 0 && call.op->mutated_operand() >= 0) args.ptr[static_cast<size_t>(call.op->mutated_operand())] = at;
    }
    args.workspace = placed.emplace_back(workspace, device, stream_.get()).data();
    entry.bind(call, args);
    if (options.adjust) options.adjust(args);
    runs_(entry, args, options.live, options.threads);
    for (PlacedBytes& p : placed) p.fetch();
  }

  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kPoison = 0xff;  // NaN in every float type

  static void expect_guard(const Bytes& b, const std::string& what) {
    for (size_t i = b.size() - kGuard; i < b.size(); ++i) ASSERT_EQ(b[i], kPoison) << what << " was overrun";
  }

  DeviceKind kind_ = DeviceKind::Cpu;
  Runs runs_;
  OpRegistry ops_;
  KernelRegistry kernels_;
  std::shared_ptr<const Platform> platform_;  // null: the registries above, and memory of the host
  std::shared_ptr<Stream> stream_;            // of the platform's device
};

}  // namespace reprise::cpu
