#include "checkpoint/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/byte_reader.h"

namespace reprise::checkpoint {
namespace {

// The format's own limits, and ours for what it leaves open.
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxNameBytes = 64;
constexpr uint32_t kMaxDims = 4;
constexpr int kMaxNesting = 4;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
// The least that one entry takes in the file. Counts are held against what is left before anything is allocated.
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;
// Elements of arrays inside arrays each become an object in memory, several times their size in the file.
constexpr uint64_t kMaxInnerArrays = 1'000'000;

std::string printable(std::string_view s) {
  std::string out;
  for (char c : s.substr(0, 80)) out += (static_cast<unsigned char>(c) < 32 || c == 127) ? '?' : c;
  if (s.size() > 80) out += "...";
  return out;
}

}  // namespace

// Reads the parts of a file in order. Lives only inside GgufFile::parse().
class GgufParser {
 public:
  explicit GgufParser(GgufFile& file) : file_(file), reader_(file.bytes_, file.source_) {}

  Status run() {
    RETURN_IF_ERROR(read_header());
    RETURN_IF_ERROR(read_metadata());
    RETURN_IF_ERROR(read_alignment());
    RETURN_IF_ERROR(read_tensors());
    return check_layout();
  }

 private:
  Status read_header() {
    ASSIGN_OR_RETURN(const auto magic, reader_.take(4, "the magic"));
    if (std::memcmp(magic.data(), "GGUF", 4) != 0) return invalid("{}: not a GGUF file", file_.source_);
    ASSIGN_OR_RETURN(file_.version_, reader_.read<uint32_t>("the version"));
    if ((file_.version_ & 0xffff) == 0 && file_.version_ != 0)
      return error(Code::Unsupported, "{}: a big-endian GGUF file; only little-endian ones can be read", file_.source_);
    if (file_.version_ != 2 && file_.version_ != 3)
      return error(Code::Unsupported, "{}: GGUF version {}; readable versions: 2, 3", file_.source_, file_.version_);
    ASSIGN_OR_RETURN(tensor_count_, reader_.read<uint64_t>("the tensor count"));
    ASSIGN_OR_RETURN(entry_count_, reader_.read<uint64_t>("the metadata count"));
    if (entry_count_ > reader_.remaining() / kMinEntryBytes)
      return invalid("{}: {} metadata entries cannot fit into the {} bytes that follow", file_.source_, entry_count_,
                     reader_.remaining());
    if (tensor_count_ > reader_.remaining() / kMinTensorBytes)
      return invalid("{}: {} tensors cannot fit into the {} bytes that follow", file_.source_, tensor_count_,
                     reader_.remaining());
    return Status::ok();
  }

  Result<std::string_view> read_string(uint64_t max_bytes, std::string_view what) {
    ASSIGN_OR_RETURN(const uint64_t size, reader_.read<uint64_t>(what));
    if (size > max_bytes)
      return invalid("{}: {} at byte {} has {} bytes, more than the allowed {}", file_.source_, what,
                     reader_.offset() - 8, size, max_bytes);
    ASSIGN_OR_RETURN(const auto bytes, reader_.take(size, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  Result<GgufValueType> read_type(std::string_view key) {
    ASSIGN_OR_RETURN(const uint32_t number, reader_.read<uint32_t>(key));
    if (number >= kGgufValueTypes)
      return invalid("{}: metadata \"{}\": value type {} is not defined; allowed: 0 to {}", file_.source_, key, number,
                     kGgufValueTypes - 1);
    return static_cast<GgufValueType>(number);
  }

  Status read_metadata() {
    file_.metadata_.reserve(std::min<uint64_t>(entry_count_, 4096));
    for (uint64_t i = 0; i < entry_count_; ++i) {
      ASSIGN_OR_RETURN(const std::string_view key, read_string(kMaxKeyBytes, "a metadata key"));
      const std::string shown = printable(key);
      if (key.empty()) return invalid("{}: metadata entry {} has an empty key", file_.source_, i);
      GgufEntry entry{key, {}};
      ASSIGN_OR_RETURN(entry.value.type, read_type(shown));
      RETURN_IF_ERROR(read_value(entry.value, shown, 0));
      if (!file_.metadata_index_.emplace(key, file_.metadata_.size()).second)
        return invalid("{}: metadata \"{}\" is given twice", file_.source_, shown);
      file_.metadata_.push_back(std::move(entry));
    }
    return Status::ok();
  }

  // The type has been read.
  Status read_value(GgufValue& value, std::string_view key, int nesting) {
    value.count = 1;
    if (value.type == GgufValueType::String) {
      ASSIGN_OR_RETURN(value.text, read_string(std::numeric_limits<uint64_t>::max(), key));
      return Status::ok();
    }
    if (value.type == GgufValueType::Array) return read_array(value, key, nesting);
    ASSIGN_OR_RETURN(value.bytes, reader_.take(value_type_size(value.type), key));
    return check_bools(value.type, value.bytes, key);
  }

  Status read_array(GgufValue& value, std::string_view key, int nesting) {
    if (nesting == kMaxNesting)
      return invalid("{}: metadata \"{}\": arrays nested deeper than {} levels", file_.source_, key, kMaxNesting);
    ASSIGN_OR_RETURN(value.element, read_type(key));
    ASSIGN_OR_RETURN(value.count, reader_.read<uint64_t>(key));
    const size_t scalar = value_type_size(value.element);
    const uint64_t least = scalar ? scalar : value.element == GgufValueType::String ? 8 : 12;
    if (value.count > reader_.remaining() / least)
      return invalid("{}: metadata \"{}\": {} elements of type {} cannot fit into the {} bytes that follow",
                     file_.source_, key, value.count, value_type_name(value.element), reader_.remaining());
    if (scalar) {
      ASSIGN_OR_RETURN(value.bytes, reader_.take(value.count * scalar, key));
      return check_bools(value.element, value.bytes, key);
    }
    if (value.element == GgufValueType::String) {
      value.strings.resize(value.count);
      for (std::string_view& s : value.strings) {
        ASSIGN_OR_RETURN(s, read_string(std::numeric_limits<uint64_t>::max(), key));
      }
      return Status::ok();
    }
    inner_arrays_ += value.count;
    if (inner_arrays_ > kMaxInnerArrays)
      return invalid("{}: metadata \"{}\": more than the allowed {} arrays inside arrays", file_.source_, key,
                     kMaxInnerArrays);
    value.arrays.resize(value.count);
    for (GgufValue& inner : value.arrays) {
      inner.type = GgufValueType::Array;
      RETURN_IF_ERROR(read_array(inner, key, nesting + 1));
    }
    return Status::ok();
  }

  Status check_bools(GgufValueType type, std::span<const uint8_t> bytes, std::string_view key) {
    if (type != GgufValueType::Bool) return Status::ok();
    for (uint8_t b : bytes)
      if (b > 1) return invalid("{}: metadata \"{}\": a bool holds {}; allowed: 0, 1", file_.source_, key, b);
    return Status::ok();
  }

  Status read_alignment() {
    ASSIGN_OR_RETURN(const auto alignment, file_.integer("general.alignment"));
    if (!alignment) return Status::ok();
    if (*alignment <= 0 || (*alignment & (*alignment - 1)) || static_cast<uint64_t>(*alignment) > kMaxAlignment)
      return invalid("{}: general.alignment is {}; allowed: powers of two from 1 to {}", file_.source_, *alignment,
                     kMaxAlignment);
    file_.alignment_ = static_cast<uint64_t>(*alignment);
    return Status::ok();
  }

  Status read_tensors() {
    file_.tensors_.reserve(std::min<uint64_t>(tensor_count_, 4096));
    for (uint64_t i = 0; i < tensor_count_; ++i) {
      ASSIGN_OR_RETURN(const std::string_view raw_name, read_string(kMaxNameBytes, "a tensor name"));
      StoredTensor t;
      t.name = printable(raw_name);
      if (raw_name.empty()) return invalid("{}: tensor {} has an empty name", file_.source_, i);
      if (t.name != raw_name)
        return invalid("{}: the tensor name \"{}\" holds control characters", file_.source_, t.name);
      ASSIGN_OR_RETURN(const uint32_t dims, reader_.read<uint32_t>(t.name));
      if (dims > kMaxDims)
        return invalid("{}: tensor \"{}\" has {} dimensions, more than the allowed {}", file_.source_, t.name, dims,
                       kMaxDims);
      int64_t elements = 1;
      for (uint32_t d = 0; d < dims; ++d) {
        ASSIGN_OR_RETURN(const uint64_t size, reader_.read<uint64_t>(t.name));
        if (size == 0 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
            __builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements))
          return invalid("{}: tensor \"{}\": dimension {} of size {} is zero or makes the number of elements overflow",
                         file_.source_, t.name, d, size);
        t.shape.push_back(static_cast<int64_t>(size));
      }
      // GGUF lists the contiguous dimension first.
      std::reverse(t.shape.begin(), t.shape.end());
      ASSIGN_OR_RETURN(const uint32_t number, reader_.read<uint32_t>(t.name));
      auto type = ggml_type(number);
      if (!type.is_ok()) return type.status().at(fmt::format("{}: tensor \"{}\"", file_.source_, t.name));
      t.type = type->type;
      t.type_name = type->name;
      const int64_t row = t.shape.empty() ? 1 : t.shape.back();
      if (row % type->layout.elements != 0)
        return invalid("{}: tensor \"{}\": rows of {} elements are not whole blocks of {} ({} elements)", file_.source_,
                       t.name, row, t.type_name, type->layout.elements);
      if (__builtin_mul_overflow(static_cast<uint64_t>(elements) / type->layout.elements, uint64_t{type->layout.bytes},
                                 &t.bytes))
        return invalid("{}: tensor \"{}\": its size in bytes overflows", file_.source_, t.name);
      ASSIGN_OR_RETURN(t.offset, reader_.read<uint64_t>(t.name));
      if (t.offset % file_.alignment_ != 0)
        return invalid("{}: tensor \"{}\": offset {} is not a multiple of the alignment {}", file_.source_, t.name,
                       t.offset, file_.alignment_);
      file_.tensors_.push_back(std::move(t));
    }
    for (size_t i = 0; i < file_.tensors_.size(); ++i)
      if (!file_.tensor_index_.emplace(file_.tensors_[i].name, i).second)
        return invalid("{}: tensor \"{}\" is given twice", file_.source_, file_.tensors_[i].name);
    return Status::ok();
  }

  Status check_layout() {
    const uint64_t size = file_.bytes_.size();
    const uint64_t begin = (reader_.offset() + file_.alignment_ - 1) / file_.alignment_ * file_.alignment_;
    const uint64_t data = begin <= size ? size - begin : 0;
    std::vector<StoredTensor*> order;
    for (StoredTensor& t : file_.tensors_) {
      if (t.offset > data || t.bytes > data - t.offset)
        return invalid("{}: tensor \"{}\" of {} bytes at offset {} reaches beyond the file's {} bytes of data",
                       file_.source_, t.name, t.bytes, t.offset, data);
      order.push_back(&t);
    }
    std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
        return invalid("{}: tensor \"{}\" overlaps \"{}\"", file_.source_, order[i]->name, order[i - 1]->name);
    for (StoredTensor& t : file_.tensors_) t.offset += begin;
    return Status::ok();
  }

  GgufFile& file_;
  ByteReader reader_;
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
  uint64_t inner_arrays_ = 0;
};

Result<GgufFile> GgufFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  ASSIGN_OR_RETURN(GgufFile out, parse(file.bytes(), path));
  out.file_ = std::move(file);
  return out;
}

Result<GgufFile> GgufFile::parse(std::span<const uint8_t> bytes, std::string source) {
  GgufFile out;
  out.bytes_ = bytes;
  out.source_ = std::move(source);
  RETURN_IF_ERROR(GgufParser(out).run());
  return out;
}

const GgufValue* GgufFile::find_value(std::string_view key) const {
  const auto it = metadata_index_.find(key);
  return it == metadata_index_.end() ? nullptr : &metadata_[it->second].value;
}

const StoredTensor* GgufFile::find(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

Result<std::optional<int64_t>> GgufFile::integer(std::string_view key) const {
  const GgufValue* v = find_value(key);
  if (!v) return std::optional<int64_t>();
  if (!v->is_integer())
    return invalid("{}: metadata \"{}\" is of type {}; expected an integer", source_, key, value_type_name(v->type));
  auto n = v->as_int();
  if (!n.is_ok()) return n.status().at(fmt::format("{}: metadata \"{}\"", source_, key));
  return std::optional<int64_t>(*n);
}

Result<std::optional<double>> GgufFile::number(std::string_view key) const {
  const GgufValue* v = find_value(key);
  if (!v) return std::optional<double>();
  if (!v->is_integer() && v->type != GgufValueType::F32 && v->type != GgufValueType::F64)
    return invalid("{}: metadata \"{}\" is of type {}; expected a number", source_, key, value_type_name(v->type));
  ASSIGN_OR_RETURN(const double d, v->as_double());
  return std::optional<double>(d);
}

Result<std::optional<bool>> GgufFile::boolean(std::string_view key) const {
  const GgufValue* v = find_value(key);
  if (!v) return std::optional<bool>();
  if (v->type != GgufValueType::Bool)
    return invalid("{}: metadata \"{}\" is of type {}; expected a bool", source_, key, value_type_name(v->type));
  return std::optional<bool>(v->bytes[0] != 0);
}

Result<std::optional<std::string>> GgufFile::string(std::string_view key) const {
  const GgufValue* v = find_value(key);
  if (!v) return std::optional<std::string>();
  if (v->type != GgufValueType::String)
    return invalid("{}: metadata \"{}\" is of type {}; expected a string", source_, key, value_type_name(v->type));
  return std::optional<std::string>(std::string(v->text));
}

}  // namespace reprise::checkpoint
