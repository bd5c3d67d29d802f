#include "see/machine_speed.h"

#include <fmt/format.h>

namespace reprise::see {

std::string disturbance(const MachineSpeed& speed) {
  if (!speed.disturbed()) return {};
  return fmt::format(
      "other programs kept {:.1f} processors busy while the limits of this machine were measured, so the shares are "
      "omitted. Run it again on a quiet machine",
      speed.other_load);
}

}  // namespace reprise::see
