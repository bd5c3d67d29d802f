#include "service/rank_processors.h"

#include <cstdlib>

#include "api/device_choice.h"
#include "base/log.h"

namespace reprise::service {

Result<ranks::Processors> processors_of(const RunSettings& settings, int shares, bool launched) {
  const auto all = [&] { return launched ? ranks::Processors::online() : ranks::Processors::allowed(); };
  if (!settings.cpu_bind.empty() || !settings.numa_node.empty()) {
    ranks::Processors out = all();
    RETURN_IF_ERROR(out.ask(settings.cpu_bind, fmt::format("{}", fmt::join(settings.numa_node, ",")), shares));
    if (out.asked() || out.unbound()) return out;
  } else if (const auto on = api::device_options(settings.device, settings.ascend_runtime, ::getenv);
             on.is_ok() && on->kind == DeviceKind::Cpu) {
    for (const char* name : {"SGLANG_CPU_OMP_THREADS_BIND", "VLLM_CPU_OMP_THREADS_BIND"}) {
      const char* value = ::getenv(name);
      if (!value || !*value) continue;
      ranks::Processors out = all();
      // It may be meant for another engine that is started beside this one.
      if (const Status fits = out.ask(value, "", shares, name); !fits.is_ok())
        log::warning("{}; the variable has no effect here", fits.message());
      else if (out.asked() || out.unbound())
        return out;
      break;
    }
  }
  return ranks::Processors::allowed();
}

}  // namespace reprise::service
