// ProductChoices: which products the vendor's library computes, and by which of its algorithms.
//
// Chosen once for a shape and a range of rows: among the library's proposals one that gives the bits of the own kernel,
// up to kTimedTokens rows the fastest, and the own kernel where that is as fast. Choices are kept in a file, and the
// next start with the same library and GPU asks the library for no proposals and times nothing. The proof of bits is
// made again at every start, once for a shape of weights and an algorithm: it is what the same bits rest on, and a
// fraction of the search. No vendor header: `trials` are the library and the GPU. The Blas of a device owns it; used by
// the thread that launches, and by others while nothing runs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "backends/cuda/product_trials.h"
#include "device/product_ways.h"

namespace reprise::cuda {

// Raise it when a change of the own kernels of products changes their bits or their times: kept choices are void then.
constexpr uint32_t kOwnProductKernels = 1;

class ProductChoices final : public ProductWays {
 public:
  // Sums so short, or so few, that another order would seldom show could pass for ours; and what is no multiple of
  // sixteen numbers the library computes in other ways. These stay with the own kernel. Tests have smaller models.
  struct Rules {
    int64_t least_depth = 256, least_outputs = 1 << 14, multiple = 16;
  };
  using Words = std::function<std::string(const Algorithm&)>;

  ProductChoices(ProductWaysKey key, std::string library, Words words);
  ProductChoices(ProductWaysKey key, std::string library, Words words, Rules rules);
  ProductChoices(const ProductChoices&) = delete;
  ~ProductChoices() override { keep(); }

  const Algorithm* choose(const Product& p, ProductTrials& trials);

  void keep_in(const std::string& folder) override;
  void keep() override;
  std::vector<Found> found() const override;
  std::string_view own_because(const LibraryProduct& product, int64_t rows) const override;
  std::string library() const override { return library_; }

  std::string path() const;  // of the file; empty: there is no folder

 private:
  using Shape = std::tuple<DType, DType, int64_t, int64_t>;  // in, out, depth, columns
  using Key = std::tuple<Shape, int64_t>;                    // and the last of the rows
  struct Choice {
    ProductWay way;
    bool from_file = false;
    bool certain = true;  // false: an algorithm could not be tried; good for this process alone
  };

  static Key key_of(const ProductWay& w) { return {{w.in, w.out, w.depth, w.columns}, w.rows.last}; }
  Result<std::vector<ProductWay>> read() const;
  ProductTrials::Bits prove(const ProductWay& w, const Product& p, const Algorithm& a, ProductTrials& trials);
  // What the file says, if that still holds. `not_now`: it could not be proved at the moment.
  std::optional<Choice> restored(const ProductWay& asked, const Product& p, ProductTrials& trials, bool& not_now);
  // Nothing: it could not be found out at the moment.
  std::optional<Choice> searched(ProductWay way, const Product& p, ProductTrials& trials);

  ProductWaysKey key_;
  std::string library_;
  Words words_;
  Rules rules_;
  std::string folder_;
  std::map<Key, ProductWay> kept_;  // as the file had them
  std::map<Key, Choice> choices_;
  // What is known of an algorithm and a shape of weights holds for any number of rows.
  std::map<std::tuple<Shape, Algorithm>, bool> ours_;
  bool changed_ = false;     // since the file was written
  bool complained_ = false;  // of the folder
};

}  // namespace reprise::cuda
