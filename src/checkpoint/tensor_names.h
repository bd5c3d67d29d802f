// What families say of the names of their tensors: how GGUF files call them and what a converter did to them, and what
// files of safetensors call otherwise than the rest. Plain values of static life; the readers that go by them know no
// family by name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace reprise::checkpoint {

// What a file has of a number x.
enum class StoredNumber : uint8_t { Plain, OneMore, NegativeExp };  // x, 1 + x, -exp(x)

// Which part of a tensor is heads of values of layers with states, which converters tile (TiledHeads).
enum class TiledPart : uint8_t {
  None,
  Rows,            // a value's numbers for each head
  RowsBehindKeys,  // likewise, behind the queries and keys
  Numbers,         // one for each head
  Columns,
};

// A name of GGUF behind "blk.N.", or a whole one, and Hugging Face's behind GgufFamily::layers and N. Names that end in
// a point stand for those with "weight" and with "bias" behind it.
struct GgufTensorName {
  std::string_view gguf, hf;
  std::optional<StoredNumber> number = {};  // none: plain, or that of the family's norms
  TiledPart tiled = TiledPart::None;
};

// A vision tower as a GGUF file of its own (mmproj.h). Names end in a point here.
struct GgufTower {
  std::string_view projector;  // clip.projector_type
  std::span<const GgufTensorName> names = {}, block_names = {};
  bool windows = false;                     // of most blocks; others have learned positions
  std::string_view image_mark, video_mark;  // tokens in whose places rows of an image and of a video go
};

// A part of a name in files of safetensors, and what stands there instead by the names here.
struct NameRule {
  enum class At : uint8_t { Start, End, Anywhere, InLayer };  // InLayer: behind "model.layers.N"
  At at = At::Anywhere;
  std::string_view from, to;
  std::string_view within = {};  // of names that have this in the file; empty: of all
};

}  // namespace reprise::checkpoint
