// Blas: matrix products of NVIDIA's cuBLASLt that give the bits of our own kernel.
//
// The library is opened at run time where it is installed; nothing is linked. Which products it computes, and by which
// algorithm, its ProductChoices know (product_choices.h); the trials are in kernels/library.cu. A device owns it; used
// by the thread that launches.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cuda/kernels/product.h"
#include "backends/cuda/product_trials.h"

struct CUstream_st;

namespace reprise::cuda {

class Blas {
 public:
  // For a GPU of this architecture ("sm_90") with so many multiprocessors. Null where the library is absent; `notes`
  // says which it is, or why it is not used.
  static std::unique_ptr<Blas> open(const std::string& isa, int multiprocessors, std::vector<std::string>& notes);
  ~Blas();

  ProductChoices& choices() { return *choices_; }

  // As ProductTrials has them.
  std::vector<Algorithm> proposals(const Product& p);
  bool takes(const Product& p, const Algorithm& algorithm);
  // False: the library refused.
  bool run(const Product& p, const Algorithm& algorithm, CUstream_st* stream);

 private:
  struct Library;
  struct Layouts;
  using Key = std::tuple<Number, Number, int64_t, int64_t, int64_t>;  // in, out, tokens, depth, columns
  const Layouts* layouts(const Product& p);
  Blas(std::shared_ptr<Library> library, std::unique_ptr<ProductChoices> choices);

  std::shared_ptr<Library> library_;
  std::map<Key, std::unique_ptr<Layouts>> layouts_;
  std::unique_ptr<ProductChoices> choices_;
};

}  // namespace reprise::cuda
