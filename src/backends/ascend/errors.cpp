// Codes of the runtime and of operators in words, each with what to do about it.
#include <algorithm>
#include <iterator>

#include "backends/ascend/library.h"

namespace reprise::ascend {
namespace {

struct Words {
  int code;
  const char* what;
  const char* remedy;  // empty: the text says enough
};

constexpr Words kWords[] = {
    {100000, "invalid argument", ""},
    {100001, "the runtime is not initialised", ""},
    {107000, "invalid argument", "copies inside a capture take pinned host memory only"},
    {107001, "no such device", "see `npu-smi info` and ASCEND_RT_VISIBLE_DEVICES"},
    {107002, "the thread has not chosen a device", ""},
    {107003, "the stream belongs to another context", ""},
    {107015, "a callback without a subscribed thread", ""},
    {107017, "invalid handle", ""},
    {107019, "waiting took too long", ""},
    {107020, "the task took too long", ""},
    {107022, "the device aborted its tasks", "start the engine anew"},
    {107023, "the stream was aborted", "start the engine anew"},
    {107024, "a capture waits for an event from outside", ""},
    {107025, "a forked stream was not joined before the capture's end", ""},
    {107026, "the graph is still being captured", ""},
    {107027, "the stream is capturing", ""},
    {107028, "the event belongs to a capture", ""},
    {107029, "the stream is not capturing", ""},
    {107030, "not allowed while a capture is open", ""},
    {107031, "the default stream cannot be captured", ""},
    {107032, "two captures would merge", ""},
    {107033, "a task group is open or was not opened", ""},
    {107034, "a launch on another stream inside a task group", ""},
    {107036, "the capture began on another stream", ""},
    {107037, "the graph is still running", ""},
    {107038, "the capture began on another thread", ""},
    {107040, "the graph could not be changed", ""},
    {107041, "a copy of pageable memory beside a capture", ""},
    {200000, "out of host memory", ""},
    {207000, "not supported by this runtime or driver", "see docs/ascend.md for versions"},
    {207001, "out of device memory", "lower `mem_fraction_static` or `max_total_tokens`"},
    {207005, "no queue is free for the graph", "capture fewer sizes: `cuda_graph_bs`"},
    {207007, "no event is free", ""},
    {207008, "no stream is free", "capture fewer sizes: `cuda_graph_bs`; or a driver of 25.5 and later"},
    {207009, "no notify is free", "capture fewer sizes: `cuda_graph_bs`"},
    {207018, "the device is out of memory", "lower `mem_fraction_static` or `max_total_tokens`"},
    {207019, "the driver cannot update this kind of task", "driver 25.0.RC1 or later is needed"},
    {361001, "the operator failed inside the runtime", ""},
    {161001, "the operator got no operand", ""},
    {161002, "the operator does not take these operands", ""},
    {500000, "internal error of the runtime", ""},
    {507000, "internal error of the runtime", ""},
    {507009, "this kind of task is not allowed in a task group", ""},
    {507011, "the graph is not ready to run", ""},
    {507014, "a kernel hangs", "the device is lost; start the engine anew"},
    {507015, "a kernel failed", "the device's context is lost; start the engine anew"},
    {507018, "an AI CPU kernel failed", "start the engine anew"},
    {507034, "a vector kernel hangs", "start the engine anew"},
    {507035, "a vector kernel failed", "start the engine anew"},
    {507046, "the stream did not finish in time", "the device is stuck; start the engine anew"},
    {507047, "the event did not come in time", "the device is stuck; start the engine anew"},
    {507053, "the device's memory failed", "see `npu-smi info` for its health"},
    {507054, "the device's memory has errors that cannot be corrected", "see `npu-smi info` for its health"},
    {507899, "the driver refused the call",
     "see that the process may open /dev/davinci* (the user's group HwHiAiUser), and `npu-smi info`"},
    {507903, "the capture was broken by an earlier error", ""},
    {561000, "internal error of the operator", ""},
    {561001, "the operator does not take these shapes", ""},
    {561002, "the operator does not take these shapes or attributes", ""},
    {561003, "the operator has no kernel for this chip and type", ""},
    {561101, "the operator made no executor", ""},
    {561103, "the operator met a null pointer", ""},
    {561107, "the operator package was not found", "source CANN's set_env.sh"},
    {561112, "the operator's kernels are not installed", "install CANN's kernels package for this chip"},
};

}  // namespace

std::string error_text(int code) {
  for (const Words& w : kWords)
    if (w.code == code) return fmt::format("{} ({}){}{}", w.what, code, *w.remedy ? "; " : "", w.remedy);
  return fmt::format("error {}", code);
}

bool loses_device(int code) {
  constexpr int kCodes[] = {107022, 107023, 507014, 507015, 507018, 507034, 507035, 507046, 507047, 507053, 507054};
  return std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
}

}  // namespace reprise::ascend
