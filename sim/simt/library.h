// Library: the stand-in for NVIDIA's cuBLASLt on the SIMT executor.
//
// It has three algorithms: one that gives other bits than Reprise's own kernel, a slow one and a fast one that give the
// same. Its times are made up. It counts what it is asked, so that tests see what a start costs. The device that
// stands in for a GPU shares it with the test; used by the thread that launches.
#pragma once

#include "backends/cuda/product_choices.h"

namespace reprise::simt {

class Library final : public cuda::ProductTrials {
 public:
  explicit Library(int64_t version = 1);

  cuda::ProductChoices& choices() { return choices_; }
  // Computes the product by the algorithm that was chosen; false: the own kernel is to.
  bool product(const cuda::Product& p);

  std::vector<cuda::Algorithm> proposals(const cuda::Product& p) override;
  bool takes(const cuda::Product& p, const cuda::Algorithm& algorithm) override;
  Bits compare(const cuda::Product& p, const cuda::Algorithm& algorithm) override;
  std::optional<float> own_us(const cuda::Product& p) override;
  std::optional<float> us(const cuda::Product& p, const cuda::Algorithm& algorithm) override;

  struct Asked {
    int proposals = 0, proofs = 0, times = 0;
    int products = 0;  // that it computed
  };
  const Asked& asked() const { return asked_; }

 private:
  enum class Kind : uint8_t { OtherBits, Slow, Fast };
  static Kind kind_of(const cuda::Algorithm& a) { return static_cast<Kind>(a[0]); }
  void run(const cuda::Product& p, Kind kind) const;

  Asked asked_;
  cuda::ProductChoices choices_;
};

}  // namespace reprise::simt
