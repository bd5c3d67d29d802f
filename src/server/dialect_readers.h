// Readers of the dialects whose calls are not single JSON objects between marks: from the text between the marks, or of
// the whole answer, to calls. Plain functions; any thread.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/named_call.h"
#include "server/tool_dialects.h"

namespace reprise::server {

// Nullopt when the text is not in the dialect's form. `tools` is the request's list: where values are plain text its
// schemas say what they are. Of all formats but Hermes, Llama, Harmony, List and Arguments.
std::optional<std::vector<NamedCall>> read_dialect(ToolFormat format, std::string_view text, const OrderedJson& tools);

// What a model writes around the parts of a call in tags; blanks may stand between them, not within.
struct TagStyle {
  std::string_view function, after_name, parameter, after_key, after_value, end;
  bool value_lines = false;     // values stand on lines of their own
  bool several_inside = false;  // several calls between one pair of marks
};
// Null: the format has no tags.
const TagStyle* tag_style(ToolFormat format);

}  // namespace reprise::server
