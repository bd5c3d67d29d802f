// Several ranks of the CUDA device: its kernels on the SIMT executor, each rank a thread, and between them a stand-in
// for NCCL (sim/nccl). Ops against loops that say the same, and models against one rank.
#include <gtest/gtest.h>

#include "backends/cuda/communicator.h"
#include "simt/cuda_runner.h"
#include "support/applied.h"
#include "support/goldens.h"
#include "support/ranked_engine.h"
#include "support/setting.h"

namespace reprise::simt::ranks_test {
namespace {

using cpu::random_tensor;
using cpu::tensor_of;
using cpu::TestTensor;
using testing_support::applied;
using testing_support::EngineSetup;
using testing_support::Setting;

constexpr int64_t kUsual = cuda::Communicator::kWorthAMeeting;

Result<std::shared_ptr<cuda::Communicator>> join(const std::shared_ptr<ranks::Member>& member,
                                                 int64_t worth_a_meeting = kUsual) {
  ASSIGN_OR_RETURN(const auto nccl, cuda::Nccl::open(stand_in().nccl));
  return cuda::Communicator::make(nccl, member, worth_a_meeting);
}

// One rank's kernels.
cpu::OpRunner runner_of(const std::shared_ptr<cuda::Communicator>& ranks, Order order) {
  return cpu::OpRunner(
      DeviceKind::Cuda, [&](KernelRegistry& kernels) { cuda::register_ranks(kernels, simt::rank_kernels(), ranks); },
      [order, ranks](const KernelEntry& entry, const LaunchArgs& args, const LiveSizes& live, int) {
        Launch launch(order);
        try {
          reinterpret_cast<cuda::CudaKernel>(entry.part[0])(args, live, launch);
        } catch (const std::logic_error& e) {
          ranks->member().abort(e.what());  // nobody waits for this rank
          FAIL() << entry.name << ": " << e.what();
        }
        ASSERT_EQ(launch.failure(), nullptr) << entry.name << ": " << launch.failure();
      });
}

struct Operands {
  std::vector<TestTensor> in;
  Attrs attrs;
};

// The op on every rank at once, with what operands(rank) says; each rank's first result.
template <typename F>
std::vector<TestTensor> on_all(const std::string& op, int size, const F& operands, Order order = Order::Ascending,
                               int64_t worth_a_meeting = kUsual) {
  const testing_support::RankedHosts host({size});
  std::vector<TestTensor> out(static_cast<size_t>(size));
  host.run([&](ranks::Member& member) {
    const int rank = member.world().rank;
    const auto ranks = join(host.member(rank), worth_a_meeting);
    ASSERT_TRUE(ranks.is_ok()) << ranks.status().message();
    const Operands o = operands(rank);
    out[static_cast<size_t>(rank)] = runner_of(*ranks, order).run(op, o.in, o.attrs).at(0);
  });
  return out;
}

// Columns [first, first + count) of a matrix.
TestTensor columns_of(const TestTensor& t, int64_t first, int64_t count) {
  const int64_t rows = t.type.shape[0].factor, all = t.type.shape[1].factor;
  TestTensor out = cpu::zero_tensor(t.type.dtype, {rows, count});
  const size_t element = size_of(t.type.dtype);
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(out.bytes.data() + static_cast<size_t>(i * count) * element,
                t.bytes.data() + static_cast<size_t>(i * all + first) * element, static_cast<size_t>(count) * element);
  return out;
}

struct Columns {
  DType type;
  int64_t rows;
  std::vector<int64_t> borders;  // of the ranks' columns
  bool even;
};

class CudaAllGather : public testing::TestWithParam<Columns> {};

TEST_P(CudaAllGather, PutsColumnsSideBySide) {
  const Columns& c = GetParam();
  const int size = static_cast<int>(c.borders.size()) - 1;
  const TestTensor all = random_tensor(c.type, {c.rows, c.borders.back()}, 3, -100, 100);
  for (const Order order : {Order::Ascending, Order::Shuffled})
    for (const TestTensor& got : on_all(
             "all_gather", size,
             [&](int rank) -> Operands {
               const int64_t first = c.borders[static_cast<size_t>(rank)],
                             count = c.borders[static_cast<size_t>(rank) + 1] - first;
               return {{columns_of(all, first, count)},
                       {{"first", first}, {"of", c.borders.back()}, {"even", int64_t{c.even}}}};
             },
             order))
      cpu::expect_same_bits(got, all, "all_gather");
}

// Words of 16, 4, 2 and 1 byte; one row, which needs no second move; parts that are not equal.
INSTANTIATE_TEST_SUITE_P(
    Widths, CudaAllGather,
    testing::Values(Columns{DType::BF16, 5, {0, 16, 32, 48}, true}, Columns{DType::F32, 3, {0, 5, 10}, true},
                    Columns{DType::F16, 4, {0, 7, 14}, true}, Columns{DType::I8, 4, {0, 7, 14}, true},
                    Columns{DType::F32, 1, {0, 6, 12, 18, 24}, true}, Columns{DType::BF16, 3, {0, 16, 24}, false},
                    Columns{DType::BF16, 3, {0, 5, 12, 19}, false}, Columns{DType::I8, 3, {0, 3, 4}, false}));

// -0.0 and NaN come through as they are: their bits are merged, not added.
TEST(CudaRankOps, RowsComeFromTheRankThatHasThem) {
  TestTensor all = random_tensor(DType::F32, {5, 3}, 8);
  all.set(0, -0.0);
  all.as<uint32_t>()[4] = 0x7fc12345;
  const std::vector<int> owner{1, 0, 1, 1, 0};
  for (const TestTensor& got : on_all("gather_owned", 2, [&](int rank) -> Operands {
         TestTensor mine = all, ids = cpu::zero_tensor(DType::I32, {5});
         for (int64_t t = 0; t < 5; ++t) {
           const bool here = owner[static_cast<size_t>(t)] == rank;
           ids.set(t, here ? static_cast<double>(t) : -1);
           for (int64_t i = 0; i < 3 && !here; ++i) mine.set(3 * t + i, 1e30);
         }
         return {{mine, ids}, {}};
       }))
    cpu::expect_same_bits(got, all, "gather_owned");
}

// Experts over parts of ranks, whose columns the ranks of a part share: every number comes from the one rank that has
// its row's expert and its column.
TEST(CudaRankOps, RowsOfExpertsComeFromTheirRanks) {
  const TestTensor all = random_tensor(DType::BF16, {7, 6}, 4);
  const std::vector<int32_t> starts{0, 2, 2, 7};  // of three experts: the first two, and the last one
  for (const TestTensor& got : on_all("gather_groups", 4, [&](int rank) -> Operands {
         const bool first = rank < 2;
         const int64_t column = rank % 2 * 3;
         const TestTensor borders = first ? tensor_of(DType::I32, {3}, {0, 2, 2}) : tensor_of(DType::I32, {2}, {2, 7});
         TestTensor mine = columns_of(all, column, 3);
         for (int64_t row = 0; row < 7; ++row)
           for (int64_t i = 0; i < 3 && (row < 2) != first; ++i) mine.set(3 * row + i, 7);
         return {{mine, borders}, {{"first", column}, {"of", int64_t{6}}}};
       }))
    cpu::expect_same_bits(got, all, "gather_groups");
}

struct Sum {
  DType type;
  int ranks;
  int64_t rows, width;
  bool bias;
  int64_t worth_a_meeting = kUsual;
};

class CudaAllReduce : public testing::TestWithParam<Sum> {};

TEST_P(CudaAllReduce, AddsInTheOrderOfRanksAndRoundsOnce) {
  const Sum& c = GetParam();
  std::vector<TestTensor> parts;
  for (int r = 0; r < c.ranks; ++r)
    parts.push_back(random_tensor(c.type, {c.rows, c.width}, static_cast<uint32_t>(r + 1), -3, 3));
  const TestTensor bias = random_tensor(c.type, {c.width}, 77);
  TestTensor want = cpu::zero_tensor(c.type, {c.rows, c.width});
  for (int64_t i = 0; i < want.size(); ++i) {
    auto sum = static_cast<float>(parts[0].get(i));
    for (size_t r = 1; r < parts.size(); ++r) sum += static_cast<float>(parts[r].get(i));
    if (c.bias) sum += static_cast<float>(bias.get(i % c.width));
    want.set(i, static_cast<double>(sum));
  }
  const auto operands = [&](int rank) -> Operands {
    Operands o{{parts[static_cast<size_t>(rank)]}, {}};
    if (c.bias) o.in.push_back(bias);
    return o;
  };
  for (const TestTensor& got : on_all("all_reduce", c.ranks, operands, Order::Ascending, c.worth_a_meeting))
    cpu::expect_same_bits(got, want, "all_reduce");
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaAllReduce,
                         // From the sixth on each rank adds a share of the rows: equal ones and others, some ranks
                         // none, and sums that would begin at no multiple of 16 bytes behind the parts.
                         testing::Values(Sum{DType::BF16, 2, 3, 40, false}, Sum{DType::F16, 2, 3, 40, true},
                                         Sum{DType::BF16, 3, 1, 33, true}, Sum{DType::F32, 4, 5, 48, true},
                                         Sum{DType::F32, 3, 2, 7, false}, Sum{DType::BF16, 4, 36, 40960, true},
                                         Sum{DType::F32, 4, 13, 61441, false}, Sum{DType::BF16, 3, 6, 40, true, 1},
                                         Sum{DType::BF16, 3, 4, 42, false, 1}, Sum{DType::BF16, 3, 5, 42, true, 1},
                                         Sum{DType::F32, 3, 7, 7, true, 1}, Sum{DType::F32, 4, 5, 48, true, 1},
                                         Sum{DType::F16, 5, 6, 24, false, 1}));

// Each rank has a part of a table and of the vocabulary.
TEST(CudaRankOps, IdsBordersAndTheLargestOfAll) {
  const auto one = [](const std::string& op, Operands o) { return on_all(op, 1, [&](int) { return o; }).at(0); };
  cpu::expect_same_bits(one("local_ids", {{tensor_of(DType::I32, {5}, {3, 4, 6, 7, 0})}, {{"first", 4}, {"count", 3}}}),
                        tensor_of(DType::I32, {5}, {-1, 0, 2, -1, -1}));
  cpu::expect_same_bits(
      one("own_groups", {{tensor_of(DType::I32, {6}, {0, 1, 1, 4, 9, 12})}, {{"first", 2}, {"count", 2}}}),
      tensor_of(DType::I32, {3}, {1, 4, 9}));
  const TestTensor mine = tensor_of(DType::I32, {2}, {2, 4});
  cpu::expect_same_bits(one("own_slots", {{tensor_of(DType::I32, {5}, {9, 8, 7, -1, 5}), mine}, {}}),
                        tensor_of(DType::I32, {5}, {-1, -1, 7, -1, -1}));
  cpu::expect_same_bits(one("own_cu_seqlens", {{tensor_of(DType::I32, {5}, {0, 1, 3, 4, 6}), mine}, {}}),
                        tensor_of(DType::I32, {5}, {2, 2, 3, 4, 4}));
  const TestTensor logits = tensor_of(DType::F32, {2, 3}, {1, 5, 2, -1, -2, -0.5});
  const TestTensor pairs = one("argmax_pairs", {{logits, tensor_of(DType::I32, {2}, {1, 2})}, {{"first", 30}}});
  EXPECT_EQ(pairs.as<float>()[0], 5);
  EXPECT_EQ(pairs.as<int32_t>()[1], 31);
  EXPECT_EQ(pairs.as<float>()[2], -0.5F);
  EXPECT_EQ(pairs.as<int32_t>()[3], 32);
  // Rows: the second is largest; all are equal; NaN is never larger; all below zero.
  const std::vector<std::vector<float>> values{{1, 3, 2}, {4, 4, 4}, {NAN, -7, -8}, {-3, -2, -9}};
  TestTensor given = cpu::zero_tensor(DType::I32, {4, 6});
  for (size_t row = 0; row < values.size(); ++row)
    for (size_t r = 0; r < 3; ++r) {
      given.as<int32_t>()[row * 6 + 2 * r] = std::bit_cast<int32_t>(values[row][r]);
      given.as<int32_t>()[row * 6 + 2 * r + 1] = static_cast<int32_t>(100 * (r + 1));
    }
  cpu::expect_same_bits(one("merge_argmax", {{given}, {}}), tensor_of(DType::I32, {4}, {200, 100, 200, 200}));
}

EngineSetup small_setup(DType dtype) {
  EngineSetup s;
  s.device = DeviceKind::Cuda;
  s.cuda = &stand_in();
  s.dtype = dtype;
  s.context = 24;
  s.rows = 2;
  s.chunk = 16;
  return s;
}

// All logits of a text in chunks, and greedy tokens behind it.
struct Answers {
  std::vector<float> prompt, decode;
  std::vector<int32_t> tokens;
  bool operator==(const Answers&) const = default;
};

Answers answers_of(engine::Engine& e) {
  Answers a;
  std::vector<int32_t> text(9);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(1 + i * 7 % 50);
  a.prompt = testing_support::all_logits(e, text, 6);
  a.decode = testing_support::all_logits(e, std::span(text).first(3), 1);
  engine::Sequence s(std::vector<int32_t>(text.begin(), text.begin() + 4));
  EXPECT_TRUE(e.reserve(s, s.size() + 4).is_ok());
  for (int step = 0; step < 3; ++step) {
    const engine::StepItem item{&s, s.uncached(), 1};
    const auto ticket = e.submit({&item, 1}, engine::StepOutput::NextTokens);
    EXPECT_TRUE(ticket.is_ok()) << ticket.status().message();
    if (!ticket.is_ok()) break;
    const auto result = e.wait(*ticket);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    if (!result.is_ok()) break;
    a.tokens.push_back(result->tokens[0]);
    s.append(std::max(0, result->tokens[0]));
  }
  e.release(s);
  return a;
}

struct Model {
  const char* folder;
  DType dtype;
  int ranks;
  int64_t experts = 1;
  bool all_modes = false;
};

void PrintTo(const Model& m, std::ostream* to) { *to << m.folder; }

std::vector<std::pair<const char*, EngineSetup>> modes_of(const Model& m) {
  EngineSetup eager = small_setup(m.dtype);
  eager.policy = engine::GraphPolicy::Off;
  if (!m.all_modes) return {{"eager", eager}};
  EngineSetup pieces = small_setup(m.dtype), whole = pieces;
  pieces.policy = whole.policy = engine::GraphPolicy::Required;
  pieces.prefill = GraphMode::Piecewise;
  whole.prefill = GraphMode::Whole;
  return {{"eager", eager}, {"pieces", pieces}, {"whole", whole}};
}

class CudaRanks : public testing::TestWithParam<Model> {};

TEST_P(CudaRanks, GiveTheBitsOfOne) {
  const Model& m = GetParam();
  const std::string folder = std::string(REPRISE_SOURCE_DIR "/tests/data/") + m.folder;
  auto modes = modes_of(m);
  auto alone = testing_support::open_engine(folder, modes[0].second);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const Answers one = answers_of(**alone);
  for (auto& [name, setup] : modes) {
    setup.ep_size = m.experts;
    auto world = testing_support::open_ranked(folder, setup, m.ranks);
    ASSERT_TRUE(world.is_ok()) << name << ": " << world.status().message();
    engine::Engine& front = (*world)->front();
    const Answers many = answers_of(front);
    EXPECT_TRUE(testing_support::same_bits(one.prompt, many.prompt)) << name << ": prompt";
    EXPECT_TRUE(testing_support::same_bits(one.decode, many.decode)) << name << ": decode";
    EXPECT_EQ(one.tokens, many.tokens) << name;
    EXPECT_LT(front.memory().weight_bytes, (*alone)->memory().weight_bytes);
    EXPECT_GT(applied(front, "rows of the table are here"), 0);
    if (setup.policy == engine::GraphPolicy::Required) {
      EXPECT_GT(front.runner("decode")->stats().replays, 0u) << name;
      EXPECT_TRUE(front.runner("decode")->stats().fallbacks.empty()) << name;
    }
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

// Uneven heads and columns, latent attention, experts cut and shared out whole and in part, states, int8.
INSTANTIATE_TEST_SUITE_P(Models, CudaRanks,
                         testing::Values(Model{"models/qwen3_tied", DType::BF16, 2, 1, true},
                                         Model{"models/llama_gqa3_tied", DType::F32, 2},
                                         Model{"models/llama_gqa3_tied", DType::BF16, 3, 1, true},
                                         Model{"models/qwen2_moe_shared", DType::BF16, 2, 1},
                                         Model{"models/qwen2_moe_shared", DType::BF16, 2, 2, true},
                                         Model{"models/qwen2_moe_shared", DType::F32, 4, 2},
                                         Model{"models/deepseek_v2_lite", DType::BF16, 2, 2},
                                         Model{"models/qwen3_next", DType::F32, 2},
                                         Model{"models/qwen3_5", DType::BF16, 2, 1, true},
                                         Model{"models_quantised/modelslim_dynamic", DType::BF16, 2},
                                         Model{"models_quantised/compressed_static", DType::BF16, 2}),
                         [](const auto& info) {
                           const std::string name = info.param.folder;
                           return fmt::format("{}_{}_over_{}_{}", name.substr(name.find('/') + 1),
                                              dtype_name(info.param.dtype), info.param.ranks, info.param.experts);
                         });

// Two requests, each in a part: a prompt beside a decoding one, both decoding, and each alone. All logits of both.
std::vector<std::vector<float>> of_two_requests(engine::Engine& e, const std::vector<int>& part) {
  std::vector<engine::Sequence> sequences;
  sequences.emplace_back(std::vector<int32_t>{3, 1, 4, 1, 5});
  sequences.emplace_back(std::vector<int32_t>{2, 7, 1, 8, 2, 8, 1});
  std::vector<std::vector<float>> logits(2);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(e.reserve(sequences[i], 12, part[i]).is_ok());
  for (const std::vector<int64_t>& counts : std::vector<std::vector<int64_t>>{{5, 0}, {1, 4}, {1, 3}, {1, 1}, {0, 1}}) {
    std::vector<engine::StepItem> items;
    for (size_t i = 0; i < 2; ++i) {
      if (counts[i] == 0) continue;
      while (sequences[i].uncached() < counts[i]) sequences[i].append(9);
      engine::StepItem item{&sequences[i], counts[i], counts[i]};
      item.part = part[i];
      items.push_back(item);
    }
    const auto got = e.step(items);
    EXPECT_TRUE(got.is_ok()) << got.status().message();
    if (!got.is_ok()) return {};
    const float* from = got->data();
    for (size_t i = 0; i < 2; ++i) {
      logits[i].insert(logits[i].end(), from, from + counts[i] * e.vocab_size());
      from += counts[i] * e.vocab_size();
    }
  }
  for (size_t i = 0; i < 2; ++i) e.release(sequences[i], part[i]);
  return logits;
}

class CudaParts : public testing::TestWithParam<Model> {};

// Requests that are shared out (DP attention): each part attends to its own rows alone.
TEST_P(CudaParts, GiveTheBitsOfOneRank) {
  const Model& m = GetParam();
  const std::string folder = std::string(REPRISE_SOURCE_DIR "/tests/data/") + m.folder;
  auto modes = modes_of(m);
  for (auto& mode : modes) mode.second.rows = 12;  // a part has its share of them
  auto alone = testing_support::open_engine(folder, modes[0].second);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const auto one = of_two_requests(**alone, {0, 0});
  ASSERT_EQ(one.size(), 2u);
  for (auto& [name, setup] : modes) {
    setup.sequence_parts = 2;
    setup.ep_size = m.experts;
    auto world = testing_support::open_ranked(folder, setup, m.ranks);
    ASSERT_TRUE(world.is_ok()) << name << ": " << world.status().message();
    for (const std::vector<int>& part : {std::vector<int>{0, 1}, {1, 1}})
      EXPECT_TRUE(of_two_requests((*world)->front(), part) == one) << name << ": " << part[0] << ", " << part[1];
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaParts,
                         testing::Values(Model{"models/qwen3_tied", DType::BF16, 2, 1, true},
                                         Model{"models/llama_bias", DType::F32, 2},
                                         Model{"models/deepseek_v2_lite", DType::BF16, 2, 2}),
                         [](const auto& info) {
                           const std::string name = info.param.folder;
                           return name.substr(name.find('/') + 1);
                         });

struct Added {
  const char* folder;
  int ranks;
  int64_t products;  // whose parts are added
};

class CudaSums : public testing::TestWithParam<Added> {};

// Parts cross in bf16: near one rank, and the same in every mode.
TEST_P(CudaSums, AreNearOneRankAndTheSameInEveryMode) {
  const Added& c = GetParam();
  const std::string folder = std::string(REPRISE_SOURCE_DIR "/tests/data/") + c.folder;
  auto modes = modes_of({c.folder, DType::BF16, c.ranks, 1, true});
  auto alone = testing_support::open_engine(folder, modes[0].second);
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  const std::vector<float> one = answers_of(**alone).prompt;
  std::optional<Answers> first;
  for (auto& [name, setup] : modes) {
    setup.reduce = true;
    auto world = testing_support::open_ranked(folder, setup, c.ranks);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    EXPECT_EQ(applied((*world)->front(), "ranks are added"), c.products) << name;
    const Answers many = answers_of((*world)->front());
    if (!first) first = many;
    EXPECT_TRUE(many == *first) << name;
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
  ASSERT_EQ(one.size(), first->prompt.size());
  float largest = 0, worst = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    largest = std::max(largest, std::abs(one[i]));
    worst = std::max(worst, std::abs(one[i] - first->prompt[i]));
  }
  EXPECT_LE(worst, 3e-2F * largest);
  EXPECT_GT(worst, 0) << "sums were not added over ranks";
}

// Two layers each; biases of row-parallel products (F56) in llama_bias, folded int32 ones in modelslim_static_bias.
INSTANTIATE_TEST_SUITE_P(Models, CudaSums,
                         testing::Values(Added{"models/qwen3_tied", 2, 4}, Added{"models/llama_bias", 3, 4},
                                         Added{"models_quantised/modelslim_static_bias", 2, 4},
                                         Added{"models_quantised/modelslim_dynamic", 2, 4},
                                         Added{"models/mixtral_top2", 2, 4}),
                         [](const auto& info) {
                           const std::string name = info.param.folder;
                           return fmt::format("{}_over_{}", name.substr(name.find('/') + 1), info.param.ranks);
                         });

TEST(CudaNccl, ALibraryThatIsNotThereOrTooOldIsOneLine) {
  const auto none = cuda::Nccl::open("libnot-there.so.2");
  ASSERT_FALSE(none.is_ok());
  EXPECT_NE(none.status().message().find("several ranks on cuda need NCCL: libnot-there.so.2"), std::string::npos)
      << none.status().message();
  {
    const Setting old("NCCL_STAND_IN_VERSION", "2804");
    const auto opened = cuda::Nccl::open(stand_in().nccl);
    ASSERT_FALSE(opened.is_ok());
    EXPECT_EQ(opened.status().message(),
              "NCCL 2.8.4 is older than 2.14.0, the first whose calls do not wait for other ranks");
  }
  const auto good = cuda::Nccl::open(stand_in().nccl);
  ASSERT_TRUE(good.is_ok()) << good.status().message();
  EXPECT_EQ((*good)->version(), "2.20.5");
}

TEST(CudaNccl, TwoRanksOnOneGpuAreToldSo) {
  const Setting fault("NCCL_STAND_IN_FAULT", "duplicate");
  const auto world =
      testing_support::open_ranked(REPRISE_SOURCE_DIR "/tests/data/models/qwen3_tied", small_setup(DType::BF16), 2);
  ASSERT_FALSE(world.is_ok());
  EXPECT_NE(world.status().message().find("two ranks use one GPU; each needs its own (CUDA_VISIBLE_DEVICES)"),
            std::string::npos)
      << world.status().message();
}

TEST(CudaNccl, RanksThatDoNotMeetAreGivenUp) {
  const Setting fault("NCCL_STAND_IN_FAULT", "absent");
  const testing_support::RankedHosts host({2}, std::chrono::seconds(1));
  host.run([&](ranks::Member& member) {
    const auto ranks = join(host.member(member.world().rank));
    ASSERT_FALSE(ranks.is_ok());
    EXPECT_NE(ranks.status().message().find("waited 1 s for the other ranks to meet over NCCL (`dist_timeout`)"),
              std::string::npos)
        << ranks.status().message();
  });
}

// A call that one rank makes alone is called off when the world ends, on the others as well.
TEST(CudaNccl, ARankThatIsGoneEndsWhatWaitsForIt) {
  const testing_support::RankedHosts host({2});
  std::atomic<bool> joined{false};
  host.run([&](ranks::Member& member) {
    const auto ranks = join(host.member(member.world().rank));
    if (member.world().rank == 0) joined = true;
    ASSERT_TRUE(ranks.is_ok()) << ranks.status().message();
    while (!joined) std::this_thread::yield();
    if (member.world().rank == 1) return member.abort("rank 1 ended: signal 9");
    float from = 1, to[2];
    const char* words = (*ranks)->all_gather(&from, to, sizeof from, nullptr);
    ASSERT_NE(words, nullptr);
    EXPECT_NE(std::string(words).find("rank 1 ended: signal 9"), std::string::npos) << words;
  });
}

// What the links report ends the world, with the rank and NCCL's words.
TEST(CudaNccl, AFailureOfTheLinksEndsTheWorld) {
  const Setting fault("NCCL_STAND_IN_FAULT", "link:2");
  const testing_support::RankedHosts host({2});
  host.run([&](ranks::Member& member) {
    const auto ranks = join(host.member(member.world().rank));
    ASSERT_TRUE(ranks.is_ok()) << ranks.status().message();
    float from = 1, to[2];
    EXPECT_EQ((*ranks)->all_gather(&from, to, sizeof from, nullptr), nullptr);
    EXPECT_NE((*ranks)->all_gather(&from, to, sizeof from, nullptr), nullptr);
    while (!member.aborted()) std::this_thread::yield();
    EXPECT_NE(member.lost().message().find("remote process exited"), std::string::npos) << member.lost().message();
  });
}

// Ranks that call differently are told what each calls.
TEST(CudaNccl, TheStandInTellsCallsThatDiffer) {
  const testing_support::RankedHosts host({2});
  host.run([&](ranks::Member& member) {
    const auto ranks = join(host.member(member.world().rank));
    ASSERT_TRUE(ranks.is_ok()) << ranks.status().message();
    float data[4] = {};
    const char* words =
        member.world().rank == 0 ? (*ranks)->merge(data, 8, nullptr) : (*ranks)->all_gather(data, data + 2, 8, nullptr);
    ASSERT_NE(words, nullptr);
    // The other rank's watcher may have ended the world by then, with the same words.
    const std::string calls = "rank 0 calls ncclAllReduce of 2 numbers of type 2, rank 1 ncclAllGather of 8 of 1";
    EXPECT_TRUE(std::string(words).find(calls) != std::string::npos ||
                member.lost().message().find(calls) != std::string::npos)
        << words << "; " << member.lost().message();
  });
}

}  // namespace
}  // namespace reprise::simt::ranks_test
