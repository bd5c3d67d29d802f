#include "simt/library.h"

#include <cstring>

#include "backends/cuda/kernels/linear_w8a8.h"
#include "simt/lane.h"

namespace reprise::simt {
namespace {

size_t result_bytes(const cuda::Product& p) {
  const bool wide = p.out == cuda::Number::F32 || p.out == cuda::Number::I32;
  return static_cast<size_t>(p.tokens * p.columns) * (wide ? 4 : 2);
}

template <class E>
void float_product(const cuda::Product& p, Launch& launch) {
  const cuda::ProductSizes z{p.tokens, p.depth, p.columns};
  if (p.out == cuda::Number::F32)
    cuda::product<E, cuda::F32>(z, p.x, p.weight, nullptr, nullptr, p.y, launch);
  else
    cuda::product<E, E>(z, p.x, p.weight, nullptr, nullptr, p.y, launch);
}

void own_product(const cuda::Product& p) {
  Launch launch;
  if (p.in == cuda::Number::I8)
    cuda::product_w8a8<cuda::I32>({p.tokens, p.depth, p.columns}, p.x, p.weight, cuda::SumsAlone{}, nullptr, p.y,
                                  launch);
  else if (p.in == cuda::Number::BF16)
    float_product<cuda::BF16>(p, launch);
  else
    float_product<cuda::F16>(p, launch);
}

}  // namespace

// Models of tests are small. The kernel behind int8 sums takes four columns at a time.
Library::Library(int64_t version)
    : choices_({version, "none", 2, cuda::kOwnProductKernels}, fmt::format("stand-in {}", version),
               [](const cuda::Algorithm& a) { return fmt::format("algorithm {}", a[0]); },
               {.least_depth = 16, .least_outputs = 16, .multiple = 4}) {}

bool Library::product(const cuda::Product& p) {
  const cuda::Algorithm* algorithm = choices_.choose(p, *this);
  if (!algorithm) return false;
  ++asked_.products;
  run(p, kind_of(*algorithm));
  return true;
}

std::vector<cuda::Algorithm> Library::proposals(const cuda::Product&) {
  ++asked_.proposals;
  std::vector<cuda::Algorithm> out;
  for (const Kind kind : {Kind::OtherBits, Kind::Slow, Kind::Fast}) out.push_back({static_cast<uint8_t>(kind)});
  return out;
}

bool Library::takes(const cuda::Product&, const cuda::Algorithm& a) { return kind_of(a) <= Kind::Fast; }

cuda::ProductTrials::Bits Library::compare(const cuda::Product& asked, const cuda::Algorithm& a) {
  ++asked_.proofs;
  cuda::Product p = asked;
  // Numbers near one, of either sign; as int8 any bytes do. The caller's x may have fewer rows.
  std::vector<uint16_t> x(static_cast<size_t>(p.tokens * p.depth));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(0x3c00 ^ (i * 40503 >> 3 & 0x83ff));
  std::vector<char> mine(result_bytes(p)), theirs(mine.size());
  p.x = x.data();
  p.y = mine.data();
  own_product(p);
  p.y = theirs.data();
  run(p, kind_of(a));
  return mine == theirs ? Bits::Ours : Bits::Other;
}

std::optional<float> Library::own_us(const cuda::Product&) {
  ++asked_.times;
  return 10.0f;
}
std::optional<float> Library::us(const cuda::Product&, const cuda::Algorithm& a) {
  ++asked_.times;
  return kind_of(a) == Kind::Fast ? 5.0f : 20.0f;
}

void Library::run(const cuda::Product& p, Kind kind) const {
  own_product(p);
  if (kind == Kind::OtherBits) static_cast<uint8_t*>(p.y)[0] ^= 1;
}

}  // namespace reprise::simt
