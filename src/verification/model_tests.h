// Which tests show what of a family: its graph modes by device, and its features. What docs/model-coverage.md says,
// written by tools/models_page.py and built in. A plain value; any thread.
#pragma once

#include <string_view>

#include "base/json.h"

namespace reprise::verification {

// {"graph_modes": {"cpu": [test, ...]}, "features": {"lora": [test, ...]}, "untested": {"images": why}}; devices and
// features without a test are not among the first two. Empty for a family that the page does not have.
OrderedJson tests_of_family(std::string_view architecture);

}  // namespace reprise::verification
