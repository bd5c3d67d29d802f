#include "backends/ascend/start_checks.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"

namespace reprise::ascend {
namespace {

constexpr size_t kLeastFree = size_t{16} << 20;  // constants and the first buffers
constexpr int kUpdatesSince = 25;                // 25.0.RC1: the runtime's document of aclmdlRICaptureTaskUpdateBegin
constexpr int kNoKernels = 561112;

// The chips whose operators this backend was written for, by the beginnings of their names.
constexpr std::string_view kGenerations[] = {"Ascend910B", "Ascend910_93"};
// Chips of inference cards: attention over pages, waits for memory and most operators used here are not there.
constexpr std::string_view kOther = "Ascend310";

Status check_chip(const std::string& soc) {
  if (soc.starts_with(kOther))
    return error(Code::Unsupported,
                 "{} is no chip of an Atlas A2 or A3: this backend needs an Ascend910B or Ascend910_93 (`npu-smi info` "
                 "shows the chip; `device` cpu works without)",
                 soc);
  for (const std::string_view known : kGenerations)
    if (soc.starts_with(known)) return Status::ok();
  log::notice("{}: the backend was written for Ascend910B and Ascend910_93; operators are asked one by one", soc);
  return Status::ok();
}

// A sum is in every package of kernels; the package is for one chip.
Status check_kernels(const Context& context) {
  const Library& acl = context.library();
  const auto& add = context.operators().add;
  if (!add) return Status::ok();
  Launch probe(acl, context.operators(), Launch::Probe::Call);
  const auto operand = [&] { return probe.tensor(nullptr, DType::BF16, {2, 16}); };
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  const int code = add.plan(operand(), operand(), probe.number(1), operand(), &bytes, &executor);
  if (code == 0) return acl.check(acl.aclDestroyAclOpExecutor(executor), add.name);
  const Status why = acl.check(code, add.name);  // takes the runtime's text in any case
  return code == kNoKernels
             ? error(Code::Unsupported, "no kernels for {} are installed beside CANN: {}", context.soc(), why.message())
             : Status::ok();
}

double mb(size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

bool lacks_task_updates(std::string_view driver) {
  int major = 0;
  const auto [end, problem] = std::from_chars(driver.data(), driver.data() + driver.size(), major);
  return problem == std::errc() && end != driver.data() + driver.size() && *end == '.' && major < kUpdatesSince;
}

Status check_start(const Context& context, size_t free_bytes, size_t total_bytes) {
  RETURN_IF_ERROR(check_chip(context.soc()));
  const size_t taken = total_bytes - std::min(free_bytes, total_bytes);
  constexpr const char* kWho = "by other processes or by engines of this one (`npu-smi info` shows processes)";
  if (free_bytes < kLeastFree)
    return error(Code::OutOfMemory, "{:.1f} of {:.0f} MB of the device's memory are free; the rest is taken {}",
                 mb(free_bytes), mb(total_bytes), kWho);
  if (taken > total_bytes / 10)
    log::notice("{:.0f} of {:.0f} MB of the device's memory are taken already, {}", mb(taken), mb(total_bytes), kWho);
  RETURN_IF_ERROR(check_kernels(context));
  const std::string& driver = context.library().driver();
  if (lacks_task_updates(driver))
    log::notice(
        "driver {} is older than 25.0.RC1, the first that changes attention of captured graphs: captured steps leave "
        "service at their first replay and run eagerly; `graph` off saves their capture",
        driver);
  return Status::ok();
}

}  // namespace reprise::ascend
