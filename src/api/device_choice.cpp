#include "api/device_choice.h"

#include <algorithm>

namespace reprise::api {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kSystem = "system";
constexpr const char* kSimulator = "sim";

// The environment's choice for `auto`; "" where it leaves it to what is found.
std::string chosen_by_environment(const GetVariable& get) {
  const char* said = get("REPRISE_DEVICE");
  return said && said != std::string_view(kAuto) ? said : "";
}

// A named runtime of Ascend's asks for that device.
Result<DeviceKind> device_kind(const std::string& device, const std::optional<std::string>& ascend_runtime,
                               const GetVariable& get, const FindDevice& find) {
  if (device != kAuto) return parse_device_kind(device);
  if (ascend_runtime) return DeviceKind::Ascend;
  const std::string said = chosen_by_environment(get);
  if (said.empty()) return find().kind;
  auto kind = parse_device_kind(said);
  return kind.is_ok() ? kind : kind.status().at("REPRISE_DEVICE");
}

}  // namespace

Result<DeviceOptions> device_options(const std::string& device, const std::optional<std::string>& ascend_runtime,
                                     const GetVariable& get, const FindDevice& find) {
  DeviceOptions out;
  ASSIGN_OR_RETURN(out.kind, device_kind(device, ascend_runtime, get, find));
  ASSIGN_OR_RETURN(const Environment said, resolve_environment(get, out.kind));
  out.ascend_runtime = ascend_runtime.value_or(kSystem);
  out.ascend_fia = said.ascend_fia;
  return out;
}

std::vector<Notice> device_notices(const std::string& device, const std::optional<std::string>& ascend_runtime,
                                   const GetVariable& get, const FindDevice& find) {
  if (device == kAuto && !ascend_runtime) {
    if (!chosen_by_environment(get).empty()) return {};
    const FoundDevice found = find();
    if (found.kind != DeviceKind::Cpu || found.why.starts_with("an NPU"))
      return {{fmt::format("`device` auto: {} ({})", device_kind_name(found.kind), found.why)}};
    return {};
  }
  if (!ascend_runtime) return {};
  const auto kind = device_kind(device, ascend_runtime, get, find);
  if (!kind.is_ok() || *kind != DeviceKind::Ascend)
    return {{fmt::format("`ascend_runtime` {} has no effect on `device` {}", *ascend_runtime, device)}};
  if (*ascend_runtime == kSimulator)
    return {{"`ascend_runtime` sim: no NPU is used; a simulator computes, and its times are those of a model"}};
  return {};
}

std::vector<std::string> clock_lines(const Device& device) {
  const std::string text = device.clock_note();
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

OrderedJson device_json(const Device& device) {
  const DeviceInfo& d = device.info();
  OrderedJson j;
  j["kind"] = device_kind_name(d.kind);
  j["name"] = d.name;
  j["isa"] = d.isa;
  j["order"] = d.order;
  j["ranks"] = d.threads;
  j["memory_bytes"] = d.memory_bytes;
  if (d.free_bytes > 0) j["free_bytes"] = d.free_bytes;
  j["host_visible"] = d.host_visible;
  j["live_sizes"] = d.live_sizes;
  j["asynchronous"] = d.asynchronous;
  j["captures"] = d.captures;
  j["patches"] = d.patches;
  j["index_dtype"] = dtype_name(d.index_dtype);
  j["skips_negative_slots"] = d.skips_negative_slots;
  j["row_invariant"] = d.row_invariant;
  j["notes"] = d.notes;
  j["modelled_time"] = clock_lines(device);
  return j;
}

std::vector<std::pair<std::string, std::string>> device_lines(const Device& device) {
  const DeviceInfo& d = device.info();
  std::vector<std::pair<std::string, std::string>> out;
  out.emplace_back("device", fmt::format("{}: {}", device_kind_name(d.kind), d.name));
  out.emplace_back("architecture", d.isa);
  if (!d.order.empty()) out.emplace_back("order of sums", d.order);
  out.emplace_back("device memory", d.memory_bytes ? fmt::format("{:.1f} GB", static_cast<double>(d.memory_bytes) / 1e9)
                                                   : "the device does not say");
  if (d.free_bytes > 0)
    out.emplace_back("free when opened", fmt::format("{:.1f} GB", static_cast<double>(d.free_bytes) / 1e9));
  out.emplace_back("seen by the host", d.host_visible ? "yes" : "no: inputs and results are copied");
  out.emplace_back("graphs", !d.captures    ? "none: everything runs eagerly"
                             : d.live_sizes ? "read sizes at run time: one serves every size"
                             : d.patches    ? "one per size; launches in them can be changed"
                                            : "one per size, fixed");
  out.emplace_back("indices", std::string(dtype_name(d.index_dtype)));
  for (const std::string& note : d.notes) out.emplace_back("", note);
  for (const std::string& line : clock_lines(device)) out.emplace_back("", "modelled time: " + line);
  return out;
}

}  // namespace reprise::api
