// Captured graphs of the CUDA device: launches as nodes, ordered where one depends on another, replayed by one call.
#pragma once

#include <functional>
#include <memory>

#include "device/graph.h"

namespace reprise::cuda {

class CudaStream;

// Each launch is captured by itself and put behind those it depends on, so independent ones may run side by side, as
// may the streams of a recording: a wait makes the last nodes of the marked stream dependencies. A
// body that fails leaves the stream as it was: it is never left capturing.
//
// Patches set the parameters of kernel nodes. The new ones are found by running the launch's own host function again
// on a stream that only records, so any function that launches one kernel can be patched: pointers, sizes, even the
// grid. Arguments in a block of device memory would be cheaper to change, but every kernel would have to be written
// for it, and its grid could not follow.
Result<std::unique_ptr<DeviceGraph>> capture_graph(CudaStream& stream, const std::function<Status(Recorder&)>& body);

}  // namespace reprise::cuda
