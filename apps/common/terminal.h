// Terminal: colours where a person looks, plain text elsewhere; and an interrupt key that ends an answer, not the
// program.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace reprise::apps {

enum class Colour { Dim, Bold, Green, Yellow, Red };

bool is_terminal(FILE* stream);
// The text in that colour when the stream is a terminal (and NO_COLOR is not set).
std::string coloured(Colour colour, std::string_view text, FILE* stream);
// Writes and flushes, so that streamed text appears at once.
void write_now(std::string_view text, FILE* stream);

// While one lives, Ctrl-C sets a mark instead of ending the program. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();
};

}  // namespace reprise::apps
