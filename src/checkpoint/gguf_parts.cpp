#include "checkpoint/gguf_parts.h"

#include <charconv>
#include <filesystem>

namespace reprise::checkpoint {
namespace {

constexpr std::string_view kNumber = "split.no", kCount = "split.count", kTensors = "split.tensors.count";
constexpr int64_t kMost = 65535;  // parts: the numbers in the files have 16 bits

std::string part_path(std::string_view stem, int64_t number, int64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, number + 1, count);
}

// How many parts there are; 1 of a whole file.
Result<int64_t> count_of(const GgufFile& file) {
  ASSIGN_OR_RETURN(const auto count, file.integer(kCount));
  if (count && (*count < 0 || *count > kMost))
    return invalid("{}: {} is {}; allowed: 0 to {}", file.source(), kCount, *count, kMost);
  return std::max<int64_t>(count.value_or(1), 1);
}

Result<int64_t> number_of(const GgufFile& file, int64_t count) {
  ASSIGN_OR_RETURN(const auto number, file.integer(kNumber));
  if (!number) return invalid("{}: {} is missing, and {} is {}", file.source(), kNumber, kCount, count);
  if (*number < 0 || *number >= count)
    return invalid("{}: {} is {}; allowed: 0 to {}", file.source(), kNumber, *number, count - 1);
  return *number;
}

// The path without what the name of part `number` ends in.
Result<std::string_view> stem_of(const GgufFile& file, int64_t number, int64_t count) {
  const std::string ending = part_path("", number, count);
  const std::string_view path = file.source();
  if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  return invalid("{}: part {} of {} of a split GGUF model; its name must end in {}, or the others are not found", path,
                 number + 1, count, ending);
}

}  // namespace

Result<GgufFile> open_gguf_model(const std::string& path) {
  ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  ASSIGN_OR_RETURN(const int64_t count, count_of(file));
  if (count == 1) return file;
  ASSIGN_OR_RETURN(const int64_t number, number_of(file, count));
  if (number == 0) return file;
  ASSIGN_OR_RETURN(const std::string_view stem, stem_of(file, number, count));
  return invalid("{}: part {} of {} of a split GGUF model, which is opened by its first part, {}", path, number + 1,
                 count, part_path(stem, 0, count));
}

Result<std::vector<GgufFile>> open_other_parts(const GgufFile& first) {
  std::vector<GgufFile> parts;
  ASSIGN_OR_RETURN(const int64_t count, count_of(first));
  if (count == 1) return parts;
  ASSIGN_OR_RETURN(const std::string_view stem, stem_of(first, 0, count));
  size_t tensors = first.tensors().size();
  for (int64_t i = 1; i < count; ++i) {
    auto part = GgufFile::open(part_path(stem, i, count));
    if (!part) return part.status().at(fmt::format("{}: part {} of {}", first.source(), i + 1, count));
    ASSIGN_OR_RETURN(const int64_t its_count, count_of(*part));
    ASSIGN_OR_RETURN(const int64_t number, number_of(*part, its_count));
    if (its_count != count || number != i)
      return invalid("{}: it says that it is part {} of {}, and its name that it is part {} of {}", part->source(),
                     number + 1, its_count, i + 1, count);
    tensors += part->tensors().size();
    parts.push_back(std::move(*part));
  }
  ASSIGN_OR_RETURN(const auto announced, first.integer(kTensors));
  if (announced && *announced != static_cast<int64_t>(tensors))
    return invalid("{}: {} is {}, but its {} parts have {} tensors", first.source(), kTensors, *announced, count,
                   tensors);
  return parts;
}

std::vector<std::string> gguf_part_paths(const std::string& first) {
  constexpr std::string_view kBefore = "-00001-of-", kAfter = ".gguf";
  constexpr size_t kDigits = 5;
  const std::string_view path = first;
  if (!path.ends_with(kAfter) || path.size() < kBefore.size() + kDigits + kAfter.size()) return {first};
  const size_t stem = path.size() - kAfter.size() - kDigits - kBefore.size();
  const std::string_view digits = path.substr(stem + kBefore.size(), kDigits);
  int64_t count = 0;
  const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + kDigits, count);
  if (path.substr(stem, kBefore.size()) != kBefore || problem != std::errc() || stop != digits.data() + kDigits)
    return {first};
  std::vector<std::string> paths{first};
  std::error_code failed;
  for (int64_t i = 1; i < std::min(count, kMost + 1); ++i)
    if (std::string other = part_path(path.substr(0, stem), i, count); std::filesystem::exists(other, failed))
      paths.push_back(std::move(other));
  return paths;
}

}  // namespace reprise::checkpoint
