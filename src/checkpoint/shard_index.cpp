// Sharded checkpoints: model.safetensors.index.json and the files it names.
#include <filesystem>
#include <map>
#include <set>

#include "checkpoint/checkpoint.h"
#include "checkpoint/shard_index.h"
#include "checkpoint/unique_json.h"

namespace reprise::checkpoint {
namespace {

constexpr size_t kMaxIndexBytes = 100'000'000;
constexpr size_t kMaxListed = 5;

// "a, b and 3 more"
std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(kMaxListed, names.size()); ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > kMaxListed) out += fmt::format(" and {} more", names.size() - kMaxListed);
  return out;
}

// A plain file name: a shard must not lead out of the folder.
bool plain_name(const std::string& name) {
  return name.size() > 12 && name.size() < 256 && name.ends_with(".safetensors") &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos && name[0] != '.';
}

}  // namespace

Result<std::map<std::string, std::string>> parse_shard_index(std::string_view text, std::string_view source) {
  ASSIGN_OR_RETURN(const Json json, parse_unique_json(text, source));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    return invalid("{}: no object \"weight_map\"", source);
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) return invalid("{}: weight_map \"{}\" is not a file name", source, tensor);
    const std::string name = file.get<std::string>();
    if (!plain_name(name))
      return invalid(
          "{}: weight_map \"{}\": \"{}\" is not allowed; expected the name of a .safetensors file in the "
          "same folder",
          source, tensor, name);
    out.emplace(tensor, name);
  }
  if (out.empty()) return invalid("{}: weight_map is empty", source);
  return out;
}

Status Checkpoint::add_index(const std::string& folder, const std::string& index_path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(index_path, kMaxIndexBytes));
  ASSIGN_OR_RETURN(const auto weight_map, parse_shard_index(text, index_path));

  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  std::vector<std::string> missing;
  std::error_code ec;
  for (const std::string& name : names)
    if (!std::filesystem::exists(folder + "/" + name, ec)) missing.push_back(name);
  if (!missing.empty())
    return error(Code::NotFound, "{}: {} of {} shards are missing: {}", folder, missing.size(), names.size(),
                 listed(missing));

  std::vector<std::string> strangers;
  std::set<std::string> found;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(folder + "/" + name));
    shards_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
    for (const StoredTensor& t : shards_.back()->tensors()) {
      const auto it = weight_map.find(t.name);
      if (it == weight_map.end()) {
        strangers.push_back(fmt::format("{} (in {})", t.name, name));
        continue;
      }
      if (it->second != name)
        return invalid("{}: tensor \"{}\" lies in {}, but the index places it in {}", index_path, t.name, name,
                       it->second);
      found.insert(t.name);
      tensors_.push_back(CheckpointTensor::from(t, shards_.size() - 1));
    }
  }
  if (!strangers.empty()) return invalid("{}: tensors that the index does not list: {}", index_path, listed(strangers));
  std::vector<std::string> absent;
  for (const auto& [tensor, file] : weight_map)
    if (!found.contains(tensor)) absent.push_back(fmt::format("{} ({})", tensor, file));
  if (!absent.empty())
    return invalid("{}: tensors that are not in the shard the index names: {}", index_path, listed(absent));
  return Status::ok();
}

}  // namespace reprise::checkpoint
