// The files of a split GGUF model, "name-00001-of-00003.gguf" and those behind it, as llama-gguf-split writes them and
// hubs have them. Each holds its number and how many there are (split.no, split.count), and the first all other
// metadata. Plain functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/gguf.h"

namespace reprise::checkpoint {

// The file that a model is opened by: the only one, or the first part. Another part is an error that names the first.
Result<GgufFile> open_gguf_model(const std::string& path);

// The parts behind `first`, in order; none where it is the only file. An error where one is missing, says that it is
// another, or all together have not the tensors that were announced.
Result<std::vector<GgufFile>> open_other_parts(const GgufFile& first);

// The files that the name of a first part announces and that exist, in order; for any other name that path alone.
std::vector<std::string> gguf_part_paths(const std::string& first);

}  // namespace reprise::checkpoint
