#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/close_names.h"
#include "checkpoint/convert.h"
#include "checkpoint/expert_tensors.h"
#include "checkpoint/gguf_names.h"
#include "checkpoint/gguf_parts.h"
#include "checkpoint/mmproj.h"

namespace reprise::checkpoint {
namespace {

// A number of heads. Where layers keep a state the file lists one for each layer, and theirs are 0.
Result<std::optional<int64_t>> heads_of(const GgufFile& file, const std::string& key) {
  const GgufValue* v = file.find_value(key);
  if (!v || v->type != GgufValueType::Array || !GgufValue::is_integer_type(v->element)) return file.integer(key);
  std::optional<int64_t> most;
  for (uint64_t i = 0; i < v->count; ++i) {
    ASSIGN_OR_RETURN(const int64_t layer, v->as_int(i));
    most = std::max(most.value_or(layer), layer);
  }
  return most;
}

// None where there are as many heads of values as of keys: then there is one order.
Status add_tiled_heads(const GgufFile& file, GgufModelShape& shape) {
  int64_t sizes[4] = {};
  size_t at = 0;
  for (const char* name : {"group_count", "time_step_rank", "state_size", "inner_size"}) {
    const std::string key = fmt::format("{}.ssm.{}", shape.family.name, name);
    ASSIGN_OR_RETURN(const auto n, file.integer(key));
    constexpr int64_t kMost = 1 << 20;
    if (!n || *n <= 0 || *n > kMost)
      return invalid("{}: metadata \"{}\" is {}; allowed: 1 to {}", file.source(), key,
                     n ? fmt::to_string(*n) : "missing", kMost);
    sizes[at++] = *n;
  }
  const auto [key_heads, heads, key, values] = sizes;
  if (heads % key_heads != 0 || values % heads != 0)
    return invalid(
        "{}: metadata \"{}.ssm.time_step_rank\" is {}; allowed: multiples of the key heads {} that divide {}",
        file.source(), shape.family.name, heads, key_heads, values);
  shape.key = key;
  if (heads > key_heads) shape.tiled = {key_heads, heads / key_heads, values / heads};
  return Status::ok();
}

// Files of an unknown architecture have the usual names.
Result<GgufModelShape> gguf_model_shape(const GgufFile& file, const Families& families) {
  GgufModelShape shape;
  ASSIGN_OR_RETURN(const Family* family, families.of_gguf(file));
  if (!family) return shape;
  shape.family = family->gguf;
  ASSIGN_OR_RETURN(const auto arch, file.string("general.architecture"));
  if (arch == shape.family.other_name) shape.family.name = shape.family.other_name;
  if (tiles_heads(shape.family)) RETURN_IF_ERROR(add_tiled_heads(file, shape));
  if (!shape.family.interleaved_heads) return shape;
  const std::string key = fmt::format("{}.attention.head_count", shape.family.name);
  ASSIGN_OR_RETURN(const auto heads, heads_of(file, key));
  if (!heads || *heads <= 0 || *heads > 65536)
    return invalid("{}: metadata \"{}\" is missing or out of range; allowed: 1 to 65536", file.source(), key);
  ASSIGN_OR_RETURN(const auto kv_heads, heads_of(file, key + "_kv"));
  if (kv_heads && (*kv_heads <= 0 || *kv_heads > *heads))
    return invalid("{}: metadata \"{}_kv\" is {}; allowed: 1 to {}", file.source(), key, *kv_heads, *heads);
  shape.heads = *heads;
  shape.kv_heads = kv_heads.value_or(*heads);
  return shape;
}

// Where a file has row i of `rows`, or such an element of a row.
int64_t place_in_file(const CheckpointTensor& t, int64_t i, int64_t rows) {
  return t.tiled ? t.tiled.stored(i) : stored_row(i, rows, t.interleaved_heads);
}

}  // namespace

CheckpointTensor CheckpointTensor::from(const StoredTensor& t, size_t file) {
  CheckpointTensor out;
  out.name = out.file_name = t.name;
  out.type = t.type;
  out.type_name = t.type_name;
  out.shape = t.shape;
  out.bytes = t.bytes;
  out.file = file;
  out.offset = t.offset;
  return out;
}

Result<Checkpoint> Checkpoint::open(const std::string& path, const Families& families) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) {
    Checkpoint out;
    out.source_ = path;
    RETURN_IF_ERROR(out.add_safetensors_folder(path));
    RETURN_IF_ERROR(out.finish(families));
    return out;
  }
  if (path.ends_with(".safetensors")) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
    return from_safetensors(std::move(file), families);
  }
  ASSIGN_OR_RETURN(GgufFile file, open_gguf_model(path));
  ASSIGN_OR_RETURN(std::vector<GgufFile> parts, open_other_parts(file));
  return from_gguf(std::move(file), families, std::move(parts));
}

Result<Checkpoint> Checkpoint::from_safetensors(SafetensorsFile file, const Families& families) {
  Checkpoint out;
  out.source_ = file.source();
  out.shards_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  for (const StoredTensor& t : out.shards_[0]->tensors()) out.tensors_.push_back(CheckpointTensor::from(t, 0));
  RETURN_IF_ERROR(out.finish(families));
  return out;
}

Result<Checkpoint> Checkpoint::from_gguf(GgufFile file, const Families& families, std::vector<GgufFile> parts) {
  ASSIGN_OR_RETURN(const auto count, file.integer("split.count"));
  if (std::max<int64_t>(count.value_or(1), 1) != static_cast<int64_t>(parts.size()) + 1)
    return invalid("{}: one of {} files of a split GGUF model, of which {} are here", file.source(), count.value_or(1),
                   parts.size() + 1);
  ASSIGN_OR_RETURN(const GgufModelShape shape, gguf_model_shape(file, families));
  Checkpoint out;
  out.source_ = file.source();
  out.gguf_ = std::make_unique<GgufFile>(std::move(file));
  out.parts_ = std::move(parts);
  RETURN_IF_ERROR(out.add_gguf(*out.gguf_, 0, shape));
  for (size_t i = 0; i < out.parts_.size(); ++i) RETURN_IF_ERROR(out.add_gguf(out.parts_[i], kParts + i, shape));
  RETURN_IF_ERROR(out.finish(families));
  return out;
}

Status Checkpoint::add_gguf(const GgufFile& file, size_t number, const GgufModelShape& shape) {
  for (const StoredTensor& t : file.tensors()) {
    CheckpointTensor tensor = CheckpointTensor::from(t, number);
    if (const auto named = hf_name(t.name, shape)) {
      tensor.name = named->name;
      tensor.interleaved_heads = named->interleaved_heads;
      tensor.number = named->number;
      tensor.tiled = named->tiled;
      const int64_t rows = t.shape.empty() ? 1 : t.shape.front();
      if (tensor.interleaved_heads && (t.shape.size() > 2 || rows % (2 * tensor.interleaved_heads) != 0))
        return invalid("{}: tensor \"{}\": its {} rows are not {} heads of an even size", file.source(), t.name, rows,
                       tensor.interleaved_heads);
      const int64_t placed = tensor.tiled.columns || t.shape.size() < 2 ? tensor.row_elements() : rows;
      if (tensor.tiled && (t.shape.size() > 2 || placed != tensor.tiled.end()))
        return invalid("{}: tensor \"{}\": {} {}; allowed with the metadata \"{}.ssm.*\": {}", file.source(), t.name,
                       placed, tensor.tiled.columns ? "columns" : "rows", shape.family.name, tensor.tiled.end());
    }
    tensors_.push_back(std::move(tensor));
  }
  return Status::ok();
}

Status Checkpoint::add_file(const std::string& path) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  shards_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  for (const StoredTensor& t : shards_[0]->tensors()) tensors_.push_back(CheckpointTensor::from(t, 0));
  return Status::ok();
}

Status Checkpoint::add_safetensors_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ec;
  const std::string single = folder + "/model.safetensors";
  const std::string index = folder + "/model.safetensors.index.json";
  // The single file goes first, as in Hugging Face's own loader.
  if (fs::exists(single, ec)) return add_file(single);
  if (fs::exists(index, ec)) return add_index(folder, index);
  // ModelSlim's names: quant_model_weight_w8a8.safetensors, perhaps with an index.
  std::vector<std::string> single_files, indices;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with("quant_model_weight")) continue;
    if (name.ends_with(".safetensors")) single_files.push_back(it->path().string());
    if (name.ends_with(".safetensors.index.json")) indices.push_back(it->path().string());
  }
  if (indices.size() == 1) return add_index(folder, indices[0]);
  if (single_files.size() == 1) return add_file(single_files[0]);
  if (fs::exists(folder + "/pytorch_model.bin", ec))
    return error(
        Code::Unsupported,
        "{0}: pytorch_model.bin is a pickle, which is not read; allowed: model.safetensors, which this makes of "
        "it: python3 -c \"import torch, safetensors.torch as s; t = torch.load('{0}/pytorch_model.bin', "
        "weights_only=True); s.save_file({{k: v.contiguous().clone() for k, v in t.items()}}, "
        "'{0}/model.safetensors')\"",
        folder);
  return error(Code::NotFound, "{}: no weights; expected model.safetensors or model.safetensors.index.json", folder);
}

Status Checkpoint::finish(const Families& families) {
  tensors_ = with_single_experts(std::move(tensors_), families);
  return index_tensors();
}

Status Checkpoint::index_tensors() {
  index_.clear();
  total_bytes_ = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!index_.emplace(tensors_[i].name, i).second)
      return invalid("{}: tensor \"{}\" is given twice", source_, tensors_[i].name);
    total_bytes_ += tensors_[i].bytes;
  }
  // A second way to find GGUF tensors; Hugging Face names win, though the two never meet in practice.
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].file_name, i);
  return Status::ok();
}

size_t Checkpoint::set_aside(const std::function<bool(const CheckpointTensor&)>& which) {
  index_.clear();  // its keys lie in the tensors
  std::vector<CheckpointTensor> kept;
  kept.reserve(tensors_.size());
  const size_t before = aside_.size();
  for (CheckpointTensor& t : tensors_) (which(t) ? aside_ : kept).push_back(std::move(t));
  tensors_ = std::move(kept);
  CHECK(index_tensors().is_ok(), "names of {} were unique", source_);
  return aside_.size() - before;
}

Status Checkpoint::borrow(Checkpoint other, const std::function<bool(const CheckpointTensor&)>& which,
                          std::string_view prefix) {
  CHECK(!gguf_ && !other.gguf_, "{} and {}: tensors of GGUF files are not put together", source_, other.source_);
  const size_t files = shards_.size();
  for (auto& shard : other.shards_) shards_.push_back(std::move(shard));
  for (CheckpointTensor& t : other.tensors_) {
    if (!which(t)) continue;
    t.file += files;
    t.name.insert(0, prefix);
    tensors_.push_back(std::move(t));
  }
  return index_tensors();
}

Status Checkpoint::add_mmproj(GgufFile file, const Families& families) {
  CHECK(gguf_ && !mmproj_, "{}: one vision tower beside one GGUF file", source_);
  ASSIGN_OR_RETURN(std::vector<CheckpointTensor> tensors, mmproj_tensors(file, families, kMmproj, made_));
  mmproj_ = std::make_unique<GgufFile>(std::move(file));
  source_ += fmt::format(" with {}", mmproj_->source());
  std::move(tensors.begin(), tensors.end(), std::back_inserter(tensors_));
  return index_tensors();
}

void Checkpoint::make_matrix(std::string_view name) {
  const auto it = index_.find(name);
  if (it == index_.end()) return;
  CheckpointTensor& t = tensors_[it->second];
  if (t.shape.size() > 2 && t.shape[0] > 0 && !t.scattered()) t.shape = {t.shape[0], t.elements() / t.shape[0]};
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

Result<const CheckpointTensor*> Checkpoint::get(std::string_view name) const {
  if (const CheckpointTensor* t = find(name)) return t;
  std::vector<std::string_view> known;
  for (const CheckpointTensor& t : tensors_) known.push_back(t.name);
  return error(Code::NotFound, "{}: no tensor \"{}\"{}", source_, name, close_names(name, known));
}

std::span<const uint8_t> Checkpoint::file_bytes(size_t file, uint64_t offset, uint64_t bytes) const {
  StoredTensor stored;
  stored.offset = offset;
  stored.bytes = bytes;
  if (!gguf_) return shards_[file]->bytes(stored);
  if (file == kMade) return std::span<const uint8_t>(made_).subspan(offset, bytes);
  return gguf_file(file).bytes(stored);
}

// For kMade, the file of the vision tower, whose tensors were put together.
const GgufFile& Checkpoint::gguf_file(size_t file) const {
  if (file >= kParts) return parts_[file - kParts];
  return file == 0 ? *gguf_ : *mmproj_;
}

std::span<const uint8_t> Checkpoint::raw(const CheckpointTensor& t) const {
  return file_bytes(t.file, t.offset, t.scattered() ? t.span : t.bytes);
}

void Checkpoint::gather_rows(const CheckpointTensor& t, int64_t first, int64_t rows, uint8_t* out) const {
  const uint8_t* from = raw(t).data() + static_cast<uint64_t>(first) * t.row_step;
  const auto count = static_cast<size_t>(rows), width = static_cast<size_t>(t.row_elements());
  if (!t.exponents) {
    const auto element = block_layout(t.type).bytes;
    for (size_t i = 0; i < width; ++i)  // where rows are near each other, the numbers of a row are far apart
      for (size_t r = 0; r < count; ++r)
        std::memcpy(out + (r * width + i) * element, from + r * t.row_step + i * t.element_step, element);
    return;
  }
  constexpr size_t kNumbers = 16;  // bytes of a block without its exponent
  const size_t blocks = width / block_layout(t.type).elements;
  if (blocks == 0 || count == 0) return;
  const CheckpointTensor::Exponents& e = *t.exponents;
  for (size_t r = 0; r < count; ++r) {
    const uint8_t* numbers = from + r * t.row_step;
    const uint8_t* exponents =
        file_bytes(e.file, e.offset + (static_cast<uint64_t>(first) + r) * e.row_step, blocks).data();
    for (size_t b = 0; b < blocks; ++b, numbers += kNumbers) {
      *out++ = exponents[b];
      const auto number = [&](size_t i) { return numbers[i / 2] >> (4 * (i % 2)) & 15; };
      for (size_t j = 0; j < kNumbers; ++j) *out++ = static_cast<uint8_t>(number(j) | number(j + kNumbers) << 4);
    }
  }
}

const std::string& Checkpoint::file_source(const CheckpointTensor& t) const {
  if (!gguf_) return shards_[t.file]->source();
  return gguf_file(t.file).source();
}

uint64_t Checkpoint::packed_row_bytes(const CheckpointTensor& t) {
  const BlockLayout layout = block_layout(t.type);
  return static_cast<uint64_t>(t.row_elements()) / layout.elements * layout.bytes;
}

Status Checkpoint::check_rows(const CheckpointTensor& t, int64_t first, int64_t rows) const {
  if (t.type == StorageType::Other)
    return error(Code::Unsupported, "{}: tensor \"{}\" is stored as {}, which cannot be read", file_source(t), t.name,
                 t.type_name);
  if (first < 0 || rows < 0 || rows > t.rows() || first > t.rows() - rows)
    return invalid("{}: tensor \"{}\": {} rows from row {} were asked for, but there are {}", file_source(t), t.name,
                   rows, first, t.rows());
  return Status::ok();
}

Status Checkpoint::read_stored_rows(const CheckpointTensor& t, int64_t first, int64_t rows, DType target, void* out,
                                    uint64_t* non_finite) const {
  const uint64_t row_bytes = packed_row_bytes(t);
  const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(t.row_elements());
  const auto convert = [&](std::span<const uint8_t> bytes, DType type, void* to) {
    return convert_elements(t.type, bytes, type, to, count, non_finite)
        .at(fmt::format("{}: tensor \"{}\"", file_source(t), t.name));
  };
  if (t.scattered()) {
    std::vector<uint8_t> gathered(static_cast<uint64_t>(rows) * row_bytes);
    gather_rows(t, first, rows, gathered.data());
    return convert(gathered, target, out);
  }
  const std::span<const uint8_t> bytes =
      raw(t).subspan(static_cast<uint64_t>(first) * row_bytes, static_cast<uint64_t>(rows) * row_bytes);
  if (t.number == StoredNumber::Plain) return convert(bytes, target, out);
  std::vector<float> numbers(count);
  RETURN_IF_ERROR(convert(bytes, DType::F32, numbers.data()));
  for (float& v : numbers) v = t.number == StoredNumber::OneMore ? v - 1 : std::log(-v);
  const std::span<const uint8_t> made(reinterpret_cast<const uint8_t*>(numbers.data()), count * sizeof(float));
  return convert_elements(StorageType::F32, made, target, out, count, nullptr)
      .at(fmt::format("{}: tensor \"{}\"", file_source(t), t.name));
}

Status Checkpoint::read_rows(const CheckpointTensor& t, int64_t first, int64_t rows, DType target, void* out,
                             uint64_t* non_finite) const {
  RETURN_IF_ERROR(check_rows(t, first, rows));
  if (t.has_file_order()) return read_stored_rows(t, first, rows, target, out, non_finite);
  const size_t size = size_of(target);
  const auto width = static_cast<size_t>(t.row_elements());
  auto* to = static_cast<uint8_t*>(out);
  if (t.shape.size() < 2 || t.tiled.columns) {  // the elements of rows change places
    std::vector<uint8_t> stored(static_cast<size_t>(rows) * width * size);
    RETURN_IF_ERROR(read_stored_rows(t, first, rows, target, stored.data(), non_finite));
    for (size_t i = 0; i < width; ++i) {
      const auto from = static_cast<size_t>(place_in_file(t, static_cast<int64_t>(i), t.row_elements()));
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
        std::memcpy(to + (r * width + i) * size, stored.data() + (r * width + from) * size, size);
    }
    return Status::ok();
  }
  for (int64_t r = 0; r < rows; ++r)
    RETURN_IF_ERROR(read_stored_rows(t, place_in_file(t, first + r, t.rows()), 1, target,
                                     to + static_cast<size_t>(r) * width * size, non_finite));
  return Status::ok();
}

Status Checkpoint::read_rows(std::string_view name, int64_t first, int64_t rows, DType target, void* out,
                             uint64_t* non_finite) const {
  ASSIGN_OR_RETURN(const CheckpointTensor* t, get(name));
  return read_rows(*t, first, rows, target, out, non_finite);
}

Status Checkpoint::read_packed_rows(const CheckpointTensor& t, int64_t first, int64_t rows, void* out) const {
  RETURN_IF_ERROR(check_rows(t, first, rows));
  if (!t.has_file_order() && t.shape.size() < 2)
    return error(Code::Unsupported, "{}: tensor \"{}\": a vector whose heads have another order has no packed rows",
                 file_source(t), t.name);
  if (!t.whole_blocks())
    return error(Code::Unsupported, "{}: tensor \"{}\": a block of {} has columns of several heads, of {} each",
                 file_source(t), t.name, t.type_name, t.tiled.size);
  const uint64_t row_bytes = packed_row_bytes(t);
  auto* to = static_cast<uint8_t*>(out);
  if (t.scattered()) {
    gather_rows(t, first, rows, to);
    return Status::ok();
  }
  const std::span<const uint8_t> bytes = raw(t);
  if (t.has_file_order()) {
    if (const uint64_t n = static_cast<uint64_t>(rows) * row_bytes)
      std::memcpy(to, bytes.data() + static_cast<uint64_t>(first) * row_bytes, n);
    return Status::ok();
  }
  // What stays together: a row, or the blocks of a head.
  const int64_t run = t.tiled.columns ? t.tiled.size : t.row_elements();
  const auto run_bytes = static_cast<uint64_t>(run) / block_layout(t.type).elements * block_layout(t.type).bytes;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = t.tiled.columns ? first + r : place_in_file(t, first + r, t.rows());
    const uint8_t* from = bytes.data() + static_cast<uint64_t>(row) * row_bytes;
    for (int64_t i = 0; i < t.row_elements(); i += run, to += run_bytes) {
      const int64_t at = t.tiled.columns ? t.tiled.stored(i) : i;
      std::memcpy(to, from + static_cast<uint64_t>(at / run) * run_bytes, run_bytes);
    }
  }
  return Status::ok();
}

void Checkpoint::release(const CheckpointTensor& t) const {
  // Others may lie in what a scattered tensor is spread over: it stays until they are all read.
  if (t.scattered()) return;
  if (!gguf_) return shards_[t.file]->release(t.offset, t.bytes);
  if (t.file != kMade) gguf_file(t.file).release(t.offset, t.bytes);
}

void Checkpoint::release(std::string_view name) const {
  if (const CheckpointTensor* t = find(name)) release(*t);
}

Status Checkpoint::require_finite(const CheckpointTensor& t, uint64_t count) const {
  if (count == 0) return Status::ok();
  return invalid("{}: tensor \"{}\" holds {} values of {} that are NaN or infinite; the file is damaged",
                 file_source(t), t.name, count, t.elements());
}

}  // namespace reprise::checkpoint
