#include "backends/cuda/product_choices.h"

#include <filesystem>

#include "backends/cuda/kernels/product_sizes.h"
#include "base/file.h"
#include "base/log.h"
#include "device/product_file.h"

namespace reprise::cuda {
namespace {

using Bits = ProductTrials::Bits;
using Outcome = ProductWay::Outcome;

constexpr size_t kMostFileBytes = size_t{16} << 20;

DType dtype_of(Number n) {
  switch (n) {
    case Number::F32: return DType::F32;
    case Number::BF16: return DType::BF16;
    case Number::F16: return DType::F16;
    case Number::I8: return DType::I8;
    case Number::I32: break;
  }
  return DType::I32;
}

// A choice before anything is known of it.
ProductWay way_of(const Product& p) {
  ProductWay w;
  w.in = dtype_of(p.in);
  w.out = dtype_of(p.out);
  w.depth = p.depth;
  w.columns = p.columns;
  w.rows = rows_like(p.tokens);
  return w;
}

std::string shape_text(const ProductWay& w) {
  return fmt::format("{} {} x {} of {} to {} rows", dtype_name(w.in), w.columns, w.depth, w.rows.first, w.rows.last);
}

}  // namespace

const Algorithm* choose(ProductChoices& choices, const Product& p, ProductTrials& trials) {
  return choices.choose(p, trials);
}

ProductChoices::ProductChoices(ProductWaysKey key, std::string library, Words words)
    : ProductChoices(std::move(key), std::move(library), std::move(words), Rules()) {}
ProductChoices::ProductChoices(ProductWaysKey key, std::string library, Words words, Rules rules)
    : key_(std::move(key)), library_(std::move(library)), words_(std::move(words)), rules_(rules) {}

std::string_view ProductChoices::own_because(const LibraryProduct& p, int64_t rows) const {
  if (!p.own_because.empty()) return p.own_because;
  if (p.depth < rules_.least_depth) return "its sums are short";
  if (p.depth % rules_.multiple != 0 || p.columns % rules_.multiple != 0) return "its sizes are no multiples of 16";
  if (rows < kManyTokens) return "few rows";
  if (rows * p.columns < rules_.least_outputs) return "it has few results";
  return {};
}

const Algorithm* ProductChoices::choose(const Product& p, ProductTrials& trials) {
  const ProductWay asked = way_of(p);
  if (!own_because({asked.in, asked.out, p.depth, p.columns}, p.tokens).empty()) return nullptr;
  auto it = choices_.find(key_of(asked));
  if (it == choices_.end()) {
    Product most = p;  // the last of the range stands for all, whichever is asked for first
    most.tokens = asked.rows.last;
    bool not_now = false;
    std::optional<Choice> found = restored(asked, most, trials, not_now);
    if (!found && !not_now) found = searched(asked, most, trials);
    if (!found) return nullptr;  // the own kernel gives the same bits, and the next such product asks again
    log::debug("products of {}: {}", shape_text(asked),
               found->way.outcome == Outcome::Library ? library_ : "Reprise's own kernel");
    it = choices_.emplace(key_of(asked), std::move(*found)).first;
  }
  const ProductWay& way = it->second.way;
  return way.outcome == Outcome::Library ? &way.algorithm : nullptr;
}

Bits ProductChoices::prove(const ProductWay& w, const Product& p, const Algorithm& a, ProductTrials& trials) {
  const std::tuple<Shape, Algorithm> key{{w.in, w.out, w.depth, w.columns}, a};
  if (const auto known = ours_.find(key); known != ours_.end()) return known->second ? Bits::Ours : Bits::Other;
  const Bits bits = trials.compare(p, a);
  if (bits == Bits::Ours || bits == Bits::Other) ours_[key] = bits == Bits::Ours;
  return bits;
}

std::optional<ProductChoices::Choice> ProductChoices::restored(const ProductWay& asked, const Product& p,
                                                               ProductTrials& trials, bool& not_now) {
  const auto kept = kept_.find(key_of(asked));
  if (kept == kept_.end()) return std::nullopt;
  const ProductWay& way = kept->second;
  if (way.outcome != Outcome::Library) return Choice{way, true};
  const Bits bits = trials.takes(p, way.algorithm) ? prove(way, p, way.algorithm, trials) : Bits::Refused;
  if (bits == Bits::Ours) return Choice{way, true};
  if (bits == Bits::NotNow) {
    not_now = true;
    return std::nullopt;
  }
  log::warning("products of {}: {} {} the algorithm that {} has for them; searched anew", shape_text(way), library_,
               bits == Bits::Other ? "gives other bits by" : "does not take", path());
  kept_.erase(kept);
  return std::nullopt;
}

std::optional<ProductChoices::Choice> ProductChoices::searched(ProductWay way, const Product& p,
                                                               ProductTrials& trials) {
  const bool timed = p.tokens <= kTimedTokens;
  if (timed) {
    const auto own = trials.own_us(p);
    if (!own) return std::nullopt;
    way.own_us = *own;
  }
  bool certain = true, right = false;
  for (const Algorithm& a : trials.proposals(p)) {
    ++way.proposed;
    const Bits bits = prove(way, p, a, trials);
    if (bits == Bits::NotNow) return std::nullopt;
    way.other_bits += bits == Bits::Other;
    certain = certain && bits != Bits::Refused;
    if (bits != Bits::Ours) continue;
    const auto us = timed ? trials.us(p, a) : std::optional<float>(0);
    certain = certain && us;
    if (!us || (right && *us >= way.us)) continue;
    right = true;
    way.us = *us;
    way.algorithm = a;
    if (!timed) break;
  }
  way.outcome = !right                          ? way.proposed ? Outcome::OtherBits : Outcome::NoProposal
                : timed && way.us >= way.own_us ? Outcome::OwnFaster
                                                : Outcome::Library;
  if (way.outcome != Outcome::Library) way.algorithm = {};
  changed_ = changed_ || certain;
  return Choice{way, false, certain};
}

std::string ProductChoices::path() const {
  if (folder_.empty()) return {};
  return fmt::format("{}/cublaslt-{}-{}-{}.products", folder_, key_.library, key_.isa, key_.multiprocessors);
}

Result<std::vector<ProductWay>> ProductChoices::read() const {
  ASSIGN_OR_RETURN(const std::string bytes, read_file(path(), kMostFileBytes));
  return decode_ways({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, key_);
}

void ProductChoices::keep_in(const std::string& folder) {
  if (!folder_.empty() || folder.empty()) return;
  folder_ = folder;
  const auto ways = read();
  if (ways.is_ok())
    for (const ProductWay& w : *ways) kept_.emplace(key_of(w), w);
  else if (ways.status().code() != Code::NotFound)
    log::warning("{}: {}; algorithms of {} are searched anew, and the file is replaced", path(),
                 ways.status().message(), library_);
}

void ProductChoices::keep() {
  if (folder_.empty() || !changed_) return;
  // Other processes may have written since.
  std::map<Key, ProductWay> all;
  if (const auto ways = read(); ways.is_ok() && ways->size() + choices_.size() <= kMostWays)
    for (const ProductWay& w : *ways) all[key_of(w)] = w;
  for (const auto& [key, choice] : choices_)
    if (choice.certain) all[key] = choice.way;
  std::vector<ProductWay> ways;
  for (auto& entry : all) ways.push_back(entry.second);
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  const Status written = failed ? error(Code::Invalid, "{}: {}", folder_, failed.message())
                                : write_file_atomically(path(), encode_ways(ways, key_));
  changed_ = false;
  if (written.is_ok() || complained_) return;
  complained_ = true;
  log::warning("algorithms of {}: {}; they are not kept (`plan_cache` DIR names another folder, off none)", library_,
               written.message());
}

std::vector<ProductWays::Found> ProductChoices::found() const {
  std::vector<Found> out;
  for (const auto& entry : choices_) {
    const Choice& c = entry.second;
    out.push_back({c.way, c.from_file, c.way.outcome == Outcome::Library ? words_(c.way.algorithm) : std::string()});
  }
  return out;
}

}  // namespace reprise::cuda
