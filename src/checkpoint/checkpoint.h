// Checkpoint: the tensors of a model on disk, regardless of the format: a GGUF file or the parts of a split one, or a
// Hugging Face folder with model.safetensors or shards and their index. Tensors carry Hugging Face names in both cases;
// the families that are given say what names of theirs mean (tensor_names.h).
// It owns the mappings. Everything is immutable after open() and set_aside(), and every other method const, so any
// number of threads may read different rows (or the same) at once.
//
// A *row* is one run of the last dimension; a vector is one row, and a matrix of shape [out, in] has `out` rows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "base/status.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_names.h"
#include "checkpoint/safetensors.h"

namespace reprise::checkpoint {

struct CheckpointTensor {
  std::string name;       // Hugging Face name where there is one, else the name in the file
  std::string file_name;  // name in the file
  StorageType type = StorageType::Other;
  std::string type_name;       // "BF16", "Q4_K", and also the names of types that cannot be read
  std::vector<int64_t> shape;  // outermost first
  uint64_t bytes = 0;
  StoredNumber number = StoredNumber::Plain;  // of GGUF's centred norms and decays another one, which readers undo
  int64_t interleaved_heads = 0;              // GGUF q and k: raw() shows rows in another order; the readers undo it
  TiledHeads tiled = {};                      // GGUF layers with states: likewise, of rows or columns

  int64_t elements() const { return rows() * row_elements(); }
  int64_t rows() const {
    int64_t n = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
    return n;
  }
  int64_t row_elements() const { return shape.empty() ? 1 : shape.back(); }
  bool has_file_order() const { return interleaved_heads == 0 && !tiled; }
  // Whether packed rows can be read: a block is of one head where columns have another order.
  bool whole_blocks() const {
    return !tiled.columns || tiled.size % static_cast<int64_t>(block_layout(type).elements) == 0;
  }

  size_t file = 0;  // which of the checkpoint's files
  uint64_t offset = 0;

  // For a matrix inside a larger tensor, whose numbers do not follow one another: how many bytes of the file it is
  // spread over, and how many lie from a row's beginning to the next and, of plain types, from a number to the next of
  // its row. Span 0: they follow one another.
  uint64_t span = 0, row_step = 0, element_step = 0;
  // MXFP4 whose exponents are a tensor of their own: where they are, a byte for every block. Without one a block is as
  // GGUF has it: its exponent, then byte j with numbers j and j + 16; with one byte j has numbers 2 j and 2 j + 1.
  struct Exponents {
    size_t file = 0;
    uint64_t offset = 0, row_step = 0;
  };
  std::optional<Exponents> exponents = {};
  bool scattered() const { return span > 0; }

  static CheckpointTensor from(const StoredTensor& t, size_t file);
};

class Checkpoint {
 public:
  enum class Format : uint8_t { Safetensors, Gguf };

  // `path` is a GGUF file (of a split model the first part), a .safetensors file, or a folder.
  static Result<Checkpoint> open(const std::string& path, const Families& families);
  // From memory, for tests and fuzzing; the caller keeps `bytes` alive. `parts`: those of a split model behind the
  // first (gguf_parts.h).
  static Result<Checkpoint> from_gguf(GgufFile file, const Families& families, std::vector<GgufFile> parts = {});
  static Result<Checkpoint> from_safetensors(SafetensorsFile file, const Families& families);

  Format format() const { return gguf_ ? Format::Gguf : Format::Safetensors; }
  const std::string& source() const { return source_; }
  uint64_t total_bytes() const { return total_bytes_; }  // of tensors()
  // The GGUF file with its metadata, of a split model the first part; null for safetensors.
  const GgufFile* gguf() const { return gguf_.get(); }
  // The GGUF file of its vision tower (mmproj.h); null: there is none.
  const GgufFile* mmproj() const { return mmproj_.get(); }

  // In the order of the files, so that reading them in turn streams.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  const CheckpointTensor* find(std::string_view name) const;         // either name; null when absent
  Result<const CheckpointTensor*> get(std::string_view name) const;  // or an error with close names

  // Before anyone else reads: takes what `which` says out of tensors() and find(), for the code that asks for aside().
  // Returns how many.
  size_t set_aside(const std::function<bool(const CheckpointTensor&)>& which);
  const std::vector<CheckpointTensor>& aside() const { return aside_; }
  // Likewise: tensors of another checkpoint of safetensors, which this one owns from now on, with `prefix` before their
  // names.
  Status borrow(Checkpoint other, const std::function<bool(const CheckpointTensor&)>& which,
                std::string_view prefix = {});
  // Likewise, of a GGUF file: the tensors of its vision tower.
  Status add_mmproj(GgufFile file, const Families& families);
  // Likewise: the tensor, if there is one, as a matrix with a row for each entry of its first dimension.
  void make_matrix(std::string_view name);

  // Rows [first, first + rows) as `target`, dense, into `out`, which holds rows * row_elements * size_of(target) bytes.
  // Floats (and block formats) convert to F32, BF16 or F16, rounding to nearest even; other types only to themselves.
  // When `non_finite` is given, the number of NaN and infinite results is added to it.
  Status read_rows(const CheckpointTensor& t, int64_t first, int64_t rows, DType target, void* out,
                   uint64_t* non_finite = nullptr) const;
  Status read_rows(std::string_view name, int64_t first, int64_t rows, DType target, void* out,
                   uint64_t* non_finite = nullptr) const;
  // Rows as stored (packed blocks), in Hugging Face order; `out` holds rows * packed_row_bytes(t). An error where
  // blocks would have to be taken apart (whole_blocks()).
  Status read_packed_rows(const CheckpointTensor& t, int64_t first, int64_t rows, void* out) const;
  static uint64_t packed_row_bytes(const CheckpointTensor& t);
  // The whole tensor as a view of the file, in the file's row order; of a scattered one with what lies between its
  // numbers.
  std::span<const uint8_t> raw(const CheckpointTensor& t) const;

  // The tensor's pages are not needed soon: keeps peak memory near one copy of the weights while loading.
  void release(const CheckpointTensor& t) const;
  void release(std::string_view name) const;

  // The one error for weights that are NaN or infinite; Ok when count is 0.
  Status require_finite(const CheckpointTensor& t, uint64_t count) const;

 private:
  Status add_safetensors_folder(const std::string& folder);
  Status add_file(const std::string& path);
  Status add_index(const std::string& folder, const std::string& index_path);
  Status finish(const Families& families);
  Status index_tensors();
  Status check_rows(const CheckpointTensor& t, int64_t first, int64_t rows) const;
  // Rows by their places in the file.
  Status read_stored_rows(const CheckpointTensor& t, int64_t first, int64_t rows, DType target, void* out,
                          uint64_t* non_finite) const;
  std::span<const uint8_t> file_bytes(size_t file, uint64_t offset, uint64_t bytes) const;
  // Rows of a scattered tensor, one behind the other, as its type has them.
  void gather_rows(const CheckpointTensor& t, int64_t first, int64_t rows, uint8_t* out) const;
  const std::string& file_source(const CheckpointTensor& t) const;
  const GgufFile& gguf_file(size_t file) const;
  Status add_gguf(const GgufFile& file, size_t number, const GgufModelShape& shape);

  std::string source_;
  // Files of a GGUF checkpoint: the model, its vision tower, what was put together of that one's tensors, and the parts
  // of a split model behind the first.
  static constexpr size_t kMmproj = 1, kMade = 2, kParts = 3;
  std::unique_ptr<GgufFile> gguf_, mmproj_;
  std::vector<GgufFile> parts_;
  std::vector<uint8_t> made_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  std::vector<CheckpointTensor> tensors_, aside_;
  std::unordered_map<std::string_view, size_t> index_;
  uint64_t total_bytes_ = 0;
};

}  // namespace reprise::checkpoint
