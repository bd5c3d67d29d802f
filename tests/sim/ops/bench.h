// What tests of the simulator's operators stand on: tensors with data, and a machine that runs each kernel at once and
// checks that it stays within the memory it declared.
//
// One test at a time uses it; reset() is called by the fixture.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ascend/kernel.h"
#include "ascend/ops/acl_op.h"
#include "ascend/ops/numbers.h"

namespace sim_test {

using ascend_sim::kBf16;
using ascend_sim::kBool;
using ascend_sim::kFloat;
using ascend_sim::kHalf;
using ascend_sim::kInt32;
using ascend_sim::kInt64;
using ascend_sim::kInt8;
using ascend_sim::kUint64;
using Dims = std::vector<int64_t>;

// What the operators answer: a null pointer, an argument that no form takes, a limit of this form, no such form.
inline constexpr int kNull = 161001, kBad = 161002, kLimit = 561002, kAbsent = 561003;
inline constexpr aclDataType kFloats[] = {kFloat, kHalf, kBf16};

struct Bench {
  std::vector<ascend_sim::Kernel> kernels;  // of the last launch; computed already
  std::string error;                        // the last text given to fail()
  double host_micros = 0;
  ascend_sim::Machine machine;
  bool updating = false;
  // Ranks that run an operator together, one after the other in this process: the seat of the one at hand, and what
  // those that came have given. Once all have, a rank that runs it takes what is there.
  ascend_sim::Seat seat;
  std::vector<std::vector<uint8_t>> given;
  double link_bytes = 0;
};
Bench& bench();

// A tensor with memory of its own, filled with poison.
class Array {
 public:
  Array(aclDataType dtype, Dims shape);
  Array(aclDataType dtype, Dims shape, const std::vector<double>& values);
  // Packed memory seen with other strides: `storage` elements, the view starting at `offset`.
  Array(aclDataType dtype, Dims shape, Dims strides, int64_t offset, int64_t storage);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  operator aclTensor*() const { return tensor_; }  // NOLINT: passed straight to operators
  aclTensor* get() const { return tensor_; }
  // Gives the handle away, as to a list that destroys it.
  aclTensor* release();
  void set(const std::vector<double>& values);  // in logical order
  std::vector<double> get_all() const;
  std::vector<uint64_t> raw() const;  // the storage, as 64-bit words
  void* device() const;
  std::vector<char>& memory() { return memory_; }
  const Dims& shape() const { return shape_; }
  aclDataType dtype() const { return dtype_; }
  // The same memory described anew, as after a change of format.
  void describe(const Dims& shape, const Dims& strides, aclFormat format, const Dims& storage);

 private:
  std::vector<int64_t> places() const;

  aclDataType dtype_;
  Dims shape_, strides_;
  int64_t offset_ = 0;
  std::vector<char> memory_;
  aclTensor* tensor_ = nullptr;
};

// A list of tensors; it owns them as the real one does.
class List {
 public:
  explicit List(std::vector<Array*> arrays);
  ~List();
  operator aclTensorList*() const { return list_; }  // NOLINT

 private:
  aclTensorList* list_;
};

class Ints {
 public:
  explicit Ints(const Dims& values) : array_(aclCreateIntArray(values.data(), values.size())) {}
  ~Ints() { aclDestroyIntArray(array_); }
  Ints(const Ints&) = delete;
  Ints& operator=(const Ints&) = delete;
  operator const aclIntArray*() const { return array_; }  // NOLINT

 private:
  aclIntArray* array_;
};

class Number {
 public:
  explicit Number(float value) : scalar_(aclCreateScalar(&value, kFloat)) {}
  explicit Number(int64_t value) : scalar_(aclCreateScalar(&value, kInt64)) {}
  ~Number() { aclDestroyScalar(scalar_); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  operator const aclScalar*() const { return scalar_; }  // NOLINT

 private:
  aclScalar* scalar_;
};

using Phase1 = std::function<aclnnStatus(uint64_t*, aclOpExecutor**)>;
using Phase2 = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

// Both phases with a workspace of just the size asked for.
aclnnStatus run(const Phase1& phase1, Phase2 phase2);
// The code of phase 1 alone; an executor is destroyed again.
aclnnStatus refused(const Phase1& phase1);

// Numbers that the type holds exactly enough, the same for the same seed.
std::vector<double> numbers(int64_t count, unsigned seed, double low = -1, double high = 1);
// What the type keeps of a number.
double kept(aclDataType dtype, double value);
std::vector<double> kept(aclDataType dtype, std::vector<double> values);

// Compares in the type's own steps: each element within `steps` units in the last place of the larger one, or `floor`.
void expect_close(const std::vector<double>& got, const std::vector<double>& want, aclDataType dtype,
                  double floor = 1e-6, double steps = 1.01);

class OpsTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;  // nothing may be left alive
};

}  // namespace sim_test

// Both phases of an operator, named once.
#define RUN_OP(name, ...)                                                                                           \
  ::sim_test::run([&](uint64_t* size_,                                                                              \
                      aclOpExecutor** executor_) { return name##GetWorkspaceSize(__VA_ARGS__, size_, executor_); }, \
                  name)
#define REFUSED(name, ...)                                              \
  ::sim_test::refused([&](uint64_t* size_, aclOpExecutor** executor_) { \
    return name##GetWorkspaceSize(__VA_ARGS__, size_, executor_);       \
  })
