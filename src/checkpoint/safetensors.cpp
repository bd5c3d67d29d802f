#include "checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>

#include "base/byte_reader.h"
#include "base/json.h"

namespace reprise::checkpoint {
namespace {

constexpr size_t kMaxRank = 32;

// Bits of the dtypes that the format defines and we only list, so that their sizes are checked as well. 0 = not known.
uint64_t bits_of_unreadable(std::string_view dtype) {
  if (dtype == "U16") return 16;
  if (dtype == "U32") return 32;
  if (dtype == "U64" || dtype == "C64") return 64;
  if (dtype.starts_with("F8_")) return 8;
  if (dtype.starts_with("F6_")) return 6;
  if (dtype == "F4") return 4;
  return 0;
}

// Builds the tensor list straight from the parser's events. The header has one fixed shape (an object of objects with
// three fields, and one object of strings), so everything else is refused where it appears, no tree is built, and a
// hostile header cannot make us allocate more than a small multiple of its size.
class HeaderReader : public Json::json_sax_t {
 public:
  HeaderReader(std::string_view source, std::vector<StoredTensor>& tensors,
               std::map<std::string, std::string>& metadata)
      : source_(source), tensors_(tensors), metadata_(metadata) {}

  const Status& status() const { return status_; }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(number_float_t, const string_t& s) override { return unexpected(fmt::format("the number {}", s)); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_integer(number_integer_t v) override {
    return state_ == State::Shape || state_ == State::Offsets
               ? fail(fmt::format("{} holds {}, a negative number", field_, v))
               : unexpected(fmt::format("the number {}", v));
  }

  bool number_unsigned(number_unsigned_t v) override {
    if (state_ == State::Shape) {
      if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return fail(fmt::format("shape holds {}, more than any tensor can have", v));
      if (tensor_.shape.size() == kMaxRank) return fail(fmt::format("shape has more than {} dimensions", kMaxRank));
      tensor_.shape.push_back(static_cast<int64_t>(v));
      return true;
    }
    if (state_ == State::Offsets) {
      if (offsets_ == 2) return fail("data_offsets has more than 2 numbers");
      (offsets_++ == 0 ? begin_ : end_) = v;
      return true;
    }
    return unexpected(fmt::format("the number {}", v));
  }

  bool string(string_t& s) override {
    if (state_ == State::Metadata) {
      metadata_[key_] = s;
      return true;
    }
    if (state_ == State::Field && field_ == "dtype") {
      if (s.size() > 32) return fail(fmt::format("dtype is a name of {} bytes", s.size()));
      tensor_.type_name = s;
      state_ = State::Fields;
      return true;
    }
    return unexpected("a string");
  }

  bool start_object(std::size_t) override {
    if (state_ == State::Start) {
      state_ = State::Names;
      return true;
    }
    if (state_ == State::Name) {
      if (name_ == "__metadata__") {
        state_ = State::Metadata;
      } else {
        tensor_ = StoredTensor();
        tensor_.name = name_;
        seen_ = 0;
        offsets_ = 0;
        state_ = State::Fields;
      }
      return true;
    }
    return unexpected("an object");
  }

  bool key(string_t& k) override {
    if (state_ == State::Names) {
      name_ = k;
      if (!names_.insert(k).second) return fail("is given twice");
      state_ = State::Name;
      return true;
    }
    if (state_ == State::Metadata) {
      key_ = k;
      if (metadata_.contains(k)) return fail(fmt::format("key \"{}\" is given twice", k));
      return true;
    }
    field_ = k;
    const int bit = k == "dtype" ? 1 : k == "shape" ? 2 : k == "data_offsets" ? 4 : 0;
    if (bit == 0) return fail(fmt::format("unknown key \"{}\"; allowed: dtype, shape, data_offsets", k));
    if (seen_ & bit) return fail(fmt::format("key \"{}\" is given twice", k));
    seen_ |= bit;
    state_ = State::Field;
    return true;
  }

  bool end_object() override {
    if (state_ == State::Names) {
      state_ = State::Done;
      return true;
    }
    if (state_ == State::Fields) {
      for (auto [bit, field] : {std::pair{1, "dtype"}, std::pair{2, "shape"}, std::pair{4, "data_offsets"}})
        if (!(seen_ & bit)) return fail(fmt::format("has no {}", field));
      if (begin_ > end_) return fail(fmt::format("data_offsets [{}, {}] run backwards", begin_, end_));
      tensor_.type = storage_from_safetensors(tensor_.type_name);
      tensor_.offset = begin_;
      tensor_.bytes = end_ - begin_;
      if (!check_size()) return false;
      tensors_.push_back(std::move(tensor_));
    }
    state_ = State::Names;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::Field || field_ == "dtype") return unexpected("an array");
    state_ = field_ == "shape" ? State::Shape : State::Offsets;
    return true;
  }

  bool end_array() override {
    if (state_ == State::Offsets && offsets_ != 2) return fail("data_offsets needs 2 numbers");
    state_ = State::Fields;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    std::string_view what = e.what();
    if (const auto end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
    status_ = invalid("{}: the header is not valid JSON: {}", source_, what);
    return false;
  }

 private:
  // Start {Names "name" -> Name {Fields "dtype" -> Field ... [Shape] ...}} Done
  enum class State { Start, Names, Name, Metadata, Fields, Field, Shape, Offsets, Done };

  bool fail(std::string_view what) {
    if (name_.empty() && state_ == State::Start)
      status_ = invalid("{}: the header {}", source_, what);
    else
      status_ = invalid("{}: {} \"{}\": {}", source_, name_ == "__metadata__" ? "entry" : "tensor", name_, what);
    return false;
  }

  bool unexpected(std::string_view what) {
    switch (state_) {
      case State::Start: return fail(fmt::format("is {}, not an object", what));
      case State::Name: return fail(fmt::format("is {}, not an object", what));
      case State::Metadata: return fail(fmt::format("key \"{}\" is {}, not a string", key_, what));
      default: return fail(fmt::format("{} holds {}", field_, what));
    }
  }

  bool check_size() {
    // A zero dimension must not hide an overflow of the others, since rows and elements are multiplied apart.
    int64_t product = 1;
    bool empty = false;
    for (int64_t d : tensor_.shape) {
      empty |= d == 0;
      if (__builtin_mul_overflow(product, std::max<int64_t>(d, 1), &product))
        return fail(fmt::format("the product of its shape [{}] overflows", fmt::join(tensor_.shape, ", ")));
    }
    const uint64_t elements = empty ? 0 : static_cast<uint64_t>(product);
    uint64_t bits = tensor_.type == StorageType::Other ? bits_of_unreadable(tensor_.type_name)
                                                       : uint64_t{block_layout(tensor_.type).bytes} * 8;
    if (bits == 0) return true;
    uint64_t total = 0;
    if (__builtin_mul_overflow(elements, bits, &total)) return fail("its size in bytes overflows");
    if (total % 8 != 0 || total / 8 != tensor_.bytes)
      return fail(fmt::format("shape [{}] of {} needs {} bytes, but data_offsets [{}, {}] hold {}",
                              fmt::join(tensor_.shape, ", "), tensor_.type_name, (total + 7) / 8, begin_, end_,
                              tensor_.bytes));
    return true;
  }

  std::string_view source_;
  std::vector<StoredTensor>& tensors_;
  std::map<std::string, std::string>& metadata_;
  Status status_;
  State state_ = State::Start;
  std::string name_, key_, field_;
  std::unordered_set<std::string> names_;
  StoredTensor tensor_;
  int seen_ = 0, offsets_ = 0;
  uint64_t begin_ = 0, end_ = 0;
};

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  ASSIGN_OR_RETURN(SafetensorsFile out, parse(file.bytes(), path));
  out.file_ = std::move(file);
  return out;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const uint8_t> bytes, std::string source) {
  SafetensorsFile out;
  out.bytes_ = bytes;
  out.source_ = std::move(source);
  ByteReader reader(bytes, out.source_);
  ASSIGN_OR_RETURN(const uint64_t header_size, reader.read<uint64_t>("the header's length"));
  if (header_size > kMaxSafetensorsHeader)
    return invalid("{}: the header claims {} bytes, more than the allowed {}; is this a safetensors file?", out.source_,
                   header_size, kMaxSafetensorsHeader);
  ASSIGN_OR_RETURN(const auto header, reader.take(header_size, "the header"));
  const std::string_view text(reinterpret_cast<const char*>(header.data()), header.size());
  if (text.empty() || text[0] != '{') return invalid("{}: the header does not begin with {{", out.source_);

  HeaderReader sax(out.source_, out.tensors_, out.metadata_);
  if (!Json::sax_parse(text.begin(), text.end(), &sax)) return sax.status();

  // Ranges must follow one another without gap or overlap and end at the end of the file.
  std::stable_sort(out.tensors_.begin(), out.tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  const uint64_t data_begin = reader.offset();
  const uint64_t data_bytes = reader.remaining();
  uint64_t expected = 0;
  std::string_view previous = "the header";
  for (StoredTensor& t : out.tensors_) {
    if (t.offset > data_bytes || t.bytes > data_bytes - t.offset)
      return invalid("{}: tensor \"{}\": data_offsets [{}, {}] reach beyond the file's {} bytes of data", out.source_,
                     t.name, t.offset, t.offset + t.bytes, data_bytes);
    if (t.offset < expected)
      return invalid("{}: tensor \"{}\" begins at byte {} and overlaps \"{}\", which ends at {}", out.source_, t.name,
                     t.offset, previous, expected);
    if (t.offset > expected)
      return invalid("{}: bytes {} to {} between \"{}\" and \"{}\" belong to no tensor", out.source_, expected,
                     t.offset, previous, t.name);
    expected = t.offset + t.bytes;
    previous = t.name;
    t.offset += data_begin;
  }
  if (expected != data_bytes)
    return invalid("{}: the last {} bytes belong to no tensor", out.source_, data_bytes - expected);

  for (size_t i = 0; i < out.tensors_.size(); ++i) out.index_.emplace(out.tensors_[i].name, i);
  return out;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace reprise::checkpoint
