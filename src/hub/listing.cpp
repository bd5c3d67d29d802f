#include "hub/listing.h"

#include <set>

#include "base/bounded_json.h"
#include "base/lower_case.h"
#include "hub/model_name.h"

namespace reprise::hub {
namespace {

constexpr uint64_t kLargestFile = uint64_t{1} << 50;
constexpr JsonLimits kLimits{.members = 2'000'000, .lists = 500'000, .values = 4'000'000, .stop = nullptr};

const Json& member(const Json& object, const char* name) {
  static const Json none;
  const auto it = object.find(name);
  return it == object.end() ? none : *it;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : std::string(); }

Result<uint64_t> size_of_file(const Json& value, std::string_view source, const std::string& path) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kLargestFile)
    return invalid("{}: the size of \"{}\" is no number of bytes", source, printable(path));
  return value.get<uint64_t>();
}

std::string hash_of(const Json& value, size_t digits) {
  const std::string text = lower_case(text_of(value));
  return is_hex(text, digits) ? text : std::string();
}

void add(Listing& listing, RepoFile file) {
  if (check_file_path(file.path).is_ok()) return listing.files.push_back(std::move(file));
  if (listing.refused++ == 0) listing.first_refused = printable(file.path);
}

Result<Json> object(std::string_view json, std::string_view source) {
  ASSIGN_OR_RETURN(Json root, parse_json(json, source, kLimits));
  if (!root.is_object()) return invalid("{}: a JSON object was expected", source);
  return root;
}

}  // namespace

const RepoFile* Listing::find(std::string_view path) const {
  for (const RepoFile& f : files)
    if (f.path == path) return &f;
  return nullptr;
}

Result<Listing> parse_hugging_face_listing(std::string_view json, std::string_view source) {
  ASSIGN_OR_RETURN(const Json root, object(json, source));
  Listing out;
  out.commit = text_of(member(root, "sha"));
  if (!is_commit(out.commit)) return invalid("{}: \"sha\" is no commit", source);
  const Json& files = member(root, "siblings");
  if (!files.is_array()) return invalid("{}: \"siblings\" is no list of files", source);
  for (const Json& f : files) {
    RepoFile file;
    if (f.is_object()) file.path = text_of(member(f, "rfilename"));
    if (file.path.empty()) return invalid("{}: an entry of \"siblings\" has no \"rfilename\"", source);
    const Json& lfs = member(f, "lfs");
    const Json& size = lfs.is_object() && lfs.contains("size") ? lfs["size"] : member(f, "size");
    if (size.is_null()) {
      out.told_sizes = false;
    } else {
      ASSIGN_OR_RETURN(file.size, size_of_file(size, source, file.path));
      if (lfs.is_object()) file.sha256 = hash_of(member(lfs, lfs.contains("sha256") ? "sha256" : "oid"), 64);
      if (!lfs.is_object()) file.git_sha1 = hash_of(member(f, "blobId"), 40);
      if (file.etag().empty()) out.told_sizes = false;
    }
    add(out, std::move(file));
  }
  return out;
}

Result<Listing> parse_modelscope_listing(std::string_view json, std::string_view source) {
  ASSIGN_OR_RETURN(const Json root, object(json, source));
  const Json& data = member(root, "Data");
  const Json& files = data.is_object() ? member(data, "Files") : data;
  if (!files.is_array()) {
    const std::string says = text_of(member(root, "Message"));
    return invalid("{}: no list of files{}{}", source, says.empty() ? "" : ": ", printable(says));
  }
  Listing out;
  for (const Json& f : files) {
    if (!f.is_object()) return invalid("{}: an entry of \"Files\" is no object", source);
    if (text_of(member(f, "Type")) == "tree") continue;
    RepoFile file;
    file.path = text_of(member(f, "Path"));
    if (file.path.empty()) return invalid("{}: an entry of \"Files\" has no \"Path\"", source);
    ASSIGN_OR_RETURN(file.size, size_of_file(member(f, "Size"), source, file.path));
    file.sha256 = hash_of(member(f, "Sha256"), 64);
    add(out, std::move(file));
  }
  return out;
}

Result<Listing> parse_kept_tree(std::string_view json, std::string_view source) {
  ASSIGN_OR_RETURN(const Json root, object(json, source));
  const Json& files = member(root, "files");
  if (member(root, "format_version") != 1 || !files.is_object())
    return error(Code::Unsupported, "{}: not of the known form", source);
  Listing out;
  for (const auto& [path, f] : files.items()) {
    if (!f.is_object()) return invalid("{}: an entry of \"files\" is no object", source);
    RepoFile file;
    file.path = path;
    const Json& size = f.contains("lfs_size") ? f["lfs_size"] : member(f, "size");
    ASSIGN_OR_RETURN(file.size, size_of_file(size, source, path));
    add(out, std::move(file));
  }
  return out;
}

Result<std::vector<std::string>> parse_index_of_shards(std::string_view json, std::string_view source) {
  ASSIGN_OR_RETURN(const Json root, object(json, source));
  const Json& map = member(root, "weight_map");
  if (!map.is_object()) return invalid("{}: \"weight_map\" is no object", source);
  std::set<std::string> names;
  for (const auto& [tensor, shard] : map.items()) {
    if (!shard.is_string()) return invalid("{}: the file of \"{}\" is no text", source, printable(tensor));
    names.insert(shard.get<std::string>());
  }
  if (names.empty()) return invalid("{}: \"weight_map\" names no file", source);
  for (const std::string& name : names) RETURN_IF_ERROR(check_file_path(name).at(source));
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace reprise::hub
