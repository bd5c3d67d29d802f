#include "common/version.h"

#include <fmt/format.h>

#include <reprise.h>
#include <vector>

#include "backends/cpu/isa.h"
#include "base/digest.h"
#include "compile/plan_key.h"

namespace reprise::apps {

std::string version_number() { return fmt::format("reprise {}", REPRISE_VERSION); }

std::string version_text() {
  std::vector<std::string> here;
  for (const cpu::Isa isa : cpu::supported_isas()) here.emplace_back(cpu::isa_name(isa));
  std::string out = fmt::format("reprise {} ({})\n", REPRISE_VERSION, REPRISE_COMMIT);
  const auto row = [&](std::string_view name, std::string_view value) {
    out += fmt::format("{:<14}{}\n", name, value);
  };
  row("compiler", fmt::format("{}, {}", REPRISE_COMPILER, REPRISE_BUILD_TYPE));
  row("kernels", fmt::format("{} (of this processor, of those built in)", fmt::join(here, ", ")));
  row("devices", fmt::format("cpu; ascend (CANN, loaded at run time); {}", REPRISE_CUDA_TEXT));
  row("library", fmt::format("libreprise, ABI {}", REPRISE_ABI));
  row("build", digest_of(KeyBuilder::build_identity()).text().substr(0, 16));
  row("licence", "Apache-2.0");
  out.pop_back();
  return out;
}

}  // namespace reprise::apps
