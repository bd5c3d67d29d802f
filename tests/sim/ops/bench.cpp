#include "sim/ops/bench.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "ascend/ops/tensor.h"

namespace sim_test {

namespace {

// Device addresses differ from host addresses by this bit: touching one by mistake crashes.
constexpr uintptr_t kTag = uintptr_t{1} << 54;

std::map<uintptr_t, size_t>& blocks() {
  static std::map<uintptr_t, size_t> all;
  return all;
}

const std::vector<ascend_sim::Touch>*& touches_now() {
  static const std::vector<ascend_sim::Touch>* current = nullptr;
  return current;
}

void* tagged(void* host) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(host) | kTag); }

void own(void* host, size_t bytes) { blocks()[reinterpret_cast<uintptr_t>(host)] = bytes; }
void disown(void* host) { blocks().erase(reinterpret_cast<uintptr_t>(host)); }

bool inside_a_block(uintptr_t address, size_t bytes) {
  auto next = blocks().upper_bound(address);
  if (next == blocks().begin()) return false;
  --next;
  return address + bytes <= next->first + next->second;
}

}  // namespace

Bench& bench() {
  static Bench all;
  return all;
}

Array::Array(aclDataType dtype, Dims shape)
    : Array(dtype, shape, ascend_sim::packed_strides(shape), 0, ascend_sim::product(shape)) {}

Array::Array(aclDataType dtype, Dims shape, const std::vector<double>& values) : Array(dtype, std::move(shape)) {
  set(values);
}

Array::Array(aclDataType dtype, Dims shape, Dims strides, int64_t offset, int64_t storage)
    : dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides)), offset_(offset) {
  memory_.assign(static_cast<size_t>(std::max<int64_t>(1, storage) * ascend_sim::size_of(dtype)), '\xFF');
  own(memory_.data(), memory_.size());
  tensor_ = aclCreateTensor(shape_.data(), shape_.size(), dtype, strides_.data(), offset, ascend_sim::kNd, &storage, 1,
                            device());
}

Array::~Array() {
  if (tensor_ != nullptr) aclDestroyTensor(tensor_);
  disown(memory_.data());
}

aclTensor* Array::release() {
  aclTensor* tensor = tensor_;
  tensor_ = nullptr;
  return tensor;
}

void* Array::device() const { return tagged(const_cast<char*>(memory_.data())); }

std::vector<int64_t> Array::places() const {
  std::vector<int64_t> all;
  Dims shape = shape_, strides = strides_;
  shape.push_back(1);
  strides.push_back(1);
  ascend_sim::for_rows(shape, strides, [&](int64_t offset, int64_t) { all.push_back(offset_ + offset); });
  return all;
}

void Array::set(const std::vector<double>& values) {
  const std::vector<int64_t> all = places();
  ASSERT_EQ(all.size(), values.size());
  for (size_t i = 0; i < all.size(); ++i) {
    ascend_sim::write_run(dtype_, memory_.data() + all[i] * ascend_sim::size_of(dtype_), 1, 1, &values[i]);
  }
}

std::vector<double> Array::get_all() const {
  std::vector<double> values;
  for (const int64_t place : places()) {
    double value = 0;
    ascend_sim::read_run(dtype_, memory_.data() + place * ascend_sim::size_of(dtype_), 1, 1, &value);
    values.push_back(value);
  }
  return values;
}

std::vector<uint64_t> Array::raw() const {
  std::vector<uint64_t> words(memory_.size() / 8);
  std::memcpy(words.data(), memory_.data(), words.size() * 8);
  return words;
}

void Array::describe(const Dims& shape, const Dims& strides, aclFormat format, const Dims& storage) {
  shape_ = shape;
  strides_ = strides;
  aclInitTensor(tensor_, shape.data(), shape.size(), dtype_, strides.data(), offset_, format, storage.data(),
                storage.size(), device());
}

List::List(std::vector<Array*> arrays) {
  std::vector<const aclTensor*> tensors;
  for (Array* array : arrays) tensors.push_back(array->release());
  list_ = aclCreateTensorList(tensors.data(), tensors.size());
}

List::~List() { aclDestroyTensorList(list_); }

aclnnStatus run(const Phase1& phase1, Phase2 phase2) {
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  bench().error.clear();
  if (const aclnnStatus status = phase1(&size, &executor)) return status;
  // Large ones are touched lazily: those of attention have tens of megabytes.
  constexpr size_t kPoisoned = size_t{1} << 20;
  const std::unique_ptr<char, decltype(&std::free)> memory(static_cast<char*>(std::calloc(1, size + 64)), &std::free);
  if (size <= kPoisoned) std::memset(memory.get(), 0xFF, size + 64);
  auto start = (reinterpret_cast<uintptr_t>(memory.get()) + 63) / 64 * 64;
  own(reinterpret_cast<void*>(start), size);
  const aclnnStatus status = phase2(size ? tagged(reinterpret_cast<void*>(start)) : nullptr, size, executor, nullptr);
  disown(reinterpret_cast<void*>(start));
  return status;
}

aclnnStatus refused(const Phase1& phase1) {
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  bench().error.clear();
  const aclnnStatus status = phase1(&size, &executor);
  if (status == 0) {
    aclDestroyAclOpExecutor(executor);
  } else {
    EXPECT_FALSE(bench().error.empty()) << "a refusal says why";
    EXPECT_EQ(executor, nullptr);
  }
  return status;
}

std::vector<double> numbers(int64_t count, unsigned seed, double low, double high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = uniform(random);
  return values;
}

double kept(aclDataType dtype, double value) {
  uint64_t bits = 0;
  ascend_sim::write_run(dtype, &bits, 1, 1, &value);
  ascend_sim::read_run(dtype, &bits, 1, 1, &value);
  return value;
}

std::vector<double> kept(aclDataType dtype, std::vector<double> values) {
  for (double& value : values) value = kept(dtype, value);
  return values;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, aclDataType dtype, double floor,
                  double steps) {
  ASSERT_EQ(got.size(), want.size());
  const double step = dtype == kBf16 ? 0x1p-8 : dtype == kHalf ? 0x1p-11 : dtype == kFloat ? 0x1p-20 : 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double room = std::max(floor, steps * step * std::max(std::fabs(got[i]), std::fabs(want[i])));
    ASSERT_LE(std::fabs(got[i] - want[i]), room) << "at " << i << ": " << got[i] << " instead of " << want[i];
  }
}

void OpsTest::SetUp() {
  bench() = {};
  aclnnFinalize();
}

void OpsTest::TearDown() {
  char text[512] = {};
  EXPECT_EQ(ascendSimLiveObjects(text, sizeof(text)), 0) << text;
}

}  // namespace sim_test

namespace sim_test {

static void run_together(const ascend_sim::Exchange& exchange) {
  Bench& b = bench();
  b.given.resize(static_cast<size_t>(b.seat.size));
  b.given[static_cast<size_t>(b.seat.rank)] = exchange.give();
  for (const auto& one : b.given)
    if (one.empty()) return;
  b.link_bytes = exchange.take(b.given);
}

}  // namespace sim_test

// The machine: kernels run at once, within what they said they touch.
namespace ascend_sim {

using sim_test::bench;

int launch(void*, std::vector<Kernel> kernels) {
  bench().kernels = std::move(kernels);
  for (const Kernel& kernel : bench().kernels) {
    EXPECT_GE(kernel.work.operations, 0) << kernel.name;
    for (const Touch& touch : kernel.touches) {
      const uintptr_t address = reinterpret_cast<uintptr_t>(touch.address) & ~sim_test::kTag;
      if (!sim_test::inside_a_block(address, touch.bytes))
        return fail(507015, kernel.name + " touches memory of nobody");
    }
    sim_test::touches_now() = &kernel.touches;
    int code = 0;
    try {
      if (kernel.exchange)
        sim_test::run_together(*kernel.exchange);
      else if (bench().machine.computes)
        kernel.compute();
    } catch (const DeviceFault& fault) {
      code = fail(507015, fault.what());
    }
    sim_test::touches_now() = nullptr;
    if (code != 0) return code;
  }
  return 0;
}

void* host_address(const void* device_address) {
  const auto address = reinterpret_cast<uintptr_t>(device_address);
  EXPECT_NE(sim_test::touches_now(), nullptr) << "only a kernel may look at device memory";
  EXPECT_TRUE((address & sim_test::kTag) != 0) << "this is no device address";
  bool declared = false;
  for (const Touch& touch : *sim_test::touches_now()) {
    const auto start = reinterpret_cast<uintptr_t>(touch.address);
    declared |= address >= start && address < start + touch.bytes;
  }
  EXPECT_TRUE(declared) << "a kernel looks at memory that it did not declare";
  return reinterpret_cast<void*>(address & ~sim_test::kTag);
}

int fail(int code, std::string text) {
  bench().error = std::move(text);
  return code;
}

Seat seat_in(const std::string& group) { return group == "experts" ? bench().seat : Seat{}; }
void spend_host(double microseconds) { bench().host_micros += microseconds; }
bool updating() { return bench().updating; }
const Machine& machine() { return bench().machine; }

}  // namespace ascend_sim
