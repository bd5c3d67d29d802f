#include "measurement/op_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "base/elapsed.h"
#include "base/half.h"
#include "measurement/expert_cases.h"
#include "measurement/op_instructions.h"
#include "models/step_spec.h"
#include "ops/core.h"
#include "ops/mutation.h"
#include "passes/inline.h"
#include "see/node_cost.h"

namespace reprise::measurement {

using namespace see;

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSampleSeconds = 300e-6;  // a sample is at least so long, a thousand times the clock's step
constexpr double kRowSeconds = 1.0;        // samples end after this, but there are at least kLeastSamples
constexpr size_t kLeastSamples = 5;
constexpr double kCopyBytes = 8 << 20;  // copies of a call together touch about this much
constexpr int64_t kMostCopies = 32;
constexpr int64_t kModelledCopies = 16;

double median(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<int64_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

// Whether a checkpoint has it: no size is one of the step, and it is neither integers that point nor a cache. Other
// integers are the biases of int8 products.
bool is_weight(const OpSchema& op, size_t operand, const TensorType& type) {
  const OperandSchema& o = op.operands[operand];
  if (o.has_own_layout()) return true;
  const bool of_step =
      std::any_of(type.shape.dims().begin(), type.shape.dims().end(), [](Dim d) { return d.symbol != 0; });
  if (of_step || o.is_index() || o.role == OperandRole::Cache) return false;
  return type.dtype != DType::I32 || op.has(OperandRole::Weight);
}

// A call touches little of a cache.
bool is_cache(const OpSchema& op, size_t operand) { return op.operands[operand].role == OperandRole::Cache; }

// Keys that are read, and pairs of a query and a key: of a row of each sequence, or of all rows of one. What attends to
// a cache sees no later keys, and where it has a window none before that.
StepSizes sizes_of(const OpSchema& op, const OpCase& c, int64_t tokens) {
  const AttrValue* window = c.attrs.find("window");
  const int64_t all = c.one_sequence ? tokens : c.context;
  const int64_t seen = window && std::get<int64_t>(*window) > 0 ? std::min(std::get<int64_t>(*window), all) : all;
  StepSizes out;
  out.live = c.live(tokens);
  out.cached_tokens = static_cast<double>(c.one_sequence ? tokens : tokens * seen);
  if (!c.one_sequence)
    out.score_pairs = out.cached_tokens;
  else if (op.has(OperandRole::Cache))  // the first `seen` rows see as many keys as stand before them, and themselves
    out.score_pairs = static_cast<double>(seen * (seen + 1) / 2 + (tokens - seen) * seen);
  else
    out.score_pairs = static_cast<double>(tokens * tokens);
  return out;
}

// Copies of a call one after another, as the op itself or as its parts. The tracer would drop those whose results
// nothing reads, so they are put into the graph one by one.
Result<Graph> graph_of(const OpCase& c, const OpSchema& op, const nn::FusedOp* parts_of, int64_t copies,
                       const OpRegistry& ops) {
  const nn::Meaning itself = [&](std::span<const Tensor> in, const Attrs& attrs) {
    return in[0].tracer()->call(c.op, {in.begin(), in.end()}, attrs);
  };
  ASSIGN_OR_RETURN(const Graph body, nn::trace_meaning(parts_of ? parts_of->meaning : itself, op.operands.size(),
                                                       c.symbols, c.in, c.attrs, ops));
  Graph g(parts_of ? "parts" : "op");
  for (const Symbol& s : c.symbols) RETURN_IF_ERROR(g.add_symbol(s.name, s.bound).status());
  std::vector<Value*> in;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const OpSchema& source = *ops.find(is_weight(op, i, c.in[i]) ? "param" : "input");
    ASSIGN_OR_RETURN(Node * n, g.add_source(source, op.operands[i].name, c.in[i]));
    in.push_back(n->result());
  }
  std::vector<Value*> out;
  for (int64_t k = 0; k < copies; ++k) {
    ASSIGN_OR_RETURN(out, inline_graph(g, body, in, "copy", nullptr));
    const std::vector<size_t> written = mutated_operands(op);
    for (size_t i = 0; i < written.size(); ++i) in[written[i]] = out[i];
  }
  for (size_t i = 0; i < out.size(); ++i) RETURN_IF_ERROR(g.add_output(std::to_string(i), out[i]));
  RETURN_IF_ERROR(verify(g).at(c.op));
  return g;
}

// The same numbers for the same name in every caller; quick, because heads are hundreds of megabytes.
class Numbers {
 public:
  explicit Numbers(std::string_view name) {
    for (char c : name) state_ = state_ * 31 + static_cast<unsigned char>(c);
  }
  float next() {  // in [-1, 1)
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-31f;
  }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15u;
};

// Operands whose numbers are larger than those of others, which no role says: scales that make int8 of what norms give,
// and offsets of some steps.
struct Factor {
  std::string_view operand;
  float factor;
};
constexpr Factor kFactors[] = {{"scale", 40.0f}, {"offset", 5.0f}};

// Values of weights and activations: floats, int8 and the int32 biases of int8 products.
void fill_values(const std::string& name, DType dtype, int64_t n, uint8_t* out) {
  Numbers numbers(name);
  if (dtype == DType::I8 || dtype == DType::I32) {
    for (int64_t i = 0; i < n; ++i) {
      const auto v = static_cast<int32_t>(numbers.next() * (dtype == DType::I8 ? 128.0f : 1e6f));
      std::memcpy(out + i * static_cast<int64_t>(size_of(dtype)), &v, size_of(dtype));  // little-endian
    }
    return;
  }
  const auto* unusual =
      std::find_if(std::begin(kFactors), std::end(kFactors), [&](const Factor& f) { return f.operand == name; });
  const float factor = unusual == std::end(kFactors) ? 1.0f : unusual->factor;
  for (int64_t i = 0; i < n; ++i) {
    const float f = numbers.next() * factor;
    if (size_of(dtype) == 1) {  // below 64, so that a block's factors are finite as well
      out[i] = static_cast<uint8_t>((f + 1) * 32);
      continue;
    }
    const uint16_t half = dtype == DType::BF16 ? float_to_bf16(f) : dtype == DType::F16 ? float_to_half(f) : 0;
    if (dtype == DType::F32)
      std::memcpy(out + 4 * i, &f, 4);
    else
      std::memcpy(out + 2 * i, &half, 2);
  }
}

}  // namespace

struct OpBench::Side {
  ~Side() { model.reset(); }

  KernelSelection selection;
  ParamStore own;
  const ParamStore* params = nullptr;
  Buffer arena;
  std::unique_ptr<CompiledModel> model;

  Status prepare(Graph graph, const Platform& platform, Staging& staging, const Side* other);
  // Brought to the host.
  Result<std::vector<std::vector<uint8_t>>> outputs(Stream& stream) const;
};

namespace {

bool same_layouts(const KernelSelection& a, const KernelSelection& b) {
  return std::equal(a.params.begin(), a.params.end(), b.params.begin(), b.params.end(),
                    [](const ParamPlan& x, const ParamPlan& y) { return x.name == y.name && x.layout == y.layout; });
}

}  // namespace

Status OpBench::Side::prepare(Graph graph, const Platform& platform, Staging& staging, const Side* other) {
  if (other && same_layouts(selection, other->selection)) {
    params = other->params;
  } else {
    ASSIGN_OR_RETURN(own, ParamStore::create(selection.params, *platform.device));
    for (size_t i = 0; i < own.params().size(); ++i) {
      const ParamPlan& p = own.params()[i];
      const int64_t n = p.type.shape.elements(LiveSizes{});
      std::vector<uint8_t> rows(static_cast<size_t>(n) * size_of(p.type.dtype));
      fill_values(p.name, p.type.dtype, n, rows.data());
      RETURN_IF_ERROR(own.pack_rows(i, rows.data(), 0, p.type.shape[0].factor));
    }
    params = &own;
  }
  MemoryPlan plan = plan_memory(graph, selection.workspace);
  ASSIGN_OR_RETURN(arena, platform.device->pool().allocate(plan.arena_bytes, "arena"));
  CompileRequest request;
  request.platform = &platform;
  request.params = params;
  request.staging = &staging;
  request.arena = arena.data();
  ASSIGN_OR_RETURN(model, CompiledModel::compile(std::move(graph), selection, std::move(plan), request));
  model->cut(GraphMode::Whole);
  return Status::ok();
}

Result<std::vector<std::vector<uint8_t>>> OpBench::Side::outputs(Stream& stream) const {
  std::vector<std::vector<uint8_t>> out;
  for (const GraphOutput& o : model->graph().outputs()) {
    const TensorView v = model->view(o.value);
    out.emplace_back(static_cast<size_t>(v.elements()) * size_of(v.dtype));
    if (model->device().info().host_visible)
      std::memcpy(out.back().data(), v.data, out.back().size());
    else
      RETURN_IF_ERROR(stream.copy(out.back().data(), v.data, out.back().size(), Copy::DeviceToHost));
  }
  RETURN_IF_ERROR(stream.synchronize());
  return out;
}

OpBench::~OpBench() = default;

Result<std::unique_ptr<OpBench>> OpBench::make(const OpCase& c, DType dtype, const nn::FusedOps& fused,
                                               const Platform& platform) {
  std::unique_ptr<OpBench> b(new OpBench);
  b->device_ = platform.device.get();
  b->case_ = c;
  b->dtype_ = dtype;
  for (TensorType& t : b->case_.in)
    if (t.dtype == DType::BF16) t.dtype = dtype;
  if (const AttrValue* out = b->case_.attrs.find("out"); out && *out == AttrValue(std::string("bf16")))
    b->case_.attrs.set("out", std::string(dtype_name(dtype)));
  const OpSchema* op = platform.ops->find(c.op);
  if (!op) return error(Code::NotFound, "there is no op {}", c.op);
  b->op_ = op;
  RETURN_IF_ERROR(check_attrs(*op, b->case_.attrs).at(c.op));
  double bytes = 0;
  for (size_t i = 0; i < b->case_.in.size(); ++i)
    if (const TensorType& t = b->case_.in[i]; !is_cache(*op, i))
      bytes += static_cast<double>(t.shape.elements(b->case_.live(1))) * static_cast<double>(size_of(t.dtype));
  b->copies_ = std::clamp(static_cast<int64_t>(kCopyBytes / bytes), int64_t{1}, kMostCopies);
  const bool clocked = b->device_->clock_us().has_value();
  if (clocked) b->copies_ = kModelledCopies;

  const nn::FusedOp* meaning = fused.find(c.op);
  struct Wanted {
    std::unique_ptr<Side>& side;
    const nn::FusedOp* parts_of;  // null: the op itself
    int64_t copies;
  };
  std::vector<Wanted> wanted{{b->fused_, nullptr, b->copies_}};
  if (clocked) wanted.push_back({b->fused_twice_, nullptr, 2 * b->copies_});
  if (meaning) wanted.push_back({b->parts_, meaning, b->copies_});
  if (meaning && clocked) wanted.push_back({b->parts_twice_, meaning, 2 * b->copies_});
  std::vector<std::pair<Side*, Graph>> sides;
  for (auto& [side, parts_of, copies] : wanted) {
    ASSIGN_OR_RETURN(Graph graph, graph_of(b->case_, *op, parts_of, copies, *platform.ops));
    side = std::make_unique<Side>();
    ASSIGN_OR_RETURN(side->selection, select_kernels(graph, platform));
    b->staging_.declare(graph, {});
    sides.emplace_back(side.get(), std::move(graph));
  }
  RETURN_IF_ERROR(b->staging_.allocate(*platform.device));
  b->fill();
  for (auto& side : sides)
    RETURN_IF_ERROR(side.first->prepare(std::move(side.second), platform, b->staging_,
                                        side.first == b->fused_.get() ? nullptr : b->fused_.get()));
  ASSIGN_OR_RETURN(b->stream_, platform.device->make_stream());
  return b;
}

// Inputs at their bounds. Integers are what a decode step has: every token another sequence's, with pages of its own.
// An operand that takes an input of the step has the name of that input.
void OpBench::fill() {
  const LiveSizes bound = case_.bounds();
  int64_t cache_tokens = 0, columns = 1;
  for (size_t i = 0; i < case_.in.size(); ++i) {
    const Shape& s = case_.in[i].shape;
    if (s.rank() == 5) cache_tokens = s[0].value(bound) * s[3].value(bound);
    if (op_->operands[i].name == models::kPageTableInput) columns = s[1].value(bound);
  }
  for (size_t i = 0; i < case_.in.size(); ++i) {
    const std::string& name = op_->operands[i].name;
    if (is_weight(*op_, i, case_.in[i])) continue;
    const TensorType& type = case_.in[i];
    const int64_t n = type.shape.elements(bound);
    auto* data = static_cast<uint8_t*>(staging_.input(name).value().data);
    if (type.dtype == DType::I8 && type.shape.rank() == 5) {
      std::memset(data, 0x3c, static_cast<size_t>(n));  // any four bytes of it are a usual scale
      continue;
    }
    if (type.dtype != DType::I32) {
      fill_values(name, type.dtype, n, data);
      continue;
    }
    const int64_t apart = std::max<int64_t>(1, std::min<int64_t>(kPageTokens, cache_tokens / std::max<int64_t>(1, n)));
    for (int64_t k = 0; k < n; ++k) {
      const int64_t v = name == models::kSlotsInput        ? k * apart
                        : name == models::kLengthsInput    ? columns * kPageTokens
                        : name == models::kStateWriteInput ? n + k  // behind those that are read
                                                           : k;     // pages and borders of sequences, rows
      const auto v32 = static_cast<int32_t>(v);
      std::memcpy(data + 4 * k, &v32, 4);
    }
  }
}

// Its borders, its length, and the row that stands for it: the last.
void OpBench::end_sequence(int64_t tokens) {
  const auto size = static_cast<int32_t>(tokens);
  for (size_t i = 0; i < case_.in.size(); ++i) {
    const OperandSchema& o = op_->operands[i];
    if (o.role != OperandRole::Index || case_.in[i].shape.rank() != 1) continue;
    const int32_t borders[] = {0, size}, length[] = {size}, row[] = {size - 1};
    void* data = staging_.input(o.name).value().data;
    if (o.name == models::kCuSeqlensInput)
      std::memcpy(data, borders, sizeof borders);
    else
      std::memcpy(data, o.name == models::kLengthsInput ? length : row, sizeof row);
  }
}

void OpBench::route(int64_t tokens) {
  if (case_.one_sequence) end_sequence(tokens);
  if (case_.experts == 0) return;
  const Routing routing = Routing::of(tokens, case_.experts, case_.per_token);
  for (size_t i = 0; i < case_.in.size(); ++i) {
    const std::string& name = op_->operands[i].name;
    if (const std::vector<int32_t>* values = routing.find(name))
      std::memcpy(staging_.input(name).value().data, values->data(), values->size() * sizeof(int32_t));
  }
}

std::string OpBench::shape(int64_t tokens) const {
  std::string out;
  const LiveSizes live = case_.live(tokens);
  for (const TensorType& t : case_.in) {
    std::vector<int64_t> sizes;
    for (Dim d : t.shape.dims()) sizes.push_back(d.value(live));
    out += fmt::format("{}[{}]", out.empty() ? "" : " ", fmt::join(sizes, ","));
    if (t.dtype != dtype_) out += dtype_name(t.dtype);
  }
  return out;
}

Status OpBench::check(int64_t tokens) {
  if (!parts_) return Status::ok();
  route(tokens);
  const LiveSizes live = case_.live(tokens);
  std::vector<std::vector<uint8_t>> seen[2];
  Side* sides[] = {fused_.get(), parts_.get()};
  for (int i = 0; i < 2; ++i) {
    if (op_->mutated_operand() >= 0) fill();
    RETURN_IF_ERROR(sides[i]->model->capture(tokens, live));
    RETURN_IF_ERROR(replay_once(*sides[i]->model, tokens, live));
    ASSIGN_OR_RETURN(seen[i], sides[i]->outputs(*stream_));
  }
  for (size_t o = 0; o < seen[0].size(); ++o) {
    const auto& a = seen[0][o];
    const auto& b = seen[1][o];
    if (a == b) continue;
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    return error(Code::Internal, "{} {} {}: result {} differs from its parts' at byte {} of {}", case_.op,
                 dtype_name(dtype_), shape(tokens), o, at, a.size());
  }
  return Status::ok();
}

Status OpBench::replay_once(CompiledModel& model, int64_t tokens, const LiveSizes& live) {
  RETURN_IF_ERROR(model.replay(tokens, live, *stream_));
  return stream_->synchronize();
}

Status OpBench::replay(int64_t tokens, int64_t times) {
  route(tokens);
  RETURN_IF_ERROR(fused_->model->capture(tokens, case_.live(tokens)));
  return times > 0 ? sample(*fused_, tokens, times).status() : Status::ok();
}

Result<double> OpBench::sample(Side& side, int64_t tokens, int64_t replays) {
  const LiveSizes live = case_.live(tokens);
  const auto begin = Clock::now();
  for (int64_t i = 0; i < replays; ++i) RETURN_IF_ERROR(replay_once(*side.model, tokens, live));
  return seconds_since(begin) / static_cast<double>(replays);
}

Result<double> OpBench::modelled_us(Side& once, Side& twice, int64_t tokens, bool captured) {
  const LiveSizes live = case_.live(tokens);
  double us[2] = {};
  for (int i = 0; i < 2; ++i) {
    CompiledModel& m = *(i == 0 ? once : twice).model;
    if (captured) RETURN_IF_ERROR(m.capture(tokens, live));
    for (int run = 0; run < 2; ++run) {  // the first makes the operators known to this thread
      const double begin = now_us(*device_);
      RETURN_IF_ERROR(captured ? replay_once(m, tokens, live) : m.run(live, *stream_));
      us[i] = now_us(*device_) - begin;
    }
  }
  return (us[1] - us[0]) / static_cast<double>(copies_);
}

Result<OpTimes> OpBench::modelled(int64_t tokens) {
  OpTimes out;
  ASSIGN_OR_RETURN(out.fused_us, modelled_us(*fused_, *fused_twice_, tokens, true));
  ASSIGN_OR_RETURN(out.eager_fused_us, modelled_us(*fused_, *fused_twice_, tokens, false));
  if (!parts_) return out;
  ASSIGN_OR_RETURN(out.unfused_us, modelled_us(*parts_, *parts_twice_, tokens, true));
  ASSIGN_OR_RETURN(out.eager_unfused_us, modelled_us(*parts_, *parts_twice_, tokens, false));
  return out;
}

Result<OpTimes> OpBench::measure(int64_t tokens, int64_t repeat) {
  route(tokens);
  if (fused_twice_) return modelled(tokens);
  struct Timed {
    Side* side = nullptr;
    int64_t replays = 1;
    std::vector<double> seconds = {};
  };
  std::vector<Timed> timed;
  for (Side* side : {fused_.get(), parts_.get()})
    if (side) timed.push_back({side});
  for (Timed& t : timed) {
    RETURN_IF_ERROR(t.side->model->capture(tokens, case_.live(tokens)));
    for (double s = 0; s < kSampleSeconds;) {
      ASSIGN_OR_RETURN(s, sample(*t.side, tokens, t.replays));
      if ((s *= static_cast<double>(t.replays)) < kSampleSeconds) t.replays *= 2;
    }
  }
  const auto begin = Clock::now();
  for (int64_t r = 0; r < repeat; ++r) {
    // In turn and each side first in turn, so that a change of the machine's speed hits both.
    for (size_t i = 0; i < timed.size(); ++i) {
      Timed& t = timed[(i + static_cast<size_t>(r)) % timed.size()];
      // One that is not timed brings the side's own bytes back into the caches.
      if (t.replays > 1) RETURN_IF_ERROR(sample(*t.side, tokens, 1).status());
      ASSIGN_OR_RETURN(const double s, sample(*t.side, tokens, t.replays));
      t.seconds.push_back(s / static_cast<double>(copies_) * 1e6);
    }
    if (seconds_since(begin) > kRowSeconds && timed[0].seconds.size() >= kLeastSamples) break;
  }
  OpTimes out;
  out.fused_us = median(timed[0].seconds);
  if (timed.size() > 1) out.unfused_us = median(timed[1].seconds);
  return out;
}

OpLimit OpBench::limit(int64_t tokens, const MachineSpeed& machine, const CacheSpeeds& caches) const {
  const StepSizes sizes = sizes_of(*op_, case_, tokens);
  OpLimit out;
  // The last call stands for all; everything before its parts belongs to the copies before it.
  const Graph& graph = fused_->model->graph();
  out.bytes = cost_of(*graph.last(), sizes).bytes();
  if (fused_twice_) return out;
  const CacheLevel& level = caches.level_for(out.bytes);
  out.us = level.read_GBps > 0 ? out.bytes / level.read_GBps * 1e-3 : 0;
  out.by = level.name;

  const Graph& parts = (parts_ ? parts_ : fused_)->model->graph();
  double compute_us = 0;
  for (const Node* n = parts.first(); n; n = n->next) {
    if (n->is_source()) continue;
    const NodeCost cost = cost_of(*n, sizes);
    compute_us += cost.flops / peak_gflops(machine, cost.dtype) * 1e-3;
    // The peak counts a multiply-add as two.
    compute_us += 2 * instructions_of(*n, sizes.live, machine.bf16_gflops.has_value()) / machine.fp32_gflops * 1e-3;
  }
  compute_us /= static_cast<double>(copies_);
  if (compute_us > out.us) {
    out.us = compute_us;
    out.by = "instructions";
  }
  return out;
}

}  // namespace reprise::measurement
