#include "common/kernels_here.h"

#include <fmt/ranges.h>

namespace reprise::apps {

Status kernels_here(const std::vector<cpu::Isa>& built, const std::vector<cpu::Isa>& supported) {
  if (!supported.empty()) return Status::ok();
  std::vector<std::string_view> names;
  for (const cpu::Isa isa : built) names.push_back(cpu::isa_name(isa));
  return error(
      Code::Unsupported,
      "this program was built by `./dev demo` for processors with {}, and this one has not; `./dev build` makes "
      "one for all",
      fmt::join(names, " or "));
}

}  // namespace reprise::apps
