// One op on the CPU and by the CUDA kernels: equal, or near.
#pragma once

#include "simt/cuda_runner.h"

namespace reprise::simt {

inline const cpu::OpRunner& on_cpu() {
  static const cpu::OpRunner runner(cpu::parse_isa("auto").value());
  return runner;
}
inline const cpu::OpRunner& on_cuda(Order order = Order::Ascending) {
  static const cpu::OpRunner runners[] = {cuda_runner(), cuda_runner(Order::Descending), cuda_runner(Order::Shuffled)};
  return runners[static_cast<size_t>(order)];
}

// The same bits, but that a GPU has bits of its own for what is not a number.
inline void expect_cpus_bits(cpu::TestTensor got, const cpu::TestTensor& want, const std::string& what) {
  const DType t = want.type.dtype;
  if (kernels_on() == "gpu" && is_float(t) && got.bytes.size() == want.bytes.size())
    for (int64_t i = 0; i < want.size(); ++i) {
      const size_t at = static_cast<size_t>(i) * size_of(t);
      if (std::isnan(want.get(i)) && std::isnan(got.get(i))) std::memcpy(&got.bytes[at], &want.bytes[at], size_of(t));
    }
  cpu::expect_same_bits(got, want, what);
}

// Both devices give the same bits, in every order of lanes.
inline void expect_equal(const std::string& op, const std::vector<cpu::TestTensor>& in, const Attrs& attrs = {},
                         const std::string& what = "") {
  const auto want = on_cpu().run(op, in, attrs), got = on_cuda().run(op, in, attrs),
             again = on_cuda(Order::Shuffled).run(op, in, attrs);
  for (size_t i = 0; i < want.size(); ++i) {
    expect_cpus_bits(got[i], want[i], fmt::format("{} {} result {}", op, what, i));
    cpu::expect_same_bits(again[i], got[i], fmt::format("{} {} result {}, lanes shuffled", op, what, i));
  }
}

inline void expect_near(const std::string& op, const std::vector<cpu::TestTensor>& in, double rel, double abs,
                        const Attrs& attrs = {}) {
  const auto want = on_cpu().run(op, in, attrs), got = on_cuda().run(op, in, attrs),
             again = on_cuda(Order::Descending).run(op, in, attrs);
  for (size_t i = 0; i < want.size(); ++i) {
    cpu::expect_close(got[i], cpu::to_doubles(want[i]), rel, abs, fmt::format("{} result {}", op, i));
    cpu::expect_same_bits(again[i], got[i], fmt::format("{} result {}, lanes backwards", op, i));
  }
}

}  // namespace reprise::simt
