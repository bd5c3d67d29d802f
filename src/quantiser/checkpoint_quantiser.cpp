#include "quantiser/checkpoint_quantiser.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <unordered_map>

#include "base/half.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/quantise_rows.h"

namespace reprise::quantiser {
namespace {

using checkpoint::Checkpoint;
using checkpoint::CheckpointTensor;
using Tensor = QuantisedCheckpoint::Tensor;

bool holds_one_of(std::string_view name, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](auto& p) { return name.find(p) != std::string_view::npos; });
}

// Runs `work` on row blocks of [0, rows) from several threads.
void for_rows(int64_t rows, int threads, const std::function<void(int64_t begin, int64_t end)>& work) {
  constexpr int64_t kBlock = 64;
  std::atomic<int64_t> next{0};
  const auto run = [&] {
    for (int64_t r; (r = next.fetch_add(kBlock)) < rows;) work(r, std::min(rows, r + kBlock));
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(run);
  run();
  for (auto& t : others) t.join();
}

// Sixteen chains, so that the compiler may use vectors; errors are measured with it, nothing else.
double dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  double sum = 0;
  for (float lane : lanes) sum += static_cast<double>(lane);
  for (; i < n; ++i) sum += static_cast<double>(a[i] * b[i]);
  return sum;
}

float rounded(DType dtype, float v) {
  if (dtype == DType::BF16) return bf16_to_float(float_to_bf16(v));
  if (dtype == DType::F16) return half_to_float(float_to_half(v));
  return v;
}

template <typename T>
Tensor tensor_of(std::string name, DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  Tensor t{std::move(name), dtype, std::move(shape), {}};
  t.bytes.resize(values.size() * sizeof(T));
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}

Tensor floats_of(std::string name, DType dtype, std::vector<int64_t> shape, const std::vector<float>& values) {
  if (dtype == DType::F32) return tensor_of(std::move(name), dtype, std::move(shape), values);
  std::vector<uint16_t> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    halves[i] = dtype == DType::BF16 ? float_to_bf16(values[i]) : float_to_half(values[i]);
  return tensor_of(std::move(name), dtype, std::move(shape), halves);
}

// What smoothing does to the tensors: columns multiplied, rows (or a vector's elements) divided.
struct Smoothing {
  std::unordered_map<std::string, std::vector<float>> columns, rows;
};

struct Range {
  float scale = 1, offset = 0;
};

class Quantiser {
 public:
  Quantiser(const Checkpoint& checkpoint, const InputObservations& seen, const QuantiseOptions& options,
            const std::function<void(const std::string&)>& progress)
      : checkpoint_(checkpoint), seen_(seen), options_(options), progress_(progress) {}

  Result<QuantisedCheckpoint> run() {
    for (const CheckpointTensor& t : checkpoint_.tensors())
      if (!checkpoint::readable_as_float(t.type))
        return error(Code::Unsupported, "{}: tensor {} is stored as {}; only float checkpoints can be quantised",
                     checkpoint_.source(), t.name, t.type_name);
    if (options_.smooth > 0) RETURN_IF_ERROR(find_smoothing());
    for (const CheckpointTensor& t : checkpoint_.tensors()) {
      if (progress_) progress_(t.name);
      if (quantised(t)) {
        RETURN_IF_ERROR(quantise(t));
      } else {
        ASSIGN_OR_RETURN(const std::vector<float> values, read(t));
        RETURN_IF_ERROR(fits(t, values));
        out_.tensors.push_back(floats_of(t.name, options_.dtype, t.shape, values));
        if (checkpoint::is_linear_weight(t)) float_linears_.push_back(t.name);
      }
      checkpoint_.release(t);
    }
    if (out_.linears.empty())
      return invalid("{}: no linear is left to quantise; ignored: {}", checkpoint_.source(),
                     fmt::join(options_.ignore, ", "));
    describe();
    return std::move(out_);
  }

 private:
  bool quantised(const CheckpointTensor& t) const {
    return checkpoint::is_linear_weight(t) && !holds_one_of(t.name, options_.ignore);
  }
  bool is_static(std::string_view weight) const {
    return options_.static_activations && !holds_one_of(weight, options_.dynamic);
  }

  // The tensor in fp32 as smoothing leaves it.
  Result<std::vector<float>> read(const CheckpointTensor& t) const {
    ASSIGN_OR_RETURN(std::vector<float> values, checkpoint::read_numbers(checkpoint_, t));
    const auto width = static_cast<size_t>(t.shape.size() == 1 ? 1 : t.row_elements());
    if (auto it = smoothing_.rows.find(t.name); it != smoothing_.rows.end())
      for (size_t i = 0; i < values.size(); ++i) values[i] /= it->second[i / width];
    if (auto it = smoothing_.columns.find(t.name); it != smoothing_.columns.end())
      for (size_t i = 0; i < values.size(); ++i) values[i] *= it->second[i % width];
    return values;
  }

  // A float16 checkpoint of larger numbers would be written as infinities.
  Status fits(const CheckpointTensor& t, const std::vector<float>& values) const {
    for (const float v : values)
      if (!std::isfinite(rounded(options_.dtype, v)))
        return invalid("{}: tensor {} holds {}, which {} cannot", checkpoint_.source(), t.name, v,
                       dtype_name(options_.dtype));
    return Status::ok();
  }

  Result<const InputStatistics*> input_of(const std::string& weight) const {
    auto it = seen_.find(weight);
    if (it != seen_.end()) return &it->second;
    return error(Code::Internal, "the calibration run has not seen the input of {}", weight);
  }

  Status find_smoothing() {
    constexpr std::string_view kQuery = "self_attn.q_proj.weight", kUp = "mlp.up_proj.weight";
    for (const CheckpointTensor& t : checkpoint_.tensors()) {
      if (t.name.ends_with(kQuery)) {
        const std::string layer = t.name.substr(0, t.name.size() - kQuery.size());
        RETURN_IF_ERROR(smooth(
            {layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight"},
            layer + "input_layernorm.weight"));
      } else if (t.name.ends_with(kUp)) {
        const std::string layer = t.name.substr(0, t.name.size() - kUp.size());
        RETURN_IF_ERROR(smooth({layer + "mlp.gate_proj.weight", t.name}, layer + "post_attention_layernorm.weight"));
        RETURN_IF_ERROR(smooth({layer + "mlp.down_proj.weight"}, t.name));
      }
    }
    if (smoothing_.columns.empty())
      return error(Code::Unsupported, "{}: no layer with self_attn.q_proj or mlp.up_proj to smooth",
                   checkpoint_.source());
    return Status::ok();
  }

  // Moves scale from the columns that `readers` multiply to the rows of `maker` (and its bias).
  Status smooth(const std::vector<std::string>& readers, const std::string& maker) {
    ASSIGN_OR_RETURN(const CheckpointTensor* made_by, checkpoint_.get(maker));
    ASSIGN_OR_RETURN(const InputStatistics* x, input_of(readers[0]));
    std::vector<float> largest(static_cast<size_t>(x->width()));
    for (const std::string& name : readers) {
      ASSIGN_OR_RETURN(const CheckpointTensor* t, checkpoint_.get(name));
      if (holds_one_of(name, options_.ignore)) return Status::ok();  // a float reader gains nothing
      if (t->row_elements() != x->width() || made_by->shape[0] != x->width())
        return invalid("{}: {} and {} do not fit together", checkpoint_.source(), maker, name);
      ASSIGN_OR_RETURN(const std::vector<float> w, checkpoint::read_numbers(checkpoint_, *t));
      for (size_t i = 0; i < w.size(); ++i) {
        float& l = largest[i % largest.size()];
        l = std::max(l, std::fabs(w[i]));
      }
    }
    std::vector<float> s(largest.size(), 1.0f);
    for (size_t k = 0; k < s.size(); ++k) {
      const double in = std::max(std::fabs(x->low[k]), std::fabs(x->high[k]));
      const double v = std::pow(in, options_.smooth) / std::pow(static_cast<double>(largest[k]), 1 - options_.smooth);
      constexpr double kLeast = 1e-5, kMost = 1e5;
      if (in > 0 && largest[k] > 0) s[k] = static_cast<float>(std::clamp(v, kLeast, kMost));
    }
    for (const std::string& name : readers) smoothing_.columns[name] = s;
    smoothing_.rows[maker] = s;
    const std::string bias = std::string(checkpoint::module_of(maker)) + ".bias";
    if (checkpoint_.find(bias)) smoothing_.rows[bias] = std::move(s);
    return Status::ok();
  }

  // One scale and offset for everything that goes into the linear; numbers as they are stored.
  Result<Range> range_of(const std::string& weight) const {
    ASSIGN_OR_RETURN(const InputStatistics* x, input_of(weight));
    const auto smooth = smoothing_.columns.find(weight);
    float low = 0, high = 0;  // zero is always exact: padding and silent channels stay silent
    for (size_t k = 0; k < x->low.size(); ++k) {
      const float s = smooth == smoothing_.columns.end() ? 1.0f : smooth->second[k];
      low = std::min(low, x->low[k] / s);
      high = std::max(high, x->high[k] / s);
    }
    const DType stored = options_.format == QuantFormat::ModelSlim ? options_.dtype : DType::F32;
    Range r;
    r.scale = rounded(stored, (high - low) / 255.0f);
    if (!(r.scale > 0)) r.scale = 1;
    r.offset = std::clamp(std::nearbyint(-128.0f - low / r.scale), -128.0f, 127.0f);
    return r;
  }

  Status quantise(const CheckpointTensor& t) {
    const int64_t n = t.shape[0], k = t.row_elements();
    const std::string module(checkpoint::module_of(t.name));
    const bool slim = options_.format == QuantFormat::ModelSlim;
    ASSIGN_OR_RETURN(const std::vector<float> w, read(t));
    std::vector<float> scales(static_cast<size_t>(n));
    std::vector<int8_t> q(w.size());
    std::vector<int64_t> sums(static_cast<size_t>(n));
    for_rows(n, options_.threads, [&](int64_t begin, int64_t end) {
      checkpoint::row_scales(w.data() + begin * k, end - begin, k, scales.data() + begin);
      // Quantised with the scale that is stored, so that its rounding costs nothing.
      if (slim)
        for (int64_t r = begin; r < end; ++r)
          scales[static_cast<size_t>(r)] = rounded(options_.dtype, scales[static_cast<size_t>(r)]);
      checkpoint::quantise_rows(w.data() + begin * k, scales.data() + begin, end - begin, k, q.data() + begin * k);
      for (int64_t r = begin; r < end; ++r)
        for (int64_t i = 0; i < k; ++i) sums[static_cast<size_t>(r)] += q[static_cast<size_t>(r * k + i)];
    });

    QuantisedLinear report{t.name, is_static(t.name), 0, {}};
    Range range;
    if (report.is_static) {
      ASSIGN_OR_RETURN(range, range_of(t.name));
    }
    measure(t.name, w, scales, q, n, k, range, report);
    out_.tensors.push_back(tensor_of(t.name, DType::I8, {n, k}, q));
    const std::vector<int64_t> column{n, 1};
    out_.tensors.push_back(floats_of(module + ".weight_scale", slim ? options_.dtype : DType::F32, column, scales));
    if (slim)
      out_.tensors.push_back(
          floats_of(module + ".weight_offset", options_.dtype, column, std::vector<float>(static_cast<size_t>(n))));
    if (report.is_static && slim) RETURN_IF_ERROR(add_slim_static(module, scales, sums, range));
    if (report.is_static && !slim) {
      out_.tensors.push_back(floats_of(module + ".input_scale", DType::F32, {1}, {range.scale}));
      out_.tensors.push_back(tensor_of(module + ".input_zero_point", DType::I8, {1},
                                       std::vector<int8_t>{static_cast<int8_t>(range.offset)}));
    }
    out_.linears.push_back(std::move(report));
    return Status::ok();
  }

  // deq_scale = s_in s_w; quant_bias = -o_in sum_k W + round(bias / deq_scale).
  Status add_slim_static(const std::string& module, const std::vector<float>& scales, const std::vector<int64_t>& sums,
                         const Range& range) {
    std::vector<float> bias;
    if (const CheckpointTensor* t = checkpoint_.find(module + ".bias")) {
      ASSIGN_OR_RETURN(bias, read(*t));
    }
    std::vector<float> deq(scales.size());
    std::vector<int32_t> folded(scales.size());
    for (size_t i = 0; i < scales.size(); ++i) {
      deq[i] = range.scale * scales[i];
      double b = -static_cast<double>(range.offset) * static_cast<double>(sums[i]);
      if (!bias.empty() && deq[i] > 0) b += std::nearbyint(static_cast<double>(bias[i]) / static_cast<double>(deq[i]));
      if (std::fabs(b) > 2147483647.0)
        return invalid("{}: the bias of {}, row {}, does not fit into 32 bits", checkpoint_.source(), module, i);
      folded[i] = static_cast<int32_t>(b);
    }
    const auto n = static_cast<int64_t>(scales.size());
    out_.tensors.push_back(floats_of(module + ".input_scale", options_.dtype, {1}, {range.scale}));
    out_.tensors.push_back(floats_of(module + ".input_offset", options_.dtype, {1}, {range.offset}));
    out_.tensors.push_back(tensor_of(module + ".quant_bias", DType::I32, {n}, folded));
    if (options_.dtype == DType::F16) {
      std::vector<int64_t> bits(deq.size());
      for (size_t i = 0; i < deq.size(); ++i) bits[i] = std::bit_cast<uint32_t>(deq[i]);
      out_.tensors.push_back(tensor_of(module + ".deq_scale", DType::I64, {n}, bits));
    } else {
      out_.tensors.push_back(floats_of(module + ".deq_scale", DType::F32, {n}, deq));
    }
    return Status::ok();
  }

  void measure(const std::string& name, const std::vector<float>& w, const std::vector<float>& scales,
               const std::vector<int8_t>& q, int64_t n, int64_t k, const Range& range, QuantisedLinear& report) const {
    std::vector<float> back(w.size());
    double off = 0, all = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      back[i] = static_cast<float>(q[i]) * scales[i / static_cast<size_t>(k)];
      off += static_cast<double>((w[i] - back[i]) * (w[i] - back[i]));
      all += static_cast<double>(w[i] * w[i]);
    }
    report.weight_error = all > 0 ? std::sqrt(off / all) : 0;
    const auto seen = seen_.find(name);
    if (seen == seen_.end() || seen->second.samples == 0) return;
    // The sample rows as the linear gets them, and as they are once quantised.
    const int64_t rows = seen->second.samples;
    std::vector<float> x = seen->second.sample, xq(x.size());
    if (auto s = smoothing_.columns.find(name); s != smoothing_.columns.end())
      for (size_t i = 0; i < x.size(); ++i) x[i] /= s->second[i % static_cast<size_t>(k)];
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x.data() + r * k;
      float* to = xq.data() + r * k;
      float scale = range.scale, offset = range.offset;
      if (!report.is_static) {
        float largest = 0;
        for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::fabs(row[i]));
        scale = largest / 127.0f;
        offset = 0;
      }
      for (int64_t i = 0; i < k; ++i)
        to[i] =
            scale > 0 ? (std::clamp(std::nearbyint(row[i] / scale + offset), -128.0f, 127.0f) - offset) * scale : 0.0f;
    }
    std::vector<double> error(static_cast<size_t>(n)), size(static_cast<size_t>(n));
    for_rows(n, options_.threads, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        for (int64_t r = 0; r < rows; ++r) {
          const double y = dot(x.data() + r * k, w.data() + c * k, k);
          const double d = y - dot(xq.data() + r * k, back.data() + c * k, k);
          error[static_cast<size_t>(c)] += d * d;
          size[static_cast<size_t>(c)] += y * y;
        }
    });
    double d = 0, y = 0;
    for (size_t c = 0; c < error.size(); ++c) {
      d += error[c];
      y += size[c];
    }
    report.output_error = y > 0 ? std::sqrt(d / y) : 0;
  }

  void describe() {
    if (options_.format == QuantFormat::ModelSlim) {
      out_.description = Json::object();
      out_.description["model_quant_type"] = options_.static_activations ? "W8A8" : "W8A8_DYNAMIC";
      for (const Tensor& t : out_.tensors) out_.description[t.name] = "FLOAT";
      for (const QuantisedLinear& l : out_.linears) {
        const std::string module(checkpoint::module_of(l.weight));
        for (const char* leaf : {".weight", ".weight_scale", ".weight_offset", ".input_scale", ".input_offset",
                                 ".quant_bias", ".deq_scale", ".bias"})
          if (out_.description.contains(module + leaf))
            out_.description[module + leaf] = l.is_static ? "W8A8" : "W8A8_DYNAMIC";
      }
      return;
    }
    const auto scheme = [](bool dynamic) {
      Json in = {{"num_bits", 8},
                 {"type", "int"},
                 {"symmetric", dynamic},
                 {"dynamic", dynamic},
                 {"strategy", dynamic ? "token" : "tensor"}};
      Json weights = {
          {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"dynamic", false}, {"strategy", "channel"}};
      return Json{{"weights", weights}, {"input_activations", in}, {"output_activations", nullptr}};
    };
    Json groups = Json::object(), by_text = Json::array(), by_token = Json::array();
    for (const QuantisedLinear& l : out_.linears)
      (l.is_static ? by_text : by_token).push_back(std::string(checkpoint::module_of(l.weight)));
    // By class where one scheme serves all, else by name.
    const bool one = by_text.empty() || by_token.empty();
    for (const auto& [names, dynamic] : {std::pair{&by_text, false}, std::pair{&by_token, true}}) {
      if (names->empty()) continue;
      Json group = scheme(dynamic);
      group["targets"] = one ? Json::array({"Linear"}) : *names;
      groups[fmt::format("group_{}", groups.size())] = std::move(group);
    }
    Json ignore = Json::array();
    for (const std::string& name : float_linears_) ignore.push_back(std::string(checkpoint::module_of(name)));
    // A head that shares the embedding's table has no tensor of its own.
    if (!checkpoint_.find("lm_head.weight")) ignore.push_back("lm_head");
    out_.quantization_config = {
        {"quant_method", "compressed-tensors"}, {"format", "int-quantized"}, {"quantization_status", "compressed"},
        {"kv_cache_scheme", nullptr},           {"config_groups", groups},   {"ignore", ignore}};
  }

  const Checkpoint& checkpoint_;
  const InputObservations& seen_;
  const QuantiseOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  Smoothing smoothing_;
  QuantisedCheckpoint out_;
  std::vector<std::string> float_linears_;
};

}  // namespace

Result<QuantisedCheckpoint> quantise_checkpoint(const Checkpoint& checkpoint, const InputObservations& seen,
                                                const QuantiseOptions& options,
                                                const std::function<void(const std::string&)>& progress) {
  if (options.dtype != DType::BF16 && options.dtype != DType::F16 &&
      !(options.dtype == DType::F32 && options.format == QuantFormat::CompressedTensors))
    return invalid("dtype {} of what stays float; allowed: bfloat16, float16{}", dtype_name(options.dtype),
                   options.format == QuantFormat::CompressedTensors ? ", float32" : " (ModelSlim knows no other)");
  return Quantiser(checkpoint, seen, options, progress).run();
}

}  // namespace reprise::quantiser
