// Terminal: colours where a person looks, plain text elsewhere. NO_COLOR is honoured. Any thread.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace reprise {

enum class Colour { Dim, Bold, Green, Yellow, Red };

bool is_terminal(FILE* stream);
// The text in that colour when the stream is a terminal and NO_COLOR is not set.
std::string coloured(Colour colour, std::string_view text, FILE* stream);
// Writes and flushes, so that streamed text appears at once.
void write_now(std::string_view text, FILE* stream);
// Text of a model as a terminal may have it: control characters become visible, so that they move and set nothing.
std::string visible(std::string_view text);

}  // namespace reprise
