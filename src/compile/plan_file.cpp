#include "compile/plan_file.h"

#include <xxhash.h>

#include <cstring>

#include "base/byte_reader.h"

namespace reprise {
namespace {

constexpr std::string_view kMagic = "REPRPLAN";
constexpr uint32_t kVersion = 7;

class Writer {
 public:
  template <typename T>
  void number(T v) {
    static_assert(std::is_arithmetic_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &v, sizeof(T));
    out.append(raw, sizeof(T));
  }
  void flag(bool v) { number<uint8_t>(v); }
  void text(std::string_view s) {
    number<uint64_t>(s.size());
    out += s;
  }
  template <typename List, typename One>
  void list(const List& items, One one) {
    number<uint64_t>(items.size());
    for (const auto& item : items) one(item);
  }

  std::string out;
};

// Reads go on after a failure and give nothing; the first failure is kept.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : in_(bytes, "plan") {}

  template <typename T>
  T number(std::string_view what) {
    auto v = failed_.is_ok() ? in_.read<T>(what) : Result<T>(failed_);
    return keep(std::move(v));
  }
  bool flag(std::string_view what) {
    const auto v = number<uint8_t>(what);
    if (v > 1) failed_ = invalid("plan: {} is {}, neither 0 nor 1", what, v);
    return v == 1;
  }
  std::string text(std::string_view what) {
    const auto size = number<uint64_t>(what);
    if (!failed_.is_ok()) return {};
    auto raw = in_.take(size, what);
    if (!raw.is_ok()) {
      failed_ = raw.status();
      return {};
    }
    return std::string(reinterpret_cast<const char*>(raw->data()), raw->size());
  }
  // Every entry takes at least one byte, so a wild count ends at the end of the bytes.
  template <typename T, typename One>
  std::vector<T> list(std::string_view what, One one) {
    std::vector<T> items;
    const auto count = number<uint64_t>(what);
    for (uint64_t i = 0; i < count && failed_.is_ok(); ++i) items.push_back(one());
    return items;
  }

  Status finish() const {
    if (!failed_.is_ok()) return failed_;
    if (in_.remaining() > 0) return invalid("plan: {} bytes too many", in_.remaining());
    return Status::ok();
  }

 private:
  template <typename T>
  T keep(Result<T> v) {
    if (v.is_ok()) return *v;
    failed_ = v.status();
    return T{};
  }

  ByteReader in_;
  Status failed_;
};

void write(Writer& w, const std::vector<PassRemark>& remarks) {
  w.list(remarks, [&](const PassRemark& r) {
    w.number(r.at);
    w.text(r.reason);
  });
}

std::vector<PassRemark> read_remarks(Reader& r) {
  return r.list<PassRemark>("remarks", [&] {
    PassRemark remark;
    remark.at = r.number<uint32_t>("remark");
    remark.reason = r.text("remark");
    return remark;
  });
}

// Taken apart by name: a new field does not compile before it is stored.
void write(Writer& w, const PassReport& p) {
  const auto& [name, required, skipped, tried, matched, refusals, refused, applied, seconds, before, after, graph] = p;
  static_cast<void>(graph);  // asked for by those who look at passes, and then nothing is cached
  w.text(name);
  w.flag(required);
  w.text(skipped);
  for (int64_t n : {tried, matched, refusals}) w.number(n);
  write(w, refused);
  write(w, applied);
  w.number(seconds);
  for (size_t n : {before, after}) w.number<uint64_t>(n);
}

PassReport read_pass(Reader& r) {
  PassReport p;
  p.name = r.text("pass");
  p.required = r.flag("pass");
  p.skipped = r.text("pass");
  for (int64_t* n : {&p.tried, &p.matched, &p.refusals}) *n = r.number<int64_t>("pass");
  p.refused = read_remarks(r);
  p.applied = read_remarks(r);
  p.seconds = r.number<double>("pass");
  for (size_t* n : {&p.nodes_before, &p.nodes_after}) *n = r.number<uint64_t>("pass");
  return p;
}

}  // namespace

std::string encode_payload(const PlanFile& f) {
  Writer w;
  w.text(f.graph);
  w.list(f.kernels, [&](const std::string& name) { w.text(name); });
  w.list(f.storages, [&](const StoredStorage& s) {
    w.flag(s.workspace);
    w.number(s.id);
    for (int64_t n : {s.first, s.last}) w.number(n);
    for (uint64_t n : {s.bytes, s.offset}) w.number(n);
  });
  w.number(f.arena_bytes);
  const auto& [traced, passes, derived] = f.report;
  static_cast<void>(traced);  // as PassReport::graph
  w.list(passes, [&](const PassReport& p) { write(w, p); });
  w.list(derived, [&](const DerivedParam& p) {
    w.text(p.name);
    w.flag(p.elsewhere);
    w.list(p.parts, [&](const ParamPart& part) {
      w.text(part.tensor);
      w.number(part.rows);
      w.number(static_cast<uint8_t>(part.recipe));
      w.number(part.columns);
      w.text(part.other);
      for (int64_t n : {part.first, part.of, part.from, part.whole, part.column, part.all_columns}) w.number(n);
    });
  });
  return std::move(w.out);
}

Result<PlanFile> decode_payload(std::span<const uint8_t> payload) {
  Reader r(payload);
  PlanFile f;
  f.graph = r.text("graph");
  f.kernels = r.list<std::string>("kernels", [&] { return r.text("kernel"); });
  f.storages = r.list<StoredStorage>("storages", [&] {
    StoredStorage s;
    s.workspace = r.flag("storage");
    s.id = r.number<uint32_t>("storage");
    for (int64_t* n : {&s.first, &s.last}) *n = r.number<int64_t>("storage");
    for (uint64_t* n : {&s.bytes, &s.offset}) *n = r.number<uint64_t>("storage");
    return s;
  });
  f.arena_bytes = r.number<uint64_t>("arena");
  f.report.passes = r.list<PassReport>("passes", [&] { return read_pass(r); });
  bool known_recipes = true;
  f.report.derived = r.list<DerivedParam>("derived parameters", [&] {
    DerivedParam p;
    p.name = r.text("derived parameter");
    p.elsewhere = r.flag("derived parameter");
    p.parts = r.list<ParamPart>("parts", [&] {
      ParamPart part;
      part.tensor = r.text("part");
      part.rows = r.number<int64_t>("rows");
      const auto recipe = r.number<uint8_t>("recipe");
      known_recipes = known_recipes && recipe < kRecipes;
      part.recipe = static_cast<Recipe>(recipe);
      part.columns = r.number<int64_t>("columns");
      part.other = r.text("part");
      for (int64_t* n : {&part.first, &part.of, &part.from, &part.whole, &part.column, &part.all_columns})
        *n = r.number<int64_t>("rows");
      return part;
    });
    return p;
  });
  RETURN_IF_ERROR(r.finish());
  if (!known_recipes) return invalid("plan: a recipe that is not known");
  return f;
}

std::string encode(const PlanFile& file, const PlanKey& key) {
  const std::string payload = encode_payload(file);
  Writer w;
  w.out = kMagic;
  w.number(kVersion);
  w.out.append(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
  w.number<uint64_t>(payload.size());
  w.number<uint64_t>(XXH3_64bits(payload.data(), payload.size()));
  return w.out + payload;
}

Result<PlanFile> decode(std::span<const uint8_t> bytes, const PlanKey& key) {
  ByteReader in(bytes, "plan");
  ASSIGN_OR_RETURN(const auto magic, in.take(kMagic.size(), "magic"));
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) return invalid("not a plan");
  ASSIGN_OR_RETURN(const auto version, in.read<uint32_t>("version"));
  if (version != kVersion) return invalid("format version {} instead of {}", version, kVersion);
  ASSIGN_OR_RETURN(const auto stored_key, in.take(key.bytes.size(), "key"));
  if (std::memcmp(stored_key.data(), key.bytes.data(), key.bytes.size()) != 0)
    return invalid("the plan of another key");
  ASSIGN_OR_RETURN(const auto size, in.read<uint64_t>("length"));
  ASSIGN_OR_RETURN(const auto checksum, in.read<uint64_t>("checksum"));
  if (size != in.remaining()) return invalid("{} bytes instead of {}", in.remaining(), size);
  ASSIGN_OR_RETURN(const auto payload, in.take(size, "payload"));
  if (XXH3_64bits(payload.data(), payload.size()) != checksum) return invalid("the checksum does not match");
  return decode_payload(payload);
}

}  // namespace reprise
