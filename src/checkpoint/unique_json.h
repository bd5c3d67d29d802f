// parse_unique_json: parse_json of base/json.h that also refuses a key given twice in one object. nlohmann would keep
// the last one in silence, which lets a hostile file mean different things to different readers. Pure, any thread.
#pragma once

#include <string_view>

#include "base/json.h"

namespace reprise::checkpoint {

Result<Json> parse_unique_json(std::string_view text, std::string_view source);

}  // namespace reprise::checkpoint
