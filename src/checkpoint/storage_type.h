// StorageType: how a tensor's elements lie in a checkpoint file. The first ten are plain dtypes of base/dtype.h; the
// rest are GGUF block formats, where a run of `block_elements` numbers shares scales inside `block_bytes` bytes.
// `Other` is a format that this reader can list and skip but not read (its name is kept next to it). Plain values, any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"

namespace reprise::checkpoint {

enum class StorageType : uint8_t {
  F32,
  F16,
  BF16,
  F64,
  I8,
  U8,
  I16,
  I32,
  I64,
  Bool,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  IQ4_XS,
  MXFP4,
  Other
};
constexpr int kStorageTypes = static_cast<int>(StorageType::Other);

struct BlockLayout {
  uint32_t elements = 1;
  uint32_t bytes = 0;  // 0 for Other: the size is not known
};
BlockLayout block_layout(StorageType t);

// "F32", "Q4_K": the spelling of the file formats.
std::string_view storage_name(StorageType t);
// The dtype of a plain type, none for block formats and Other.
std::optional<DType> plain_dtype(StorageType t);
StorageType storage_of(DType t);
// True for all types whose rows read_rows() can turn into floats.
bool readable_as_float(StorageType t);

// Types as safetensors spells them ("F32", "BOOL"); Other for every name that is not one of ours.
StorageType storage_from_safetensors(std::string_view name);
std::string_view safetensors_name(DType t);

// GGUF type numbers. A number that GGUF does not define is an error; one that it defines and we cannot read is Other,
// with its layout, so that files which hold such a tensor can still be listed.
struct GgmlType {
  StorageType type = StorageType::Other;
  std::string_view name;
  BlockLayout layout;
};
Result<GgmlType> ggml_type(uint32_t number);

}  // namespace reprise::checkpoint
