#include "chat/line_layout.h"

#include <algorithm>
#include <cwchar>

namespace reprise::apps {
namespace {

constexpr int kTab = 8;

int width_of(wchar_t c) {
  if (c < L' ' || c == 0x7f) return 2;  // ^X
  return std::max(0, ::wcwidth(c));
}

}  // namespace

int columns_of(std::wstring_view text) {
  int columns = 0;
  for (wchar_t c : text) columns += width_of(c);
  return columns;
}

LinePlace place_of(std::wstring_view text, size_t cursor, int prompt_columns, int window_columns) {
  const int columns = std::max(2, window_columns);
  LinePlace place;
  int row = prompt_columns / columns, column = prompt_columns % columns;
  const auto next_row = [&] {
    ++row;
    column = 0;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const int width = text[i] == L'\t' ? kTab - column % kTab : width_of(text[i]);
    const bool wraps = text[i] != L'\n' && column + width > columns;
    if (wraps) next_row();
    if (i == cursor) place.cursor_row = row;
    if (text[i] == L'\n') {
      next_row();
      continue;
    }
    column += width;
    if (column >= columns) next_row();
  }
  if (cursor >= text.size()) place.cursor_row = row;
  place.rows = row + 1;
  return place;
}

}  // namespace reprise::apps
