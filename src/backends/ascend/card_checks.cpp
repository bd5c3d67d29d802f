#include "backends/ascend/card_checks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "backends/ascend/ascend_stream.h"
#include "backends/ascend/attention_plan.h"
#include "backends/ascend/entries.h"
#include "backends/ascend/fractal.h"
#include "base/half.h"
#include "ops/args/attention.h"
#include "ops/args/elements.h"
#include "ops/core.h"

namespace reprise::ascend {
namespace {

template <typename E>
std::span<const std::byte> bytes_of(const std::vector<E>& v) {
  return std::as_bytes(std::span(v));
}

// A stream, and memory that is filled from and read by the host.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> make(std::shared_ptr<Context> context, MemoryPool& pool) {
    ASSIGN_OR_RETURN(auto stream, AscendStream::make(context));
    return std::unique_ptr<Bench>(new Bench(std::move(context), pool, std::move(stream)));
  }

  const Context& context() const { return *context_; }
  AscendStream& stream() { return *stream_; }
  Result<Buffer> memory(size_t bytes) { return pool_.allocate(bytes, "card check"); }
  template <typename E>
  Result<Buffer> filled(const std::vector<E>& with) {
    ASSIGN_OR_RETURN(Buffer out, memory(bytes_of(with).size()));
    RETURN_IF_ERROR(fill(out, with));
    return out;
  }
  template <typename E>
  Status fill(const Buffer& to, const std::vector<E>& with) {
    RETURN_IF_ERROR(stream_->copy(to.data(), with.data(), bytes_of(with).size(), Copy::HostToDevice));
    return stream_->synchronize();
  }
  template <typename E>
  Result<std::vector<E>> content(const Buffer& from, size_t count) {
    std::vector<E> out(count);
    RETURN_IF_ERROR(stream_->copy(out.data(), from.data(), count * sizeof(E), Copy::DeviceToHost));
    RETURN_IF_ERROR(stream_->synchronize());
    return out;
  }
  // Runs `body` with a launch of its own that may take more workspace than `planned`; tells whether it did.
  template <typename F>
  Status once(size_t planned, const F& body) {
    ASSIGN_OR_RETURN(const Buffer workspace, memory(planned + 512));
    Launch launch(context_->library(), context_->operators(), stream_->native(), workspace.data(), planned);
    RETURN_IF_ERROR(body(launch));
    return stream_->synchronize();
  }
  // The workspace that `body` asks for.
  template <typename F>
  Result<size_t> planned(Launch::Probe how, const F& body) {
    Launch probe(context_->library(), context_->operators(), how);
    RETURN_IF_ERROR(body(probe));
    return probe.used();
  }

 private:
  Bench(std::shared_ptr<Context> context, MemoryPool& pool, std::unique_ptr<AscendStream> stream)
      : context_(std::move(context)), pool_(pool), stream_(std::move(stream)) {}

  std::shared_ptr<Context> context_;
  MemoryPool& pool_;
  std::unique_ptr<AscendStream> stream_;
};

constexpr int64_t kSumWidth = 256;
constexpr size_t kWorkspace = size_t{64} << 20;

Status add_row(const BinaryArgs& a, Launch& l) {
  const auto row = [&](const void* data) { return l.tensor(data, DType::BF16, {1, kSumWidth}); };
  return l.run(l.ops().add, row(a.a), row(a.b), l.number(1), row(a.out));
}

// A kept executor reads the addresses of its tensors at every run, so they may not be given back before it (opbase
// aa3cd74b, op_executor.cpp:165, 215-217). Other launches in between would reuse what was given back.
Status kept_executor(Bench& b) {
  if (!b.context().library().aclSetAclOpExecutorRepeatable)
    return error(Code::Unsupported, "this CANN repeats no executors");
  const auto numbers = [](int seed) {
    std::vector<uint16_t> out;
    for (int64_t i = 0; i < kSumWidth; ++i) out.push_back(float_to_bf16(static_cast<float>((i * 5 + seed * 11) % 97)));
    return out;
  };
  ASSIGN_OR_RETURN(const Buffer x, b.filled(numbers(0)));
  ASSIGN_OR_RETURN(const Buffer y, b.filled(numbers(1)));
  ASSIGN_OR_RETURN(const Buffer workspace, b.memory(kWorkspace));
  std::vector<Buffer> sums;
  for (int i = 0; i < 4; ++i) {
    ASSIGN_OR_RETURN(Buffer sum, b.memory(kSumWidth * sizeof(uint16_t)));
    sums.push_back(std::move(sum));
  }
  Thunk thunk;
  thunk.part[0] = opaque(kernel<add_row>);
  thunk.args.workspace = workspace.data();
  thunk.args.workspace_bytes = kWorkspace;
  auto& args = thunk.args.as<BinaryArgs>();
  args.a = {x.data()};
  args.b = {y.data()};
  for (int seed = 2; seed < 5; ++seed) {
    RETURN_IF_ERROR(b.fill(x, numbers(seed)));
    for (const Buffer& sum : sums) {
      args.out = {sum.data()};
      RETURN_IF_ERROR(b.stream().launch(thunk));
    }
    RETURN_IF_ERROR(b.stream().synchronize());
    const std::vector<uint16_t> one = numbers(seed), other = numbers(1);
    for (const Buffer& sum : sums) {
      ASSIGN_OR_RETURN(const auto got, b.content<uint16_t>(sum, kSumWidth));
      for (size_t i = 0; i < got.size(); ++i)
        if (bf16_to_float(got[i]) != bf16_to_float(one[i]) + bf16_to_float(other[i]))
          return error(Code::Device, "run {}: sum {} is {}, not {}", seed - 1, i, bf16_to_float(got[i]),
                       bf16_to_float(one[i]) + bf16_to_float(other[i]));
    }
  }
  return Status::ok();
}

// Weights are packed into blocks on the host. The documents say that only aclnnTransMatmulWeight makes such a weight.
Status block_order(Bench& b) {
  Operator<MT> transform{"aclnnTransMatmulWeight"};
  transform.find(b.context().library());
  if (!transform) return error(Code::Unsupported, "this CANN has no {}", transform.name);
  constexpr int64_t k = 64, n = 96;
  std::vector<uint16_t> columns(static_cast<size_t>(n * k)), matrix(columns.size()), ours(columns.size());
  for (int64_t row = 0; row < n; ++row)
    for (int64_t i = 0; i < k; ++i) {
      const auto value = static_cast<uint16_t>(0x3c00 + row * k + i);  // all different; nothing computes with them
      columns[static_cast<size_t>(row * k + i)] = value;
      matrix[static_cast<size_t>(i * n + row)] = value;
    }
  pack_columns(n, k, ours.data(), columns.data(), 0, n);
  ASSIGN_OR_RETURN(const Buffer weight, b.filled(matrix));
  const auto body = [&](Launch& l) { return l.run(transform, l.tensor(weight.data(), DType::F16, {k, n})); };
  ASSIGN_OR_RETURN(const size_t bytes, b.planned(Launch::Probe::Call, body));
  RETURN_IF_ERROR(b.once(bytes, body));
  ASSIGN_OR_RETURN(const auto theirs, b.content<uint16_t>(weight, ours.size()));
  for (size_t i = 0; i < ours.size(); ++i)
    if (ours[i] != theirs[i])
      return error(Code::Device, "element {} of the blocks is {:#x}, packed here as {:#x}", i, theirs[i], ours[i]);
  return Status::ok();
}

// quantize_groups takes a product with matrices of one number for a lookup, which a unit that rounds fp32 operands
// would not give.
Status exact_lookup(Bench& b) {
  const std::vector<float> numbers{1.2345678f, -0.00012345679f, 7654321.f, 3.0000002f};
  const std::vector<int64_t> ends{3, 3, 5, 8};
  const std::vector<float> ones(8, 1.f);
  ASSIGN_OR_RETURN(const Buffer x, b.filled(ones));
  ASSIGN_OR_RETURN(const Buffer w, b.filled(numbers));
  ASSIGN_OR_RETURN(const Buffer e, b.filled(ends));
  ASSIGN_OR_RETURN(const Buffer y, b.memory(ones.size() * sizeof(float)));
  const auto body = [&](Launch& l) {
    return l.run(l.ops().grouped_matmul, l.list(l.tensor(x.data(), DType::F32, {8, 1})),
                 l.list(l.tensor(w.data(), DType::F32, {4, 1, 1})), nullptr, nullptr, nullptr, nullptr, nullptr,
                 nullptr, l.tensor(e.data(), DType::I64, {4}), nullptr, nullptr, nullptr, 2, 0, 0, 0,
                 l.list(l.tensor(y.data(), DType::F32, {8, 1})), nullptr, nullptr);
  };
  ASSIGN_OR_RETURN(const size_t bytes, b.planned(Launch::Probe::Call, body));
  RETURN_IF_ERROR(b.once(bytes, body));
  ASSIGN_OR_RETURN(const auto got, b.content<float>(y, ones.size()));
  for (size_t row = 0, group = 0; row < got.size(); ++row) {
    while (static_cast<int64_t>(row) >= ends[group]) ++group;
    if (std::bit_cast<uint32_t>(got[row]) != std::bit_cast<uint32_t>(numbers[group]))
      return error(Code::Device, "row {} is {:.9g}, not {:.9g}: the product rounds fp32", row, got[row],
                   numbers[group]);
  }
  return Status::ok();
}

// The last rows of a long context. With equal keys the result is the mean of the values that a row sees. Without a
// window all values are 1. With one, all are 0 but that of the first key in it, which is its size. Both means are 1.
Status mean_of_values(Bench& b, int64_t tokens, int64_t window, const char* refused) {
  constexpr int64_t heads = 8, kv_heads = 8, size = 128, pages = 17, length = 16 * kPageTokens + 5;
  constexpr int64_t width = kv_heads * size;
  const std::vector<uint16_t> zeros(static_cast<size_t>(pages * kPageTokens * width), 0);
  std::vector<uint16_t> seen(zeros.size(), float_to_bf16(window > 0 ? 0 : 1));
  if (window > 0)
    std::fill_n(seen.begin() + (length - window) * width, width, float_to_bf16(static_cast<float>(window)));
  std::vector<int32_t> table(pages);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  ASSIGN_OR_RETURN(const Buffer q,
                   b.filled(std::vector<uint16_t>(static_cast<size_t>(tokens * heads * size), float_to_bf16(1))));
  ASSIGN_OR_RETURN(const Buffer keys, b.filled(zeros));
  ASSIGN_OR_RETURN(const Buffer values, b.filled(seen));
  ASSIGN_OR_RETURN(const Buffer pages_of, b.filled(table));
  ASSIGN_OR_RETURN(const Buffer out, b.memory(tokens * heads * size * sizeof(uint16_t)));
  LaunchArgs args;
  args.as<PagedAttentionRowsArgs>() = {.q = {q.data()},
                                       .keys = {keys.data()},
                                       .values = {values.data()},
                                       .page_table = {pages_of.data()},
                                       .context_lens = {},
                                       .cu_seqlens = {},
                                       .sinks = {},
                                       .out = {out.data()},
                                       .tokens = tokens,
                                       .sequences = 1,
                                       .columns = pages,
                                       .pages = pages,
                                       .heads = heads,
                                       .kv_heads = kv_heads,
                                       .size = size,
                                       .window = window,
                                       .scale = 0.088388347648318447,  // 128^-0.5
                                       .type = DType::BF16};
  args.constant = const_cast<Context&>(b.context()).causal_mask();
  LaunchArgs large = args;
  large.as<PagedAttentionRowsArgs>().tokens = 512;
  large.as<PagedAttentionRowsArgs>().sequences = 16;
  const Result<size_t> bytes =
      b.planned(Launch::Probe::Bounds, [&](Launch& l) { return fused_attention_rows(large, LiveSizes{}, l); });
  if (!bytes.is_ok()) return error(Code::Unsupported, "{}: {}", refused, bytes.status().message());
  const std::array<int32_t, 1> lens{length};
  const std::array<int32_t, 2> starts{0, static_cast<int32_t>(tokens)};
  args.host = {lens.data(), starts.data()};
  RETURN_IF_ERROR(b.once(*bytes, [&](Launch& l) { return fused_attention_rows(args, LiveSizes{}, l); }));
  ASSIGN_OR_RETURN(const auto got, b.content<uint16_t>(out, tokens * heads * size));
  for (size_t i = 0; i < got.size(); ++i)
    if (bf16_to_float(got[i]) != 1) return error(Code::Device, "element {} is {}, not 1", i, bf16_to_float(got[i]));
  return Status::ok();
}

// Few rows: what the vendor's attention cuts over its cores. The workspace is the one that is planned for large steps.
Status short_query(Bench& b) { return mean_of_values(b, 4, 0, "the operator before it runs prompts here"); }

// The keys of a window and no others, in the form that decode steps have.
Status window_step(Bench& b) { return mean_of_values(b, 1, 32, "models with windows are refused here"); }

}  // namespace

std::vector<OwnCheck> card_checks(const std::shared_ptr<Context>& context, MemoryPool& pool) {
  std::vector<OwnCheck> out;
  auto bench = Bench::make(context, pool);
  const auto check = [&](const char* name, Status (*body)(Bench&)) {
    out.push_back({name, bench.is_ok() ? body(**bench) : bench.status()});
  };
  check("executors: a kept one reads new data at every run", kept_executor);
  check("weights: blocks packed here are those of aclnnTransMatmulWeight", block_order);
  check("experts: a grouped product of one fp32 number is that number", exact_lookup);
  if (context->fused_attention()) {
    check("attention: a short query fits the workspace of long ones", short_query);
    check("attention: a step of one token sees its window", window_step);
  }
  return out;
}

}  // namespace reprise::ascend
