#include "device/product_file.h"

#include <xxhash.h>

#include <cmath>
#include <cstring>

#include "base/byte_reader.h"

namespace reprise {
namespace {

constexpr std::string_view kWaysMagic = "REPRWAYS";
constexpr uint32_t kWaysVersion = 1;
constexpr uint64_t kMostIsa = 64;
constexpr int64_t kMostSize = int64_t{1} << 40;  // of a dimension
constexpr uint64_t kWayBytes = 4 + 4 * 8 + 64 + 2 * 4 + 2 * 2;

template <typename T>
void put(std::string& out, T v) {
  static_assert(std::is_arithmetic_v<T>);
  char raw[sizeof(T)];
  std::memcpy(raw, &v, sizeof(T));
  out.append(raw, sizeof(T));
}

std::string key_bytes(const ProductWaysKey& key) {
  std::string out;
  put(out, key.library);
  put(out, key.multiprocessors);
  put(out, key.own_kernels);
  put<uint32_t>(out, static_cast<uint32_t>(key.isa.size()));
  out += key.isa;
  return out;
}

Result<ProductWaysKey> read_key(ByteReader& in) {
  ProductWaysKey key;
  ASSIGN_OR_RETURN(key.library, in.read<int64_t>("version of the library"));
  ASSIGN_OR_RETURN(key.multiprocessors, in.read<int64_t>("multiprocessors"));
  ASSIGN_OR_RETURN(key.own_kernels, in.read<uint32_t>("version of the own kernels"));
  ASSIGN_OR_RETURN(const auto size, in.read<uint32_t>("length of the architecture's name"));
  if (size > kMostIsa) return invalid("the architecture's name has {} bytes", size);
  ASSIGN_OR_RETURN(const auto isa, in.take(size, "architecture"));
  key.isa.assign(isa.begin(), isa.end());
  return key;
}

void put(std::string& out, const ProductWay& w) {
  const size_t before = out.size();
  for (const uint8_t byte :
       {static_cast<uint8_t>(w.in), static_cast<uint8_t>(w.out), static_cast<uint8_t>(w.outcome), uint8_t{0}})
    put(out, byte);
  for (const int64_t n : {w.depth, w.columns, w.rows.first, w.rows.last}) put(out, n);
  for (const uint8_t byte : w.algorithm) put(out, byte);
  for (const float us : {w.us, w.own_us}) put(out, us);
  for (const uint16_t n : {w.proposed, w.other_bits}) put(out, n);
  CHECK(out.size() - before == kWayBytes, "a way of {} bytes", out.size() - before);
}

bool is_product(DType in, DType out) {
  switch (in) {
    case DType::F16:
    case DType::BF16: return out == in || out == DType::F32;
    case DType::I8: return out == DType::I32;
    default: return false;
  }
}

Status check_way(const ProductWay& w) {
  const auto size = [](int64_t n) { return n > 0 && n <= kMostSize; };
  if (!is_product(w.in, w.out))
    return invalid("a product of {} with a result of {}", static_cast<int>(w.in), static_cast<int>(w.out));
  if (!size(w.depth) || !size(w.columns)) return invalid("a product of {} by {}", w.columns, w.depth);
  if (!size(w.rows.first) || !(rows_like(w.rows.first) == w.rows))
    return invalid("a range of rows from {} to {}", w.rows.first, w.rows.last);
  for (const float us : {w.us, w.own_us})
    if (!std::isfinite(us) || us < 0) return invalid("a time of {}", us);
  if (w.other_bits > w.proposed) return invalid("{} of {} algorithms", w.other_bits, w.proposed);
  return Status::ok();
}

Result<ProductWay> read_way(ByteReader& in) {
  ProductWay w;
  ASSIGN_OR_RETURN(const auto head, in.take(4, "way"));
  if (head[2] >= ProductWay::kOutcomes || head[3] != 0)
    return invalid("an outcome of {}, {}", static_cast<int>(head[2]), static_cast<int>(head[3]));
  w.in = static_cast<DType>(head[0]);
  w.out = static_cast<DType>(head[1]);
  w.outcome = static_cast<ProductWay::Outcome>(head[2]);
  for (int64_t* n : {&w.depth, &w.columns, &w.rows.first, &w.rows.last}) {
    ASSIGN_OR_RETURN(*n, in.read<int64_t>("size"));
  }
  ASSIGN_OR_RETURN(const auto algorithm, in.take(w.algorithm.size(), "algorithm"));
  std::memcpy(w.algorithm.data(), algorithm.data(), algorithm.size());
  for (float* us : {&w.us, &w.own_us}) {
    ASSIGN_OR_RETURN(*us, in.read<float>("time"));
  }
  for (uint16_t* n : {&w.proposed, &w.other_bits}) {
    ASSIGN_OR_RETURN(*n, in.read<uint16_t>("count"));
  }
  RETURN_IF_ERROR(check_way(w));
  return w;
}

}  // namespace

std::string encode_ways_payload(const std::vector<ProductWay>& ways) {
  std::string out;
  put<uint64_t>(out, ways.size());
  for (const ProductWay& w : ways) put(out, w);
  return out;
}

Result<std::vector<ProductWay>> decode_ways_payload(std::span<const uint8_t> payload) {
  ByteReader in(payload, "ways of products");
  ASSIGN_OR_RETURN(const auto count, in.read<uint64_t>("number of ways"));
  if (count > kMostWays || count * kWayBytes != in.remaining())
    return invalid("ways of products: {} of them in {} bytes", count, in.remaining());
  std::vector<ProductWay> ways;
  ways.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    auto way = read_way(in);
    if (!way.is_ok()) return way.status().at(fmt::format("way {}", i));
    ways.push_back(*way);
  }
  return ways;
}

std::string encode_ways(const std::vector<ProductWay>& ways, const ProductWaysKey& key) {
  const std::string body = key_bytes(key) + encode_ways_payload(ways);
  std::string out(kWaysMagic);
  put(out, kWaysVersion);
  put<uint64_t>(out, body.size());
  put<uint64_t>(out, XXH3_64bits(body.data(), body.size()));
  return out + body;
}

Result<std::vector<ProductWay>> decode_ways(std::span<const uint8_t> bytes, const ProductWaysKey& key) {
  ByteReader in(bytes, "ways of products");
  ASSIGN_OR_RETURN(const auto magic, in.take(kWaysMagic.size(), "magic"));
  if (std::memcmp(magic.data(), kWaysMagic.data(), magic.size()) != 0) return invalid("it is no file of this kind");
  ASSIGN_OR_RETURN(const auto version, in.read<uint32_t>("format version"));
  if (version != kWaysVersion)
    return error(Code::Unsupported, "it has format version {}, and this program reads {}", version, kWaysVersion);
  ASSIGN_OR_RETURN(const auto size, in.read<uint64_t>("length"));
  ASSIGN_OR_RETURN(const auto sum, in.read<uint64_t>("checksum"));
  ASSIGN_OR_RETURN(const auto body, in.take(size, "body"));
  if (in.remaining() > 0) return invalid("{} bytes too many", in.remaining());
  if (XXH3_64bits(body.data(), body.size()) != sum) return invalid("the checksum is wrong");
  ByteReader rest(body, "ways of products");
  ASSIGN_OR_RETURN(const ProductWaysKey stored, read_key(rest));
  if (!(stored == key))
    return error(Code::Unsupported,
                 "it is of library version {}, kernels {}, and a GPU of {} with {} multiprocessors; here these are {}, "
                 "{}, {} and {}",
                 stored.library, stored.own_kernels, stored.isa, stored.multiprocessors, key.library, key.own_kernels,
                 key.isa, key.multiprocessors);
  return decode_ways_payload(body.subspan(rest.offset()));
}

}  // namespace reprise
