// write_quantised_folder(): the folder of a quantised model: weights, config.json, and what lies beside the weights of
// the source. Plain functions; one thread.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "quantiser/checkpoint_quantiser.h"

namespace reprise::quantiser {

struct FolderSource {
  const checkpoint::Checkpoint& checkpoint;
  std::string path;  // its folder or file
  std::string name;  // what its user calls it
  Json config;       // what config.json had, or would have
  DType dtype;       // of everything that stays float
};

// A tokenizer that has no form in files of a folder is left out, which `notice` is told.
Status write_quantised_folder(const FolderSource& source, const QuantisedCheckpoint& quantised,
                              const std::string& folder, const std::function<void(const std::string&)>& notice);

// Whether the folder has a tokenizer.
bool has_tokenizer(const std::string& folder);

}  // namespace reprise::quantiser
