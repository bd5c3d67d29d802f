// Spellings of the command line that the parser of flags cannot have: short flags of several letters, as llama.cpp has
// them, and "help COMMAND". Pure.
#pragma once

#include <string>
#include <vector>

namespace reprise::apps {

// The words of a command line, the program's name first, in the spelling that the commands declare.
std::vector<std::string> plain_words(int argc, const char* const* argv);

}  // namespace reprise::apps
