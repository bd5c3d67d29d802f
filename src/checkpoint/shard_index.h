// parse_shard_index: the weight_map of model.safetensors.index.json, tensor name to shard, with every shard checked to
// be a plain file name. Pure, any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::checkpoint {

Result<std::map<std::string, std::string>> parse_shard_index(std::string_view text, std::string_view source);

}  // namespace reprise::checkpoint
