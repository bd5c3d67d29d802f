// The toys of the Ascend device, made of the vendor's operators.
#include "backends/ascend/operators.h"
#include "device/toys.h"

namespace reprise::conformance {
namespace {

using ascend::Launch;

Status add(const LaunchArgs& args, const LiveSizes& live, Launch& l) {
  l.begin(args, live);
  const int64_t n = l.size(args.dim[0]);
  if (n == 0) return Status::ok();
  return l.run(l.ops().adds, l.tensor(args.ptr[0], DType::F32, {n}), l.number(static_cast<float>(args.scalar[0])),
               l.number(1), l.tensor(args.ptr[1], DType::F32, {n}));
}

Status scale(const LaunchArgs& args, const LiveSizes& live, Launch& l) {
  l.begin(args, live);
  const int64_t n = l.size(args.dim[0]);
  if (n == 0) return Status::ok();
  return l.run(l.ops().muls, l.tensor(args.ptr[0], DType::F32, {n}), l.number(static_cast<float>(args.scalar[0])),
               l.tensor(args.ptr[1], DType::F32, {n}));
}

Status copy(const LaunchArgs& args, const LiveSizes& live, Launch& l) {
  l.begin(args, live);
  const int64_t n = l.size(args.dim[0]);
  if (n == 0) return Status::ok();
  return l.run(l.ops().copy, l.tensor(args.ptr[1], DType::F32, {n}), l.tensor(args.ptr[0], DType::F32, {n}));
}

}  // namespace

Toys ascend_toys() { return {ascend::opaque(add), ascend::opaque(scale), ascend::opaque(copy)}; }

}  // namespace reprise::conformance
