// RecurrentRows: where the rows of a step's sequences lie for operators that know no sequences, computed on the device.
//
// Prompts in captured graphs: their borders are known to the device alone. Numbers of rows are counted in fp32, which
// is exact below 2^24. Plain functions over one launch; nothing is kept.
#pragma once

#include "backends/ascend/entries.h"

namespace reprise::ascend {

// What the kernels of layers with states read besides their operands: 0, 1, 2, ... and ones, kRows each; ones as i32;
// then 1, 2, 4, 8 as i32; a number larger than any count; then `key` numbers that scale a row of root mean square 1 to
// length 1, where there is a key.
struct RecurrentConstants {
  static void* make(Context& context, int64_t key);
  explicit RecurrentConstants(const void* block) : block_(block) {}

  const void* numbers() const { return at(0); }
  const void* ones() const { return at(Context::kRows); }
  const void* whole_ones() const { return at(2 * Context::kRows); }
  const void* power_of_two(int exponent) const { return at(3 * Context::kRows + exponent); }
  const void* many() const { return at(3 * Context::kRows + kPowers); }
  const void* unit_scale() const { return at(3 * Context::kRows + kPowers + 1); }

  static constexpr int kPowers = 4;

 private:
  const void* at(int64_t element) const { return static_cast<const float*>(block_) + element; }
  const void* block_;
};

// Rows and sequences of the step, and their borders [sequences + 1] as i32.
struct Borders {
  int64_t rows = 0, sequences = 0;
  const void* cu_seqlens = nullptr;
};

// The borders in f32.
Result<const void*> borders_in_floats(const Borders& b, Launch& l);
// f32 [rows]: how many sequences begin at or before each row; those without rows are one. `apart`: for rows of no
// sequence a larger number than there are sequences.
Result<const void*> begun(const Borders& b, bool apart, const RecurrentConstants& c, Launch& l);
// i32 [n] of f32 [n], which are whole.
Result<const void*> whole_numbers(const void* floats, int64_t n, Launch& l);
// Device memory for n numbers of 32 bits.
inline void* words(int64_t n, Launch& l) { return l.scratch(static_cast<size_t>(n) * sizeof(float)); }

}  // namespace reprise::ascend
