// Sizes that the kernels of latent attention and their entries share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise::cuda {

constexpr int64_t kLargestLatent = 512, kLargestLatentRope = 64;
constexpr int kLatentWarpColumns = 128;  // of the output that a warp keeps
constexpr int64_t kLatentSlots = 1024;   // states of 16 rows in the workspace

constexpr int64_t latent_state_columns(int64_t latent) {
  return (latent + kLatentWarpColumns - 1) / kLatentWarpColumns * kLatentWarpColumns;
}
// A state: largest, sum and output columns of 16 rows.
constexpr int64_t latent_state_floats(int64_t latent) { return 16 * (latent_state_columns(latent) + 2); }

}  // namespace reprise::cuda
