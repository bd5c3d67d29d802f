// Steps of ops that keep a state for each sequence: which rows are whose, the slots of states, and a course with drafts
// of which some come true. For tests of single ops.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "backends/op_runner.h"
#include "backends/paged_step.h"

namespace reprise::cpu::state_steps {

using Numbers = std::vector<double>;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Rows [from, to) of a sequence in a step, and the slots of its state.
struct Part {
  int64_t from, to;
  int32_t read, write;
};

struct Indices {
  explicit Indices(const std::vector<Part>& parts) {
    Numbers reads, writes, starts{0};
    for (const Part& p : parts) {
      reads.push_back(p.read);
      writes.push_back(p.write);
      starts.push_back(starts.back() + static_cast<double>(p.to - p.from));
    }
    read = indices(reads), write = indices(writes), borders = indices(starts);
  }
  TestTensor read, write, borders;
};

// The rows of parts one behind the other, and `padding` rows of NaN.
inline TestTensor rows_of_parts(const TestTensor& all, const std::vector<Part>& parts, int64_t padding) {
  std::vector<TestTensor> some;
  for (const Part& p : parts) some.push_back(rows_of(all, p.from, p.to - p.from));
  if (padding > 0) {
    some.push_back(rows_of(all, 0, padding));
    for (int64_t i = 0; i < some.back().size(); ++i) some.back().set(i, kNan);
  }
  return concat(some);
}

// Row `slot` of states as a tensor of its own.
inline TestTensor state_of(const TestTensor& states, int64_t slot) { return rows_of(states, slot, 1); }

// States of `slots` slots: 1 is zeros, the others are NaN.
inline TestTensor empty_states(const std::vector<int64_t>& sizes, int64_t slots) {
  std::vector<int64_t> shape{slots};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  TestTensor s = zero_tensor(DType::F32, shape);
  const int64_t each = s.size() / slots;
  for (int64_t i = 0; i < s.size(); ++i) s.set(i, i / each == 1 ? 0 : kNan);
  return s;
}

// A sequence's course through steps with drafts: of each step the first token that is its own, and drafts behind it, of
// which so many come true. Wrong ones are rows of another sequence.
struct Guesses {
  int64_t own, drafts, come_true;
};
inline const std::vector<Guesses>& course() {
  static const std::vector<Guesses> all{{6, 2, 2}, {1, 0, 0}, {1, 3, 0},  {1, 3, 1}, {1, 3, 3},  {1, 2, 1},
                                        {1, 0, 0}, {1, 1, 1}, {31, 3, 2}, {1, 3, 3}, {33, 3, 0}, {40, 0, 0}};
  return all;
}

// Runs `step` over the course with a bystander in front, and holds its rows to those of a sequence without drafts.
// step(states, parts, rows of each part, drafts of each) returns the states and the rows; `rows` are of the true text
// and of the wrong one.
template <typename Step>
void expect_rows_of_plain_steps(const TestTensor& whole, TestTensor states, const Step& step, const std::string& what) {
  int64_t at = 0, came_true = 0;
  int32_t slot = 1;
  for (const Guesses& g : course()) {
    const int32_t next = slot == 2 ? 3 : 2;
    const auto got = step(states, at, g, came_true, slot, next);
    expect_same_bits(rows_of(got[1], 2, g.own + g.come_true), rows_of(whole, at, g.own + g.come_true), what);
    states = got[0];
    at += g.own + g.come_true;
    came_true = g.come_true;
    slot = next;
  }
  EXPECT_EQ(at, whole.type.shape[0].factor);
}

inline int64_t length_of_course() {
  int64_t n = 0;
  for (const Guesses& g : course()) n += g.own + g.come_true;
  return n;
}

// Two rows of a bystander without drafts, then rows of the course: true ones, and wrong ones behind.
inline TestTensor rows_of_step(const TestTensor& all, const TestTensor& wrong, int64_t at, const Guesses& g) {
  std::vector<TestTensor> some{rows_of(wrong, 0, 2), rows_of(all, at, g.own + g.come_true)};
  if (g.drafts > g.come_true) some.push_back(rows_of(wrong, 3, g.drafts - g.come_true));
  return concat(some);
}

// Operands behind the rows: the bystander goes from zeros to slot 4.
inline std::vector<TestTensor> places(const Guesses& g, int64_t came_true, int32_t read, int32_t write) {
  const auto rows = static_cast<double>(g.own + g.drafts);
  TestTensor drafts = indices({0, 0, static_cast<double>(came_true), static_cast<double>(g.drafts)});
  drafts.type.shape = {Dim(2), Dim(2)};
  return {indices({1, static_cast<double>(read)}), indices({4, static_cast<double>(write)}), indices({0, 2, 2 + rows}),
          drafts};
}

inline constexpr int64_t kMostDrafts = 3;

}  // namespace reprise::cpu::state_steps
