#include "ascend/runtime/config.h"

#include <charconv>
#include <cstdlib>

#include "ascend/loaded/loaded.h"

namespace ascend_sim {
namespace {

constexpr const char* kFaultForms =
    "malloc:N, stream:N, kernel:NAME:N, event:N, update:N, capture_end:N, devices:N, refuse:NAME:N, free:BYTES, "
    "value_wait, old_driver, old_firmware, no_kernels, wrong_chip, no_permission";

std::string env(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? value : otherwise;
}

template <typename T>
bool parse(const std::string& text, T* value) {
  const char* end = text.data() + text.size();
  auto result = std::from_chars(text.data(), end, *value);
  return result.ec == std::errc() && result.ptr == end;
}

std::string wrong(const char* name, const std::string& value, const std::string& allowed) {
  return std::string(name) + " is \"" + value + "\"; allowed: " + allowed;
}

std::string choose(const char* name, const char* otherwise, const char* yes, const char* no, bool* chosen) {
  const std::string value = env(name, otherwise);
  *chosen = value == yes;
  return *chosen || value == no ? "" : wrong(name, value, std::string(no) + ", " + yes);
}

std::string choose_cann(Cann* cann) {
  const std::string value = env("ASCEND_SIM_CANN", kOnlyVersion ? kOnlyVersion : name_of(kNewest));
  if (kOnlyVersion && value != kOnlyVersion)
    return wrong("ASCEND_SIM_CANN", value, std::string(kOnlyVersion) + ", as this library lacks the symbols of others");
  for (const Cann one : {Cann::V8_1, Cann::V8_5, Cann::V9_1}) {
    *cann = one;
    if (value == name_of(one)) return "";
  }
  return wrong("ASCEND_SIM_CANN", value, "8.1, 8.5, 9.1");
}

template <typename T>
std::string number(const char* name, T least, T* value) {
  const std::string text = env(name, "");
  if (text.empty()) return "";
  return parse(text, value) && *value >= least ? "" : wrong(name, text, "a whole number from " + std::to_string(least));
}

std::string factor(const char* name, double* value) {
  const std::string text = env(name, "");
  if (text.empty()) return "";
  return parse(text, value) && *value >= 0.01 && *value <= 1000 ? "" : wrong(name, text, "a number from 0.01 to 1000");
}

bool add_state(const std::string& item, Faults* faults) {
  const std::pair<const char*, bool*> states[] = {
      {"value_wait", &faults->value_wait},     {"old_driver", &faults->old_driver},
      {"old_firmware", &faults->old_firmware}, {"no_kernels", &faults->no_kernels},
      {"wrong_chip", &faults->wrong_chip},     {"no_permission", &faults->no_permission}};
  for (const auto& [name, state] : states)
    if (item == name) return *state = true;
  return false;
}

bool add_fault(const std::string& item, Faults* faults) {
  if (add_state(item, faults)) return true;
  const size_t first = item.find(':');
  const size_t last = item.rfind(':');
  if (first == std::string::npos) return false;
  const std::string kind = item.substr(0, first);
  int64_t at = 0;
  if (!parse(item.substr(last + 1), &at) || at < 0) return false;
  if (kind == "kernel" || kind == "refuse") {
    if (last <= first + 1 || at < 1) return false;
    const Faults::Kernel one{item.substr(first + 1, last - first - 1), at};
    if (kind == "refuse")
      faults->refused = one;
    else
      faults->kernels.push_back(one);
    return true;
  }
  if (first != last) return false;
  if (kind == "devices") {
    if (at > 16) return false;
    faults->devices = static_cast<int>(at);
    return true;
  }
  if (kind == "free") {
    faults->free_bytes = static_cast<size_t>(at);
    return true;
  }
  if (at < 1) return false;
  if (kind == "malloc")
    faults->malloc_at = at;
  else if (kind == "stream")
    faults->stream_at = at;
  else if (kind == "event")
    faults->event_at = at;
  else if (kind == "update")
    faults->update_at = at;
  else if (kind == "capture_end")
    faults->capture_end_at = at;
  else
    return false;
  return true;
}

std::string read_faults(Faults* faults) {
  const std::string text = env("ASCEND_SIM_FAULT", "");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    if (!add_fault(item, faults)) {
      return wrong("ASCEND_SIM_FAULT", item, std::string(kFaultForms) + " (N from 1; devices from 0 to 16)");
    }
    begin = end + 1;
  }
  return "";
}

}  // namespace

std::string read_config(Config* config) {
  *config = Config{};
  const std::string soc = env("ASCEND_SIM_SOC", "Ascend910B3");
  config->soc = find_soc(soc);
  if (config->soc == nullptr) return wrong("ASCEND_SIM_SOC", soc, soc_names());
  config->hbm_bytes = config->soc->hbm_bytes;
  uint64_t seed = 0;
  bool published = false;
  std::string problem;
  const auto ok = [&](std::string answer) { return (problem = std::move(answer)).empty(); };
  if (ok(choose("ASCEND_SIM_STACK", "old", "new", "old", &config->new_stack)) &&
      ok(choose("ASCEND_SIM_COMPUTE", "1", "1", "0", &config->computes)) &&
      ok(choose("ASCEND_SIM_RACES", "0", "1", "0", &config->races)) &&
      ok(choose("ASCEND_SIM_RATES", "model", "published", "model", &published)) && ok(choose_cann(&config->cann)) &&
      ok(number("ASCEND_SIM_HBM_BYTES", size_t{1} << 20, &config->hbm_bytes)) &&
      ok(number("ASCEND_SIM_HANG_MS", 1, &config->hang_ms)) &&
      ok(number("ASCEND_SIM_DESTROY_MS", 1, &config->destroy_ms)) &&
      ok(factor("ASCEND_SIM_LAUNCH_FACTOR", &config->launch_factor)) &&
      ok(number("ASCEND_SIM_JITTER", uint64_t{0}, &seed)) && ok(read_faults(&config->faults))) {
    if (!env("ASCEND_SIM_JITTER", "").empty()) config->jitter = seed;
    if (published) config->rates = Rates::Published;
  }
  return problem;
}

}  // namespace ascend_sim
