// line_layout: where a line that is being edited stands in the window, in the way of libedit: it wraps at the border, a
// character of two columns is never cut, and a newline in it begins a row. Widths are those of the thread's locale.
// Pure, any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace reprise::apps {

struct LinePlace {
  int cursor_row = 0;  // from the row of the prompt
  int rows = 1;
};

int columns_of(std::wstring_view text);
LinePlace place_of(std::wstring_view text, size_t cursor, int prompt_columns, int window_columns);

}  // namespace reprise::apps
