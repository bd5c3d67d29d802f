// The characters that the normalizer of BERT tells apart, by the Unicode version that it knows (8). Pure functions; any
// thread.
#pragma once

#include <string>
#include <string_view>

namespace reprise::text {

// Removes control and format characters, and makes every kind of white space a space.
std::string without_controls(std::string_view valid);
// Puts a space on each side of every character that Chinese is written with.
std::string with_apart_ideographs(std::string_view valid);
// Decomposes characters and removes the marks that take no space.
std::string without_accents(std::string_view valid);

}  // namespace reprise::text
