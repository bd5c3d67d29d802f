// The vision tower of the Qwen VL families as a program of its own: patches of one image in, a row for each block of
// merged patches out, and further rows for the first layers of the text model (deepstack).
//
// Sizes: M merged rows, `block` patches each; S + 1 cu_seqlens of what attends to itself. Patches come window by window
// where blocks attend in windows, and so do the rows. Traced like a step; the layout below is filled on the host.
// Stateless.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace reprise::models {

// Names of the symbols, in the order of their ids: merged rows, cu_seqlens of images, cu_seqlens of windows.
enum TowerSymbol : SymbolId { kMergedRows = 1, kImageCuSeqlens, kWindowCuSeqlens };

constexpr std::string_view kPatchesInput = "patches", kPlacesInput = "places", kImageCuSeqlensInput = "cu_seqlens",
                           kWindowCuSeqlensInput = "windows";

// The program's inputs are "patches" [block M, numbers], "places" [block M, 2] i32 (row and column of each patch),
// "cu_seqlens", where there are windows "windows", and for each of four taps of learned positions "tap.<k>" i32 and
// "tap_weight.<k>" f32, [block M] and [block M, 1]. Outputs: "rows" and "deep.<k>", [M, out_hidden].
Result<Graph> trace_tower(const ModelConfig& config, DType dtype, int64_t max_rows, const OpRegistry& ops);

// Where patches of a grid of rows x columns lie.
struct TowerLayout {
  std::vector<int32_t> order;    // patch i of the program is this one of images::Patches
  std::vector<int32_t> places;   // [patches, 2]
  std::vector<int32_t> windows;  // cu_seqlens; empty: there are none
  std::vector<int32_t> row_of;   // merged row i of the image is this one of the program's
  std::array<std::vector<int32_t>, 4> taps;
  std::array<std::vector<float>, 4> weights;
};
TowerLayout tower_layout(const checkpoint::VisionFields& vision, int64_t rows, int64_t columns);

}  // namespace reprise::models
