// Libedit: the functions of libedit.so.2 that LineEditor calls, found when they are first needed, so that the binary
// starts on machines without the library. Immutable once open.
#pragma once

#include <histedit.h>

#include "base/status.h"

namespace reprise::apps {

struct Libedit {
  decltype(&::el_init) init;
  decltype(&::el_end) end;
  decltype(&::el_wset) set;
  decltype(&::el_wget) get;
  decltype(&::el_wgets) gets;
  decltype(&::el_wgetc) getc;
  decltype(&::el_wpush) push;
  decltype(&::el_wline) line;
  decltype(&::el_cursor) cursor;
  decltype(&::el_winsertstr) insert;
  decltype(&::el_deletestr) delete_before;
  decltype(&::el_resize) resize;

  // Stays loaded until the process ends.
  static Result<Libedit> open();
};

}  // namespace reprise::apps
