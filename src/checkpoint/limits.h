// The largest numbers that a model's files may name. A larger one is a broken file, and is refused before anything is
// computed with it.
#pragma once

#include <cstdint>

namespace reprise::checkpoint {

constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr int64_t kMaxTokenId = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxExperts = 4096;
// Far above any real model and low enough that products of a few of them stay inside 63 bits.
constexpr int64_t kMaxLayers = 1000;
constexpr int64_t kMaxHidden = 1 << 20;
constexpr int64_t kMaxIntermediate = 1 << 22;
constexpr int64_t kMaxHeads = 65536;
constexpr int64_t kMaxHeadDim = 8192;
constexpr int64_t kMaxScaleFactors = 256;  // of queries by position
constexpr int64_t kMaxVocab = 10'000'000;

}  // namespace reprise::checkpoint
