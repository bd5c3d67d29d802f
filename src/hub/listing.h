// Listing: the files of one revision of a repository, as a hub tells it in JSON, with sizes and hashes; or as they lie
// on disk. A plain value. The JSON comes from outside: it is bounded, its types are checked, and names that could lead
// out of the repository's folder are left out and counted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::hub {

struct RepoFile {
  std::string path;
  uint64_t size = 0;
  // What is known: the SHA-256 of the bytes (large files), or git's SHA-1 of a blob (small ones); both lower case.
  std::string sha256, git_sha1;

  // The hub's ETag, which names the file in Hugging Face's cache; "" when the listing does not tell.
  const std::string& etag() const { return sha256.empty() ? git_sha1 : sha256; }
};

struct Listing {
  std::string commit;  // 40 hex digits; "" where the hub tells none (ModelScope)
  std::vector<RepoFile> files;
  bool told_sizes = true;  // some hubs and mirrors list names alone
  size_t refused = 0;      // names left out
  std::string first_refused;

  const RepoFile* find(std::string_view path) const;
};

// GET /api/models/org/name/revision/main?blobs=true
Result<Listing> parse_hugging_face_listing(std::string_view json, std::string_view source);
// GET /api/v1/models/org/name/repo/files?Revision=master&Recursive=true
Result<Listing> parse_modelscope_listing(std::string_view json, std::string_view source);
// huggingface_hub's trees/COMMIT.json next to the snapshots: the whole listing of a commit, when one was kept.
Result<Listing> parse_kept_tree(std::string_view json, std::string_view source);
// The files that an index of shards ("model.safetensors.index.json") names, in order, each once.
Result<std::vector<std::string>> parse_index_of_shards(std::string_view json, std::string_view source);

}  // namespace reprise::hub
