// Angles: the table of rotary positions in the two forms that the vendor's operators take, in the type of what they
// rotate.
//
// RopeWithSinCosCache reads rows [T, rot] of cosines, then sines. InterleaveRope and KvRmsNormRopeCache read cosines
// [T, 1, 1, rot] and sines apart, each number at both of the places that it turns: the planes of `rope_angles`. A table
// in fp32 is converted within the launch; the pass convert_once has that done once a step.
#pragma once

#include "backends/ascend/entries.h"

namespace reprise::ascend {

struct Angles {
  const void* data = nullptr;
  DType stored = DType::F32;  // of `data`; anything else is `type`
  DType type = DType::F32;
  int64_t tokens = 0, rotated = 0;
  bool planes = false;  // of `data`
};

struct AnglePlanes {
  aclTensor* cos;
  aclTensor* sin;
};

// Whether operand `table` of the call has the form of planes, where `tokens` is what it holds once.
inline bool are_planes(const OpCall& c, size_t table, Dim tokens) { return !same_dim(c.in[table].shape[0], tokens); }

// Writes the planes of a table in fp32 to [2, T, rot] of that type.
Status write_planes(const Angles& from, void* to, Launch& l);

// [T, rot]; the data are no planes.
Result<aclTensor*> rows_of_angles(const Angles& a, Launch& l);
// [T, 1, 1, rot] each; the data are planes or fp32.
Result<AnglePlanes> planes_of_angles(const Angles& a, Launch& l);

}  // namespace reprise::ascend
