// SegmentShape: how the scratch memory of segment_attention is laid out: a sequence's keys of one head, transposed in
// panels of 32, its values as floats, and the scores of a few queries. A plain value.
#pragma once

#include <cstdint>

namespace reprise::cpu {

struct SegmentShape {
  static constexpr int64_t kQueries = 8;  // whose scores are there at once, at most
  static constexpr int64_t kBlock = 32;   // queries of a unit of work, which one thread takes
  static constexpr int64_t kLanes = 16;
  static constexpr int64_t kPanel = 2 * kLanes;  // keys that lie side by side: a long row of them would be read with a
                                                 // stride that has few places in the first-level cache

  constexpr SegmentShape(int64_t keys, int64_t size)
      : columns((keys + kPanel - 1) / kPanel * kPanel), width((size + kLanes - 1) / kLanes * kLanes) {}

  constexpr int64_t key_floats() const { return width * columns; }
  constexpr int64_t value_floats() const { return columns * width; }
  // One line more keeps threads apart.
  constexpr int64_t thread_floats() const {
    return key_floats() + value_floats() + kQueries * (columns + width) + kLanes;
  }

  int64_t columns;  // of keys, padded
  int64_t width;    // of a head, padded
};

}  // namespace reprise::cpu
