// Choice: which files of a repository make up the model that was asked for. A plain value; pure functions.
//
//   safetensors   config.json, its companions (companions.h), quant_model_description*.json, and the weights:
//                 model.safetensors, or the shards of its index, or ModelSlim's files
//   GGUF          one file, or all parts of a split one ("-00001-of-00003.gguf" counts as one)
//
// With ":file" it is the GGUF file of that name (with or without folder and ".gguf"), or the one with that tag
// ("Q4_K_M", in any case). Without, a repository with safetensors is taken as such; of one with GGUF files alone the
// one tagged Q4_K_M is chosen, else Q8_0 (as llama.cpp does), else the only one there is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hub/listing.h"

namespace reprise::hub {

struct GgufChoice {
  std::string path;   // of the file, or of the first part
  std::string tag;    // "Q4_K_M", "UD-Q4_K_XL"; "" when the name has none
  uint64_t size = 0;  // of all parts
  size_t parts = 1;   // that the name announces
  std::vector<RepoFile> files;
};

struct Choice {
  std::vector<RepoFile> files;  // the small ones first
  std::string index;            // safetensors in shards: whose names add_shards() takes from this file
  std::string gguf;             // path of the GGUF file to open; "": the folder is the model
  std::string by_rule;          // how it was chosen when it was not asked for: "Q4_K_M"
};

// GGUF models, without those that only help another (mmproj, imatrix); the smallest first.
std::vector<GgufChoice> gguf_choices(const Listing& listing);
// "Q4_K_M" of "a/Model-Q4_K_M-00001-of-00002.gguf".
std::string gguf_tag(std::string_view path);

// `file` as in ModelName; `where` names the repository in errors, which list what there is.
Result<Choice> choose_files(const Listing& listing, const std::string& file, std::string_view where);
Status add_shards(Choice& choice, const Listing& listing, const std::vector<std::string>& shards,
                  std::string_view where);

// "4.9 GB", "98 MB", "716 bytes"
std::string size_words(uint64_t bytes);

}  // namespace reprise::hub
