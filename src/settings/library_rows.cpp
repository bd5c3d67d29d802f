#include "settings/tables.h"

namespace reprise::settings {

std::vector<Setting> library_rows() {
  return {
      choice("engine_thread", {"on", "off"},
             "on: an engine computes on a thread of its own; off: where reprise_step() is called", "on"),
  };
}

}  // namespace reprise::settings
