// Companions: the files of a model's folder that are neither its weights nor say how those are stored: tokenizer, chat
// templates, sampling defaults, rules that cut pictures and videos, pooling and the dense layers behind it. `reprise
// pull` fetches them, and `reprise quantize` copies them beside the weights that it writes. Pure functions.
#pragma once

#include <string_view>

namespace reprise::hub {

// `path` is relative to the folder, with slashes: "tokenizer.json", "additional_chat_templates/rag.jinja".
bool is_companion(std::string_view path);

}  // namespace reprise::hub
