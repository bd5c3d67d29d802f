// Names of GGUF tensors in terms of Hugging Face names, and what the conversion did to their rows. llama.cpp's
// converter stores the q and k projections of some architectures with the two halves of each head interleaved; the
// code that reads them under the Hugging Face name must undo that. Others have the heads of values of their layers with
// states in another order. Which do, their families say (tensor_names.h). Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/family.h"

namespace reprise::checkpoint {

// Heads of values in the order of files: with G key heads, value head j of key head k is head j G + k there, and k R +
// j of Hugging Face's R for each (llama.cpp, conversion/qwen.py, _LinearAttentionVReorderBase). A plain value.
struct TiledHeads {
  int64_t key_heads = 0;  // 0: files have them in Hugging Face's order
  int64_t each = 0;       // of a key head
  int64_t size = 0;       // rows of a head, or columns
  int64_t first = 0;      // rows in front of them
  bool columns = false;

  explicit operator bool() const { return key_heads > 0; }
  int64_t end() const { return first + key_heads * each * size; }
  // Where the file has row (or column) i.
  int64_t stored(int64_t i) const {
    if (i < first) return i;
    const int64_t head = (i - first) / size;
    return first + (head % each * key_heads + head / each) * size + (i - first) % size;
  }
};

// What GGUF names mean in a file depends on these.
struct GgufModelShape {
  GgufFamily family = {};  // without a name: of a family that is not known, whose files have the usual names
  int64_t heads = 0;
  int64_t kv_heads = 0;
  // For layers with states whose heads of values are tiled.
  TiledHeads tiled = {};  // `size` is a value's
  int64_t key = 0;        // size of a key
};

struct HfName {
  std::string name;
  // Not 0: rows are stored interleaved within each of this many heads; see stored_row().
  int64_t interleaved_heads = 0;
  StoredNumber number = StoredNumber::Plain;
  TiledHeads tiled = {};
};

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; none for tensors without a Hugging Face name
// ("rope_freqs.weight"). A stack of all experts of a layer is "model.layers.3.mlp.experts.up_proj.weight", of vectors
// ".bias"; the halves of kv_b_proj are k_b_proj and v_b_proj.
std::optional<HfName> hf_name(std::string_view gguf_name, const GgufModelShape& model = {});

// Whether heads of values of layers with states are tiled, where there are more of them than key heads.
bool tiles_heads(const GgufFamily& family);

// The row of the file that holds row `row` of the Hugging Face tensor of `rows` rows.
inline int64_t stored_row(int64_t row, int64_t rows, int64_t interleaved_heads) {
  if (interleaved_heads == 0) return row;
  const int64_t head = rows / interleaved_heads, half = head / 2;
  const int64_t in_head = row % head;
  return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

}  // namespace reprise::checkpoint
