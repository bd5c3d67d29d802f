// ProductChoices with a library that is made up: what is chosen, what is kept, and what a kept choice saves.
#include "backends/cuda/product_choices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/hooks.h"
#include "support/folder.h"

namespace reprise::cuda::product_choices_test {
namespace {

using testing_support::content_of;
using testing_support::Folder;
using Bits = ProductTrials::Bits;

Algorithm algorithm(uint8_t name) { return {name}; }

// Algorithms are known by their first byte.
struct FakeLibrary final : ProductTrials {
  struct One {
    uint8_t name;
    Bits bits;
    float us;
  };
  explicit FakeLibrary(std::vector<One> algorithms = {}, float us = 10, bool runs = true)
      : all(std::move(algorithms)), own(us), own_runs(runs) {}

  std::vector<One> all;
  float own;
  bool own_runs;
  int searches = 0, proofs = 0, times = 0;
  std::vector<int64_t> rows;  // of the searches

  const One& find(const Algorithm& a) const {
    for (const One& one : all)
      if (one.name == a[0]) return one;
    ADD_FAILURE() << "asked for algorithm " << int{a[0]};
    return all.front();
  }
  std::vector<Algorithm> proposals(const Product& p) override {
    ++searches;
    rows.push_back(p.tokens);
    std::vector<Algorithm> out;
    for (const One& one : all) out.push_back(algorithm(one.name));
    return out;
  }
  bool takes(const Product&, const Algorithm& a) override {
    return std::any_of(all.begin(), all.end(), [&](const One& one) { return one.name == a[0]; });
  }
  Bits compare(const Product&, const Algorithm& a) override {
    ++proofs;
    return find(a).bits;
  }
  std::optional<float> own_us(const Product&) override {
    ++times;
    return own_runs ? std::optional<float>(own) : std::nullopt;
  }
  std::optional<float> us(const Product&, const Algorithm& a) override {
    ++times;
    const float us = find(a).us;
    return us > 0 ? std::optional<float>(us) : std::nullopt;
  }
};

const std::vector<FakeLibrary::One> kUsual{{1, Bits::Other, 1}, {2, Bits::Ours, 8}, {3, Bits::Ours, 6}};

ProductChoices choices(int64_t version = 1, const std::string& isa = "sm_90", int64_t multiprocessors = 132) {
  return {ProductWaysKey{version, isa, multiprocessors, kOwnProductKernels}, "fake",
          [](const Algorithm& a) { return fmt::format("algorithm {}", a[0]); }};
}

Product product(int64_t tokens, int64_t columns = 4096) {
  return {Number::BF16, Number::BF16, tokens, 1024, columns, nullptr, nullptr, nullptr};
}

int chosen(ProductChoices& c, FakeLibrary& library, const Product& p) {
  const Algorithm* a = c.choose(p, library);
  return a ? (*a)[0] : 0;
}

std::string choices_path(const std::string& folder, int64_t version) {
  return fmt::format("{}/cublaslt-{}-sm_90-132.products", folder, version);
}

// What is logged while this lives.
struct Logged {
  std::vector<std::string> lines;
  Hooks hooks;
  HookScope scope{&hooks};
  Logged() {
    hooks.log = [this](log::Level, std::string_view line) { lines.emplace_back(line); };
  }
};

TEST(ProductChoices, TakeTheFastestThatGivesTheSameBits) {
  FakeLibrary library{kUsual};
  ProductChoices c = choices();
  EXPECT_EQ(chosen(c, library, product(20)), 3);
  EXPECT_EQ(library.searches, 1);
  EXPECT_EQ(library.times, 3) << "the own kernel and two algorithms";
  // One search for a range of rows, made with its last number; one proof for a shape of weights.
  EXPECT_EQ(chosen(c, library, product(17)), 3);
  EXPECT_EQ(chosen(c, library, product(32)), 3);
  EXPECT_EQ(library.searches, 1);
  EXPECT_EQ(chosen(c, library, product(33)), 3);
  EXPECT_EQ(library.rows, (std::vector<int64_t>{32, 48}));
  EXPECT_EQ(library.proofs, 3);
  EXPECT_EQ(chosen(c, library, product(20, 2048)), 3);
  EXPECT_EQ(library.proofs, 6);
}

TEST(ProductChoices, OfManyRowsTakeTheFavouriteWithTheSameBits) {
  FakeLibrary library{kUsual};
  ProductChoices c = choices();
  EXPECT_EQ(chosen(c, library, product(1000)), 2);
  EXPECT_EQ(library.times, 0);
  EXPECT_EQ(library.proofs, 2);
}

TEST(ProductChoices, SayWhyTheOwnKernelComputes) {
  using Outcome = ProductWay::Outcome;
  FakeLibrary slow{kUsual, 6}, wrong{{{1, Bits::Other, 1}, {4, Bits::Other, 1}}}, none;
  ProductChoices a = choices(), b = choices(), c = choices();
  EXPECT_EQ(chosen(a, slow, product(20)), 0);
  EXPECT_EQ(chosen(b, wrong, product(20)), 0);
  EXPECT_EQ(chosen(c, none, product(20)), 0);
  EXPECT_EQ(a.found().at(0).way.outcome, Outcome::OwnFaster);
  EXPECT_EQ(a.found()[0].way.us, 6);
  EXPECT_EQ(b.found().at(0).way.outcome, Outcome::OtherBits);
  EXPECT_EQ(b.found()[0].way.other_bits, 2);
  EXPECT_EQ(c.found().at(0).way.outcome, Outcome::NoProposal);
  // By rule, before anything is asked.
  const int before = none.searches;
  EXPECT_EQ(chosen(c, none, product(16)), 0);
  EXPECT_EQ(chosen(c, none, product(20, 4100)), 0);
  EXPECT_EQ(none.searches, before);
  EXPECT_FALSE(c.own_because({DType::BF16, DType::BF16, 128, 4096}, 500).empty());
  EXPECT_TRUE(c.own_because({DType::BF16, DType::BF16, 1024, 4096}, 500).empty());
  EXPECT_EQ(c.own_because({DType::BF16, DType::BF16, 1024, 4096, "it has a bias"}, 500), "it has a bias");
}

// Failures of the moment are asked about again, and are not kept.
TEST(ProductChoices, WhatCouldNotBeTriedIsNotKept) {
  const Folder folder;
  {
    FakeLibrary library{kUsual, 10, false};
    ProductChoices c = choices();
    c.keep_in(folder.path());
    EXPECT_EQ(chosen(c, library, product(20)), 0);
    library.own_runs = true;
    EXPECT_EQ(chosen(c, library, product(20)), 3);
    library.all = {{5, Bits::NotNow, 1}};
    EXPECT_EQ(chosen(c, library, product(20, 2048)), 0);
    library.all = {{5, Bits::Refused, 1}, {6, Bits::Ours, 7}};
    EXPECT_EQ(chosen(c, library, product(20, 2048)), 6);
  }
  FakeLibrary next{{{3, Bits::Ours, 8}, {6, Bits::Ours, 7}}};
  ProductChoices c = choices();
  c.keep_in(folder.path());
  EXPECT_EQ(chosen(c, next, product(20)), 3);
  EXPECT_EQ(next.searches, 0);
  EXPECT_EQ(chosen(c, next, product(20, 2048)), 6);
  EXPECT_EQ(next.searches, 1);
}

TEST(ProductChoices, AKeptChoiceNeedsNoSearchAndIsProvedAgain) {
  const Folder folder;
  {
    FakeLibrary library{kUsual};
    ProductChoices c = choices();
    c.keep_in(folder.path());
    EXPECT_EQ(chosen(c, library, product(20)), 3);
    EXPECT_EQ(chosen(c, library, product(1000)), 2);
    library.own = 1;
    EXPECT_EQ(chosen(c, library, product(100)), 0);
    EXPECT_FALSE(c.found()[0].from_file);
  }
  FakeLibrary library{kUsual};
  ProductChoices c = choices();
  c.keep_in(folder.path());
  EXPECT_EQ(chosen(c, library, product(25)), 3);
  EXPECT_EQ(chosen(c, library, product(1000)), 2);
  EXPECT_EQ(chosen(c, library, product(100)), 0);
  EXPECT_EQ(library.searches, 0);
  EXPECT_EQ(library.times, 0);
  EXPECT_EQ(library.proofs, 2);
  for (const auto& f : c.found()) EXPECT_TRUE(f.from_file);
  EXPECT_EQ(c.found()[0].algorithm, "algorithm 3");
}

TEST(ProductChoices, OfAnotherLibraryOrGpuAreNotUsed) {
  const Folder folder;
  {
    FakeLibrary library{kUsual};
    ProductChoices c = choices();
    c.keep_in(folder.path());
    EXPECT_EQ(chosen(c, library, product(20)), 3);
  }
  ProductChoices others[] = {choices(2), choices(1, "sm_100"), choices(1, "sm_90", 114)};
  for (ProductChoices& c : others) {
    FakeLibrary library{kUsual};
    c.keep_in(folder.path());
    EXPECT_EQ(chosen(c, library, product(20)), 3);
    EXPECT_EQ(library.searches, 1);
  }
  // Nor under the name of the right one.
  FakeLibrary library{kUsual};
  ProductChoices c = choices(3);
  std::filesystem::copy(choices_path(folder.path(), 1), choices_path(folder.path(), 3));
  Logged logged;
  c.keep_in(folder.path());
  EXPECT_EQ(logged.lines.size(), 1u);
  EXPECT_EQ(chosen(c, library, product(20)), 3);
  EXPECT_EQ(library.searches, 1);
}

TEST(ProductChoices, AKeptAlgorithmThatIsNotRightAnyMoreIsSearchedAnew) {
  const Folder folder;
  {
    FakeLibrary library{kUsual};
    ProductChoices c = choices();
    c.keep_in(folder.path());
    EXPECT_EQ(chosen(c, library, product(20)), 3);
    EXPECT_EQ(chosen(c, library, product(20, 2048)), 3);
  }
  for (const bool gone : {false, true}) {
    FakeLibrary library{{{2, Bits::Ours, 8}, {3, Bits::Other, 6}}};
    if (gone) library.all.pop_back();
    ProductChoices c = choices();
    c.keep_in(folder.path());
    if (gone) {
      EXPECT_EQ(chosen(c, library, product(20, 2048)), 2);
    } else {
      EXPECT_EQ(chosen(c, library, product(20)), 2);
    }
    EXPECT_EQ(library.searches, 1);
  }
  // What was found then is what is kept now.
  FakeLibrary library{{{2, Bits::Ours, 8}}};
  ProductChoices c = choices();
  c.keep_in(folder.path());
  EXPECT_EQ(chosen(c, library, product(20)), 2);
  EXPECT_EQ(chosen(c, library, product(20, 2048)), 2);
  EXPECT_EQ(library.searches, 0);
}

TEST(ProductChoices, ADamagedFileIsOneMessageAndANewSearch) {
  const Folder folder;
  const std::string path = choices_path(folder.path(), 1);
  std::string good;
  for (int round = 0; round < 3; ++round) {
    FakeLibrary library{kUsual};
    {
      Logged logged;
      ProductChoices c = choices();
      c.keep_in(folder.path());
      EXPECT_EQ(chosen(c, library, product(20)), 3);
      EXPECT_EQ(library.searches, 1) << round;
      EXPECT_EQ(logged.lines.size(), round == 0 ? 0u : 1u);
      for (const std::string& line : logged.lines) EXPECT_TRUE(testing_support::holds(line, path)) << line;
    }
    if (round == 0) good = content_of(path);
    EXPECT_EQ(content_of(path), good) << "it is replaced";
    std::string damaged = good;
    if (round == 0) damaged[good.size() / 2] ^= 1;
    if (round == 1) damaged.resize(good.size() - 7);
    std::ofstream(path, std::ios::binary) << damaged;
  }
}

TEST(ProductChoices, WhatOtherProcessesFoundStays) {
  const Folder folder;
  FakeLibrary library{kUsual};
  {
    ProductChoices a = choices(), b = choices();
    a.keep_in(folder.path());
    b.keep_in(folder.path());
    EXPECT_EQ(chosen(a, library, product(20)), 3);
    EXPECT_EQ(chosen(b, library, product(20, 2048)), 3);
  }
  library.searches = 0;
  ProductChoices c = choices();
  c.keep_in(folder.path());
  EXPECT_EQ(chosen(c, library, product(20)), 3);
  EXPECT_EQ(chosen(c, library, product(20, 2048)), 3);
  EXPECT_EQ(library.searches, 0);
}

TEST(ProductChoices, AFolderThatCannotBeWrittenIsOneMessage) {
  const Folder folder;
  folder.write("file", "");
  FakeLibrary library{kUsual};
  Logged logged;
  ProductChoices c = choices();
  c.keep_in(folder / "file");
  logged.lines.clear();
  for (const int64_t rows : {20, 40}) {
    EXPECT_EQ(chosen(c, library, product(rows)), 3);
    c.keep();
  }
  EXPECT_EQ(logged.lines.size(), 1u);
}

}  // namespace
}  // namespace reprise::cuda::product_choices_test
