#include "checkpoint/storage_type.h"

#include <array>

namespace reprise::checkpoint {
namespace {

struct Row {
  StorageType type;
  std::string_view name;
  BlockLayout layout;
  int ggml;  // GGUF's number, -1 for none
};

// In the order of the enum. Elements and bytes of a block are facts of the GGUF format.
constexpr std::array<Row, kStorageTypes> kTypes = {{
    {StorageType::F32, "F32", {1, 4}, 0},          {StorageType::F16, "F16", {1, 2}, 1},
    {StorageType::BF16, "BF16", {1, 2}, 30},       {StorageType::F64, "F64", {1, 8}, 28},
    {StorageType::I8, "I8", {1, 1}, 24},           {StorageType::U8, "U8", {1, 1}, -1},
    {StorageType::I16, "I16", {1, 2}, 25},         {StorageType::I32, "I32", {1, 4}, 26},
    {StorageType::I64, "I64", {1, 8}, 27},         {StorageType::Bool, "BOOL", {1, 1}, -1},
    {StorageType::Q4_0, "Q4_0", {32, 18}, 2},      {StorageType::Q4_1, "Q4_1", {32, 20}, 3},
    {StorageType::Q5_0, "Q5_0", {32, 22}, 6},      {StorageType::Q5_1, "Q5_1", {32, 24}, 7},
    {StorageType::Q8_0, "Q8_0", {32, 34}, 8},      {StorageType::Q2_K, "Q2_K", {256, 84}, 10},
    {StorageType::Q3_K, "Q3_K", {256, 110}, 11},   {StorageType::Q4_K, "Q4_K", {256, 144}, 12},
    {StorageType::Q5_K, "Q5_K", {256, 176}, 13},   {StorageType::Q6_K, "Q6_K", {256, 210}, 14},
    {StorageType::IQ4_NL, "IQ4_NL", {32, 18}, 20}, {StorageType::IQ4_XS, "IQ4_XS", {256, 136}, 23},
    {StorageType::MXFP4, "MXFP4", {32, 17}, 39},
}};

struct Unreadable {
  uint32_t number;
  std::string_view name;
  BlockLayout layout;
};
constexpr Unreadable kUnreadable[] = {
    {9, "Q8_1", {32, 40}},      {15, "Q8_K", {256, 292}}, {16, "IQ2_XXS", {256, 66}}, {17, "IQ2_XS", {256, 74}},
    {18, "IQ3_XXS", {256, 98}}, {19, "IQ1_S", {256, 50}}, {21, "IQ3_S", {256, 110}},  {22, "IQ2_S", {256, 82}},
    {29, "IQ1_M", {256, 56}},   {34, "TQ1_0", {256, 54}}, {35, "TQ2_0", {256, 66}},   {40, "NVFP4", {64, 36}},
    {41, "Q1_0", {128, 18}},
};

constexpr std::array<StorageType, 10> kOfDType = {
    StorageType::F32, StorageType::F16, StorageType::BF16, StorageType::I8,  StorageType::U8,
    StorageType::I32, StorageType::I64, StorageType::Bool, StorageType::F64, StorageType::I16};

}  // namespace

BlockLayout block_layout(StorageType t) {
  return t == StorageType::Other ? BlockLayout{} : kTypes[static_cast<size_t>(t)].layout;
}

std::string_view storage_name(StorageType t) {
  return t == StorageType::Other ? "other" : kTypes[static_cast<size_t>(t)].name;
}

std::optional<DType> plain_dtype(StorageType t) {
  for (size_t i = 0; i < kOfDType.size(); ++i)
    if (kOfDType[i] == t) return static_cast<DType>(i);
  return std::nullopt;
}

StorageType storage_of(DType t) { return kOfDType[static_cast<size_t>(t)]; }

bool readable_as_float(StorageType t) {
  if (t == StorageType::Other) return false;
  const std::optional<DType> dtype = plain_dtype(t);
  return !dtype || is_float(*dtype);
}

StorageType storage_from_safetensors(std::string_view name) {
  for (const Row& row : kTypes)
    if (row.name == name && plain_dtype(row.type)) return row.type;
  return StorageType::Other;
}

std::string_view safetensors_name(DType t) { return storage_name(storage_of(t)); }

Result<GgmlType> ggml_type(uint32_t number) {
  for (const Row& row : kTypes)
    if (row.ggml >= 0 && static_cast<uint32_t>(row.ggml) == number) return GgmlType{row.type, row.name, row.layout};
  for (const Unreadable& u : kUnreadable)
    if (u.number == number) return GgmlType{StorageType::Other, u.name, u.layout};
  std::string readable;
  for (const Row& row : kTypes)
    if (row.ggml >= 0) readable += fmt::format("{}{} ({})", readable.empty() ? "" : ", ", row.name, row.ggml);
  return invalid("type {} is not defined by GGUF; readable types: {}", number, readable);
}

}  // namespace reprise::checkpoint
