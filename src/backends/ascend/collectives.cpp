#include "backends/ascend/collectives.h"

#include "backends/ascend/library.h"

namespace reprise::ascend {

void Collectives::find(const Library& library) {
#define REPRISE_HCCL_FIND(name, result, arguments) name = reinterpret_cast<decltype(name)>(library.symbol(#name));
  REPRISE_HCCL_FUNCTIONS(REPRISE_HCCL_FIND)
#undef REPRISE_HCCL_FIND
}

std::vector<std::string> Collectives::missing() const {
  std::vector<std::string> out;
#define REPRISE_HCCL_MISSING(name, result, arguments) \
  if (!name) out.emplace_back(#name);
  REPRISE_HCCL_FUNCTIONS(REPRISE_HCCL_MISSING)
#undef REPRISE_HCCL_MISSING
  return out;
}

std::vector<std::string> Collectives::report(const std::string& version) const {
  constexpr const char* kUse = "several ranks need it; one device needs none of it";
  const std::vector<std::string> absent = missing();
  if (absent.size() == Collectives().missing().size())
    return {fmt::format("HCCL: not there (libhccl.so, libhcomm.so); {}", kUse)};
  std::vector<std::string> out{fmt::format("HCCL: {}; {}", version, kUse)};
  out.push_back(
      fmt::format("collectives not there: {}", absent.empty() ? "none" : fmt::format("{}", fmt::join(absent, ", "))));
  return out;
}

}  // namespace reprise::ascend
