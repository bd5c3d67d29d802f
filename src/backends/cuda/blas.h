// Blas: matrix products of NVIDIA's cuBLASLt that give the bits of our own kernel.
//
// The library is opened at run time where it is installed; nothing is linked. Each product's sizes get one algorithm,
// found once and kept: among those that the library proposes, that split no sum and need no workspace, one whose
// results on three sets of numbers equal our own kernel's bit for bit (kernels/library.cu). A device owns it;
// used by the thread that launches.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cuda/kernels/product.h"

struct CUstream_st;

namespace reprise::cuda {

class Blas {
 public:
  // Null where the library is absent; `notes` says which it is, or why it is not used.
  static std::unique_ptr<Blas> open(std::vector<std::string>& notes);
  ~Blas();

  // One way of computing products of these sizes.
  struct Way;
  using Key = std::tuple<Number, Number, int64_t, int64_t, int64_t>;  // in, out, tokens, depth, columns
  static Key key(const Product& p) { return {p.in, p.out, p.tokens, p.depth, p.columns}; }

  // What was chosen: null inside where no way gives our bits. Nothing: not asked yet.
  struct Choice {
    std::shared_ptr<Way> way;
  };
  const Choice* chosen(const Product& p) const;
  void choose(const Product& p, std::shared_ptr<Way> way);

  // Whether an algorithm gives our own kernel's bits with weights of a shape; kept for all numbers of tokens.
  enum class Proof : uint8_t { None, Ours, Other };
  Proof& proof(const Product& p, const Way& way);

  // The way's algorithm for another number of tokens; null where the library has none.
  std::shared_ptr<Way> same_way(const Way& way, const Product& p);

  // Ways that split no sum and need no workspace, the library's favourite first.
  std::vector<std::shared_ptr<Way>> ways(const Product& p);
  // False: the library refused.
  bool run(const Way& way, const Product& p, CUstream_st* stream);

 private:
  struct Library;
  std::shared_ptr<Way> make_way(const Product& p) const;
  explicit Blas(std::unique_ptr<Library> library);

  std::unique_ptr<Library> library_;
  std::map<Key, Choice> choices_;
  std::map<std::tuple<Number, Number, int64_t, int64_t, std::string>, Proof> proofs_;  // with the algorithm's bytes
};

}  // namespace reprise::cuda
