// What a hub sends as JSON, and names as users type them: any bytes give a listing and a choice from it, or an error;
// every path that is let through stays inside its folder.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "hub/choice.h"
#include "hub/model_name.h"

using namespace reprise;
using namespace reprise::hub;

namespace {

void require_inside(const std::string& path) {
  const auto inside = (std::filesystem::path("/folder") / path).lexically_normal().string();
  if (!inside.starts_with("/folder/")) std::abort();
}

void choose(const Result<Listing>& listing) {
  if (!listing) return;
  for (const RepoFile& f : listing->files) require_inside(f.path);
  for (const char* file : {"", "Q4_K_M", "model.gguf"})
    if (const auto c = choose_files(*listing, file, "org/name"))
      for (const RepoFile& f : c->files) require_inside(f.path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  choose(parse_hugging_face_listing(text, "listing"));
  choose(parse_modelscope_listing(text, "listing"));
  choose(parse_kept_tree(text, "tree"));
  if (const auto shards = parse_index_of_shards(text, "index"))
    for (const std::string& path : *shards) require_inside(path);
  if (const auto name = parse_model_name(text); name && name->text() != text) std::abort();
  return 0;
}
