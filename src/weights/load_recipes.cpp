#include "weights/load_recipes.h"

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "base/split_mix.h"
#include "checkpoint/quantisation.h"
#include "checkpoint/quantise_rows.h"

namespace reprise::weights {
namespace {

using checkpoint::Checkpoint;
using checkpoint::CheckpointTensor;

bool is_vector(const ParamPlan& p) { return p.type.shape.rank() == 1; }
int64_t width_of(const ParamPlan& p) { return reprise::width_of(p.type.shape); }

// Recipes that read a matrix of `columns` columns for every row they make.
bool reads_matrix(Recipe r) {
  return r == Recipe::QuantisedRows || r == Recipe::RowScales || r == Recipe::ZeroPointSums;
}

// Rows of the tensor that a part is some of, or all.
int64_t tensor_rows(const ParamPart& part) { return part.of ? part.of : part.all_rows(); }

// Recipes whose row r is made of row part.first + r of the tensor and nothing else.
bool counts_from_first(Recipe r) {
  return reads_matrix(r) || r == Recipe::Numbers || r == Recipe::InputScales || r == Recipe::Reciprocals ||
         r == Recipe::DeqScales || r == Recipe::ScaleProducts;
}

// The parameter as wide as the rows that its part is some columns of.
ParamPlan with_all_columns(const ParamPlan& param, const ParamPart& part) {
  ParamPlan all = param;
  if (part.all_columns > 0) all.type.shape[all.type.shape.rank() - 1] = Dim(part.all_columns);
  return all;
}

// The columns of the part, from rows of all columns in `all`.
void take_columns(const ParamPlan& param, const ParamPart& part, int64_t rows, const std::vector<uint8_t>& all,
                  std::vector<uint8_t>& out) {
  const size_t element = size_of(param.type.dtype), width = static_cast<size_t>(width_of(param)) * element;
  const size_t stride = static_cast<size_t>(part.all_columns) * element;
  if (out.size() < static_cast<size_t>(rows) * width) out.resize(static_cast<size_t>(rows) * width);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
    std::memcpy(out.data() + r * width, all.data() + r * stride + static_cast<size_t>(part.column) * element, width);
}

ParamPart without_columns(ParamPart part) {
  part.column = part.all_columns = 0;
  return part;
}

Status want_shape(const Checkpoint& c, const CheckpointTensor& t, const std::vector<int64_t>& shape) {
  if (t.shape == shape) return Status::ok();
  return invalid("{}: tensor {} has the shape [{}], the configuration asks for [{}]", c.source(), t.name,
                 fmt::join(t.shape, ", "), fmt::join(shape, ", "));
}

Status want_elements(const Checkpoint& c, const CheckpointTensor& t, int64_t rows, bool one_is_enough) {
  if (t.elements() == rows || (one_is_enough && t.elements() == 1)) return Status::ok();
  return invalid("{}: tensor {} has the shape [{}], the configuration asks for {} elements{}", c.source(), t.name,
                 fmt::join(t.shape, ", "), rows, one_is_enough && rows != 1 ? ", or one" : "");
}

// Element r of numbers, of which a single one serves all rows.
float at(const std::vector<float>& numbers, int64_t r) {
  return numbers.size() == 1 ? numbers[0] : numbers[static_cast<size_t>(r)];
}

template <typename T>
T* grown(std::vector<uint8_t>& out, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  if (out.size() < bytes) out.resize(bytes);
  return reinterpret_cast<T*>(out.data());
}

// Float rows of a matrix.
Result<std::vector<float>> float_rows(const Checkpoint& c, const CheckpointTensor& t, RowBlock rows, uint64_t* bad) {
  std::vector<float> out(static_cast<size_t>(rows.count * t.row_elements()));
  RETURN_IF_ERROR(c.read_rows(t, rows.first, rows.count, DType::F32, out.data(), bad));
  return out;
}

// Rows of the part are columns of rows [part.first, part.first + part.columns) of the tensor, which `in` holds.
void transpose(const std::vector<uint8_t>& in, size_t width, const ParamPart& part, RowBlock rows, size_t element,
               uint8_t* out) {
  const auto columns = static_cast<size_t>(part.columns), first = static_cast<size_t>(rows.first);
  for (size_t r = 0; r < static_cast<size_t>(rows.count); ++r)
    for (size_t i = 0; i < columns; ++i)
      std::memcpy(out + (r * columns + i) * element, in.data() + (i * width + first + r) * element, element);
}

Status transposed_rows(const Checkpoint& c, const CheckpointTensor& t, const ParamPart& part, RowBlock rows,
                       DType dtype, uint8_t* out, uint64_t* bad) {
  const auto width = static_cast<size_t>(t.row_elements());
  std::vector<uint8_t> in(static_cast<size_t>(part.columns) * width * size_of(dtype));
  uint64_t all_bad = 0;  // every block of the part reads the same rows
  RETURN_IF_ERROR(c.read_rows(t, part.first, part.columns, dtype, in.data(), &all_bad));
  if (rows.first == part.from) *bad += all_bad;
  transpose(in, width, part, rows, size_of(dtype), out);
  return Status::ok();
}

void store(DType dtype, void* out, int64_t i, float v) {
  switch (dtype) {
    case DType::BF16: static_cast<uint16_t*>(out)[i] = float_to_bf16(v); break;
    case DType::F16: static_cast<uint16_t*>(out)[i] = float_to_half(v); break;
    case DType::I8: static_cast<int8_t*>(out)[i] = static_cast<int8_t>(v); break;
    case DType::U8: static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(v); break;
    case DType::I32: static_cast<int32_t*>(out)[i] = static_cast<int32_t>(v); break;
    default: static_cast<float*>(out)[i] = v; break;
  }
}

// Integers of rows [first, first + count) of the tensor times their scales, in the parameter's dtype.
Result<std::vector<uint8_t>> dequantised(const Checkpoint& c, const CheckpointTensor& t, const CheckpointTensor& scale,
                                         RowBlock rows, DType dtype) {
  ASSIGN_OR_RETURN(const std::vector<float> scales, checkpoint::read_numbers(c, scale));
  const int64_t width = t.row_elements();
  std::vector<int8_t> integers(static_cast<size_t>(rows.count * width));
  RETURN_IF_ERROR(c.read_rows(t, rows.first, rows.count, DType::I8, integers.data()));
  std::vector<uint8_t> out(integers.size() * size_of(dtype));
  for (int64_t r = 0; r < rows.count; ++r)
    for (int64_t i = r * width; i < (r + 1) * width; ++i)
      store(dtype, out.data(), i, static_cast<float>(integers[static_cast<size_t>(i)]) * at(scales, rows.first + r));
  return out;
}

Status zero_point_sums(const Checkpoint& c, const CheckpointTensor& weight, const CheckpointTensor& point,
                       RowBlock rows, int32_t* out) {
  ASSIGN_OR_RETURN(const std::vector<float> zero_point, checkpoint::read_numbers(c, point));
  const auto zero = static_cast<int64_t>(std::nearbyint(zero_point[0]));
  const int64_t width = weight.row_elements();
  std::vector<int8_t> w(static_cast<size_t>(rows.count * width));
  RETURN_IF_ERROR(c.read_rows(weight, rows.first, rows.count, DType::I8, w.data()));
  for (int64_t r = 0; r < rows.count; ++r) {
    int64_t sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += w[static_cast<size_t>(r * width + i)];
    out[r] = static_cast<int32_t>(-zero * sum);
  }
  return Status::ok();
}

uint64_t hash_name(std::string_view name) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325u;
  for (char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return h;
}

// For parameters with a number a row.
Status number_rows(const Checkpoint& c, const CheckpointTensor& t, const ParamPart& part, RowBlock rows, DType dtype,
                   uint8_t* bytes) {
  if (part.recipe == Recipe::DeqScales) {
    ASSIGN_OR_RETURN(const std::vector<float> in, checkpoint::read_deq_scales(c, t));
    for (int64_t r = 0; r < rows.count; ++r) reinterpret_cast<float*>(bytes)[r] = at(in, rows.first + r);
    return Status::ok();
  }
  ASSIGN_OR_RETURN(const std::vector<float> in, checkpoint::read_numbers(c, t));
  if (part.recipe == Recipe::ScaleProducts) {
    ASSIGN_OR_RETURN(const std::vector<float> other, checkpoint::read_numbers(c, *c.find(part.other)));
    for (int64_t r = 0; r < rows.count; ++r) reinterpret_cast<float*>(bytes)[r] = at(in, rows.first + r) * other[0];
    return Status::ok();
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    const float v = at(in, rows.first + r);
    store(dtype, bytes, r, part.recipe == Recipe::Reciprocals ? 1.0f / v : v);
  }
  return Status::ok();
}

}  // namespace

std::vector<std::string> tensors_of(const ParamPart& part) {
  std::vector<std::string> out;
  for (const std::string& name : {part.tensor, part.other})
    if (!name.empty()) out.push_back(name);
  return out;
}

Status check_part(const Checkpoint& c, const ParamPlan& param, const ParamPart& part) {
  if (part.recipe == Recipe::Zeros) return Status::ok();
  if (part.all_columns > 0) return check_part(c, with_all_columns(param, part), without_columns(part));
  const CheckpointTensor& t = *c.find(part.tensor);
  const auto want_type = [&](bool good, std::string_view allowed) {
    return good ? Status::ok()
                : invalid("{}: tensor {} is stored as {}; allowed: {}", c.source(), t.name, t.type_name, allowed);
  };
  const bool to_floats = part.recipe == Recipe::Dequantised || part.recipe == Recipe::DequantisedTransposed;
  if (!part.other.empty()) RETURN_IF_ERROR(want_elements(c, *c.find(part.other), to_floats ? t.rows() : 1, to_floats));
  switch (part.recipe) {
    case Recipe::Converted: {
      std::vector<int64_t> shape{part.of ? part.of : part.all_rows()};
      if (!is_vector(param)) shape.push_back(width_of(param));
      // Matrices that the checkpoint has stacked, and vectors that the parameter has.
      const bool stacked = param.type.shape.rank() > 2 && t.shape.size() > 2,
                 single = t.shape.size() == 1 && !is_vector(param);
      // Vectors that the checkpoint has as a matrix: as one row, as one column, or in groups.
      const bool one_vector = is_vector(param) && part.of == 0 && t.shape.size() == 2;
      if (one_vector && t.elements() == shape[0]) return Status::ok();
      if ((stacked || single) && t.rows() == shape[0] && t.row_elements() == shape[1]) return Status::ok();
      return want_shape(c, t, shape);
    }
    case Recipe::Transposed: return want_shape(c, t, {part.of, part.all_rows()});
    case Recipe::StoredBlocks:
      if (t.rows() != part.all_rows() || static_cast<int64_t>(Checkpoint::packed_row_bytes(t)) != width_of(param))
        return invalid("{}: tensor {} has {} rows of {} bytes, the configuration asks for {} of {}", c.source(), t.name,
                       t.rows(), Checkpoint::packed_row_bytes(t), part.all_rows(), width_of(param));
      return Status::ok();
    case Recipe::QuantisedRows:
    case Recipe::RowScales:
      RETURN_IF_ERROR(want_type(readable_as_float(t.type), "floats"));
      return want_shape(c, t, {tensor_rows(part), part.columns});
    case Recipe::ZeroPointSums:
      RETURN_IF_ERROR(want_type(t.type == checkpoint::StorageType::I8, "I8"));
      return want_shape(c, t, {tensor_rows(part), part.columns});
    case Recipe::Numbers:
    case Recipe::InputScales:
    case Recipe::Reciprocals:
    case Recipe::ScaleProducts: return want_elements(c, t, tensor_rows(part), true);
    case Recipe::DeqScales: return want_elements(c, t, tensor_rows(part), false);
    case Recipe::Dequantised:
    case Recipe::DequantisedTransposed:
      RETURN_IF_ERROR(want_type(t.type == checkpoint::StorageType::I8, "I8"));
      return want_shape(c, t, {part.of, part.recipe == Recipe::Dequantised ? width_of(param) : part.all_rows()});
    case Recipe::Zeros: break;
  }
  return Status::ok();
}

size_t row_cost(const ParamPlan& param, const ParamPart& part) {
  if (part.all_columns > 0) return row_cost(with_all_columns(param, part), without_columns(part));
  if (reads_matrix(part.recipe)) return static_cast<size_t>(part.columns) * sizeof(float);
  return static_cast<size_t>(width_of(param)) * size_of(param.type.dtype);
}

Status make_rows(const Checkpoint& c, const ParamPlan& param, const ParamPart& part, RowBlock rows,
                 std::vector<uint8_t>& out, uint64_t* bad) {
  if (part.all_columns > 0) {
    std::vector<uint8_t> all;
    RETURN_IF_ERROR(make_rows(c, with_all_columns(param, part), without_columns(part), rows, all, bad));
    take_columns(param, part, rows.count, all, out);
    return Status::ok();
  }
  rows.first += part.from + (counts_from_first(part.recipe) ? part.first : 0);
  const DType dtype = param.type.dtype;
  const int64_t elements = rows.count * width_of(param);
  uint8_t* bytes = grown<uint8_t>(out, elements * static_cast<int64_t>(size_of(dtype)));
  if (part.recipe == Recipe::Zeros) {
    std::memset(bytes, 0, static_cast<size_t>(elements) * size_of(dtype));
    return Status::ok();
  }
  const CheckpointTensor& t = *c.find(part.tensor);
  auto* floats = reinterpret_cast<float*>(bytes);
  switch (part.recipe) {
    case Recipe::Converted:
      if (!is_vector(param)) return c.read_rows(t, part.first + rows.first, rows.count, dtype, bytes, bad);
      // A checkpoint's vector is one row, or rows that are one behind the other.
      if (part.whole == 0 && part.of == 0) return c.read_rows(t, 0, t.rows(), dtype, bytes, bad);
      {
        std::vector<uint8_t> all(static_cast<size_t>(tensor_rows(part)) * size_of(dtype));
        RETURN_IF_ERROR(c.read_rows(t, 0, 1, dtype, all.data(), bad));
        std::memcpy(bytes, all.data() + static_cast<size_t>(part.first + rows.first) * size_of(dtype),
                    static_cast<size_t>(rows.count) * size_of(dtype));
      }
      return Status::ok();
    case Recipe::Transposed: return transposed_rows(c, t, part, rows, dtype, bytes, bad);
    case Recipe::StoredBlocks:
      RETURN_IF_ERROR(c.read_packed_rows(t, rows.first, rows.count, bytes));
      if (const auto format = checkpoint::kept_format(t.type))
        *bad += checkpoint::non_finite_in_blocks(*format, bytes, static_cast<size_t>(elements));
      return Status::ok();
    case Recipe::QuantisedRows: {
      ASSIGN_OR_RETURN(const std::vector<float> in, float_rows(c, t, rows, bad));
      std::vector<float> scales(static_cast<size_t>(rows.count));
      checkpoint::row_scales(in.data(), rows.count, part.columns, scales.data());
      checkpoint::quantise_rows(in.data(), scales.data(), rows.count, part.columns, reinterpret_cast<int8_t*>(bytes));
      return Status::ok();
    }
    case Recipe::RowScales: {
      ASSIGN_OR_RETURN(const std::vector<float> in, float_rows(c, t, rows, bad));
      checkpoint::row_scales(in.data(), rows.count, part.columns, floats);
      return Status::ok();
    }
    case Recipe::Dequantised: {
      ASSIGN_OR_RETURN(const std::vector<uint8_t> in,
                       dequantised(c, t, *c.find(part.other), {part.first + rows.first, rows.count}, dtype));
      std::memcpy(bytes, in.data(), in.size());
      return Status::ok();
    }
    case Recipe::DequantisedTransposed: {
      ASSIGN_OR_RETURN(const std::vector<uint8_t> in,
                       dequantised(c, t, *c.find(part.other), {part.first, part.columns}, dtype));
      transpose(in, static_cast<size_t>(t.row_elements()), part, rows, size_of(dtype), bytes);
      return Status::ok();
    }
    case Recipe::ZeroPointSums:
      return zero_point_sums(c, t, *c.find(part.other), rows, reinterpret_cast<int32_t*>(bytes));
    case Recipe::Numbers:
    case Recipe::InputScales:
    case Recipe::Reciprocals:
    case Recipe::DeqScales:
    case Recipe::ScaleProducts: return number_rows(c, t, part, rows, dtype, bytes);
    case Recipe::Zeros: break;
  }
  return Status::ok();
}

// Quantised linears get weights of +-127 and scales that give them the variance of the float weights; the input scale
// of static ones is such that activations of about +-6 fit.
void random_rows(const ParamPlan& param, const ParamPart& part, RowBlock rows, uint64_t key,
                 std::vector<uint8_t>& out) {
  if (part.all_columns > 0) {
    std::vector<uint8_t> all;
    random_rows(with_all_columns(param, part), without_columns(part), rows, key, all);
    return take_columns(param, part, rows.count, all, out);
  }
  rows.first += part.from;
  constexpr float kInputScale = 0.05f;
  const DType dtype = param.type.dtype;
  const bool matrix = !is_vector(param);
  const int64_t width = width_of(param);
  const int64_t k = part.columns ? part.columns : width;
  const float variance = std::sqrt(3.0f / static_cast<float>(k));
  float amplitude = 0, centre = 0;
  switch (part.recipe) {
    case Recipe::Converted:
    case Recipe::Transposed:
    case Recipe::Dequantised:
    case Recipe::DequantisedTransposed:
      amplitude = matrix ? variance : 0.1f;
      centre = !matrix && part.tensor.find("norm") != std::string::npos ? 1.0f : 0.0f;
      if (dtype == DType::I8) amplitude = 127.0f;
      if (dtype == DType::I32) amplitude = 0.0f;  // a folded bias
      break;
    case Recipe::StoredBlocks: amplitude = 127.0f, centre = 128.0f; break;
    case Recipe::QuantisedRows: amplitude = 127.0f; break;
    case Recipe::RowScales: centre = variance / 127.0f; break;
    case Recipe::Numbers: centre = part.columns ? variance / 127.0f : 0.0f; break;  // weight scales; an offset
    case Recipe::Reciprocals: centre = 1.0f / kInputScale; break;
    case Recipe::InputScales: centre = kInputScale; break;
    case Recipe::DeqScales:
    case Recipe::ScaleProducts: centre = variance / 127.0f * kInputScale; break;
    case Recipe::ZeroPointSums:
    case Recipe::Zeros: break;
  }
  const int64_t elements = rows.count * width;
  uint8_t* bytes = grown<uint8_t>(out, elements * static_cast<int64_t>(size_of(dtype)));
  const uint64_t stream = split_mix(key) ^ hash_name(part.tensor);
  for (int64_t i = 0; i < elements; ++i) {
    const uint64_t bits = split_mix(stream + static_cast<uint64_t>(rows.first * width + i));
    const float u = static_cast<float>(bits >> 40) * (2.0f / 16777216.0f) - 1.0f;
    store(dtype, bytes, i, centre + amplitude * u);
  }
}

}  // namespace reprise::weights
