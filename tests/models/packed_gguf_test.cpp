// GGUF models whose matrices stay packed, end to end: tiny files built in memory, against the same files unpacked. In
// fp32 every bit must agree, so whatever is wrong with a row's place, a factor or a nibble shows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>

#include "backends/cpu/isa.h"
#include "base/half.h"
#include "checkpoint/helpers.h"
#include "checkpoint/lora.h"
#include "support/tiny_models.h"

namespace reprise::packed_gguf_test {
namespace {

using checkpoint::GgufBuilder;
using checkpoint::Quantization;
using testing_support::all_logits;
using testing_support::same_bits;

enum Type : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23
};
bool is_k(uint32_t type) { return (type >= kQ2_K && type <= kQ6_K) || type == kIQ4_XS; }

constexpr uint64_t kKvHeads = 1, kHeadDim = 32, kVocab = 131;
constexpr uint32_t kLayers = 2;

// Which type each matrix has: by its name without "blk.N." and ".weight", else `type`.
struct File {
  std::string architecture = "llama";
  uint32_t type = kQ8_0;
  bool tied = true;
  std::map<std::string, uint32_t> types = {};
  std::string poisoned = {};  // this tensor's last block
  size_t poison_at = 0;       // gets an infinite factor there
  uint32_t experts = 0;       // so many in every layer, of which a token goes to two, in place of one MLP

  // K types have rows of 256 numbers.
  uint64_t heads() const { return is_k(type) ? 8 : 3; }
  uint64_t hidden() const { return heads() * kHeadDim; }
  uint64_t mlp() const { return is_k(type) ? 256 : 160; }
  uint32_t expert_mlp() const { return is_k(type) ? 256 : 64; }
};

std::string random_matrix(uint32_t type, uint64_t rows, uint64_t columns, std::mt19937& gen) {
  const auto uniform = [&] { return static_cast<float>(gen()) / 4294967296.0f; };
  std::string out;
  if (type == kF16) {
    for (uint64_t i = 0; i < rows * columns; ++i) checkpoint::put(out, float_to_half((uniform() - 0.5f) * 0.4f));
    return out;
  }
  struct Block {
    size_t elements, bytes, factors_at;
    float factor, middle;  // middle: of the numbers, when the block has a minimum
    bool less = false;     // the minimum is taken away
  };
  static const std::map<uint32_t, Block> kBlocks{{kQ4_0, {32, 18, 0, 0.02f, 0}},
                                                 {kQ4_1, {32, 20, 0, 0.02f, 7.5f}},
                                                 {kQ5_0, {32, 22, 0, 0.01f, 0}},
                                                 {kQ5_1, {32, 24, 0, 0.01f, 15.5f}},
                                                 {kQ8_0, {32, 34, 0, 0.0015f, 0}},
                                                 {kQ2_K, {256, 84, 80, 0.01f, 1.5f, true}},
                                                 {kQ3_K, {256, 110, 108, 0.003f, 0}},
                                                 {kQ4_K, {256, 144, 0, 0.0008f, 7.5f, true}},
                                                 {kQ5_K, {256, 176, 0, 0.0004f, 15.5f, true}},
                                                 {kQ6_K, {256, 210, 208, 0.0002f, 0}},
                                                 {kIQ4_NL, {32, 18, 0, 0.0015f, 0}},
                                                 {kIQ4_XS, {256, 136, 0, 0.0001f, 0}}};
  const Block& b = kBlocks.at(type);
  for (uint64_t i = 0; i < rows * columns / b.elements; ++i) {
    std::string block, factors;
    const float factor = b.factor * (0.5f + uniform()) * (gen() % 2 ? 1.0f : -1.0f);
    checkpoint::put(factors, float_to_half(factor));
    if (b.middle > 0) checkpoint::put(factors, float_to_half((b.less ? factor : -factor) * (b.middle + uniform())));
    while (block.size() < b.bytes) block += static_cast<char>(gen());
    out += block.replace(b.factors_at, factors.size(), factors);
  }
  return out;
}

std::string bytes_of_file(const File& file) {
  GgufBuilder b;
  const std::string& a = file.architecture;
  b.str("general.architecture", a).u32(a + ".block_count", kLayers).u32(a + ".context_length", 256);
  const uint64_t hidden = file.hidden(), heads = file.heads(), mlp = file.mlp();
  const uint32_t expert_mlp = file.expert_mlp();
  b.u32(a + ".embedding_length", static_cast<uint32_t>(hidden))
      .u32(a + ".feed_forward_length", static_cast<uint32_t>(mlp));
  b.u32(a + ".attention.head_count", static_cast<uint32_t>(heads)).u32(a + ".attention.head_count_kv", kKvHeads);
  b.f32(a + ".attention.layer_norm_rms_epsilon", 1e-5f).f32(a + ".rope.freq_base", 10000.0f);
  if (file.experts > 0) {
    b.u32(a + ".expert_count", file.experts).u32(a + ".expert_used_count", 2);
    b.u32(a + ".expert_feed_forward_length", expert_mlp).u32(a + ".attention.key_length", kHeadDim);
    b.u32(a + ".attention.value_length", kHeadDim);
  }
  std::mt19937 gen(11);
  const auto vector = [&](const std::string& name, uint64_t n, float middle) {
    std::vector<float> v(n);
    for (float& x : v) x = middle + static_cast<float>(gen()) / 4294967296.0f * 0.2f;
    b.f32_tensor(name, {n}, v);
  };
  const auto matrix = [&](const std::string& scope, const std::string& name, uint64_t rows, uint64_t columns) {
    const auto it = file.types.find(name);
    const uint32_t type = it == file.types.end() ? file.type : it->second;
    std::string bytes = random_matrix(type, rows, columns, gen);
    const std::string full = scope + name + ".weight";
    if (full == file.poisoned) {
      const size_t block = bytes.size() / (rows * columns / (is_k(type) ? 256 : 32));
      bytes[bytes.size() - block + file.poison_at] = '\x00';
      bytes[bytes.size() - block + file.poison_at + 1] = '\x7c';
    }
    b.tensor(full, {columns, rows}, type, bytes);
  };
  matrix("", "token_embd", kVocab, hidden);
  if (!file.tied) matrix("", "output", kVocab, hidden);
  vector("output_norm.weight", hidden, 1);
  for (uint32_t i = 0; i < kLayers; ++i) {
    const std::string s = fmt::format("blk.{}.", i);
    vector(s + "attn_norm.weight", hidden, 1);
    vector(s + "ffn_norm.weight", hidden, 1);
    matrix(s, "attn_q", heads * kHeadDim, hidden);
    matrix(s, "attn_k", kKvHeads * kHeadDim, hidden);
    matrix(s, "attn_v", kKvHeads * kHeadDim, hidden);
    matrix(s, "attn_output", hidden, heads * kHeadDim);
    if (file.experts > 0) {
      const auto stack = [&](const std::string& name, uint64_t rows, uint64_t columns) {
        b.tensor(s + name + ".weight", {columns, rows, file.experts}, file.type,
                 random_matrix(file.type, file.experts * rows, columns, gen));
      };
      std::vector<float> router(file.experts * hidden);
      for (float& x : router) x = static_cast<float>(gen()) / 4294967296.0f - 0.5f;
      b.f32_tensor(s + "ffn_gate_inp.weight", {hidden, file.experts}, router);
      stack("ffn_gate_exps", expert_mlp, hidden);
      stack("ffn_up_exps", expert_mlp, hidden);
      stack("ffn_down_exps", hidden, expert_mlp);
      vector(s + "attn_q_norm.weight", kHeadDim, 1);
      vector(s + "attn_k_norm.weight", kHeadDim, 1);
      continue;
    }
    matrix(s, "ffn_gate", mlp, hidden);
    matrix(s, "ffn_up", mlp, hidden);
    matrix(s, "ffn_down", hidden, mlp);
    if (a == "qwen2") {
      vector(s + "attn_q.bias", heads * kHeadDim, 0);
      vector(s + "attn_k.bias", kKvHeads * kHeadDim, 0);
      vector(s + "attn_v.bias", kKvHeads * kHeadDim, 0);
    }
  }
  return b.finish();
}

struct Options {
  Quantization quantization = Quantization::Auto;
  std::optional<DType> dtype = DType::F32;
  std::string isa = "auto";
  int threads = 2;
  engine::GraphPolicy policy = engine::GraphPolicy::Auto;
  GraphMode decode = GraphMode::Whole;
  std::vector<std::string> passes{"all"};
  std::string caches = {};
  std::string adapter = {};  // the folder of a LoRA adapter, loaded into slot 1
  bool int8_activations = false;
};

Result<std::unique_ptr<engine::Engine>> open(const std::string& path, const Options& s) {
  ASSIGN_OR_RETURN(Platform platform, make_platform({DeviceKind::Cpu, s.isa, s.threads, false}));
  engine::EngineOptions o;
  o.model_path = path;
  o.dtype = s.dtype;
  o.quantization = s.quantization;
  o.int8_activations = s.int8_activations;
  o.chunked_prefill_size = 64;
  o.max_running_requests = 16;
  o.max_total_tokens = 2048;
  o.graph.policy = s.policy;
  o.graph.decode = s.decode;
  o.graph.pipeline.passes.enable = s.passes;
  if (!s.caches.empty()) {
    o.graph.plan_cache = s.caches + "/plans";
    o.weight_cache = s.caches + "/weights";
  }
  if (s.adapter.empty()) return engine::Engine::create(o, std::move(platform));
  o.max_loras = 1;
  ASSIGN_OR_RETURN(auto e, engine::Engine::create(o, std::move(platform)));
  ASSIGN_OR_RETURN(const checkpoint::LoraAdapter adapter, checkpoint::LoraAdapter::open(s.adapter));
  ASSIGN_OR_RETURN(const engine::PreparedAdapter prepared, e->adapters().prepare(adapter));
  RETURN_IF_ERROR(e->adapters().load(prepared).status());
  return e;
}

// An adapter of rank 4, as PEFT writes it, for layers of all widths.
void write_adapter(const std::string& folder, const File& file) {
  const uint64_t hidden = file.hidden(), heads = file.heads(), mlp = file.mlp();
  constexpr uint64_t kRank = 4;
  std::mt19937 gen(5);
  std::string header, numbers;
  const auto tensor = [&](const std::string& module, const char* part, uint64_t rows, uint64_t columns) {
    const size_t begin = numbers.size();
    for (uint64_t i = 0; i < rows * columns; ++i)
      checkpoint::put(numbers, static_cast<float>(gen()) / 4294967296.0f - 0.5f);
    header += fmt::format(
        R"({}"base_model.model.{}.lora_{}.weight": {{"dtype": "F32", "shape": [{}, {}], "data_offsets": [{}, {}]}})",
        header.empty() ? "" : ", ", module, part, rows, columns, begin, numbers.size());
  };
  for (uint32_t i = 0; i < kLayers; ++i)
    for (const auto& [name, out, in] : {std::tuple{"self_attn.q_proj", heads * kHeadDim, hidden},
                                        {"self_attn.v_proj", kKvHeads * kHeadDim, hidden},
                                        {"self_attn.o_proj", hidden, heads * kHeadDim},
                                        {"mlp.gate_proj", mlp, hidden},
                                        {"mlp.down_proj", hidden, mlp}}) {
      const std::string module = fmt::format("model.layers.{}.{}", i, name);
      tensor(module, "A", kRank, in);
      tensor(module, "B", out, kRank);
    }
  header = "{" + header + "}";
  std::string bytes;
  checkpoint::put<uint64_t>(bytes, header.size());
  std::ofstream(folder + "/adapter_model.safetensors", std::ios::binary) << bytes << header << numbers;
  std::ofstream(folder + "/adapter_config.json")
      << R"({"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": "all-linear"})";
}

class PackedGguf : public testing::Test {
 protected:
  PackedGguf() {
    static int count = 0;
    folder_ =
        (std::filesystem::path(testing::TempDir()) / fmt::format("reprise_packed_{}_{}", ::getpid(), count++)).string();
    std::filesystem::create_directories(folder_);
  }
  ~PackedGguf() override { std::filesystem::remove_all(folder_); }

  std::string write(const File& file) const {
    const std::string path = folder_ + "/tiny.gguf";
    std::ofstream(path, std::ios::binary) << bytes_of_file(file);
    return path;
  }

  std::string folder_;
};

std::vector<int32_t> some_tokens(size_t n) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>((i * 37 + 11) % kVocab));
  return out;
}

const PassReport* pass(const engine::Engine& e, std::string_view name) {
  for (const PassReport& p : e.passes("decode")->passes)
    if (p.name == name) return &p;
  ADD_FAILURE() << "no pass " << name;
  return nullptr;
}

// As mixes are: some matrices in more bits, some in floats.
File mix() {
  return {.type = kQ4_1,
          .tied = false,
          .types = {{"token_embd", kQ8_0},
                    {"attn_v", kQ8_0},
                    {"attn_output", kQ5_0},
                    {"ffn_gate", kQ5_1},
                    {"ffn_up", kF16},
                    {"ffn_down", kIQ4_NL},
                    {"output", kIQ4_NL}}};
}

std::vector<File> files() {
  std::vector<File> out;
  for (uint32_t type : {kQ8_0, kQ4_0, kQ4_1})
    for (bool tied : {true, false}) out.push_back({.type = type, .tied = tied});
  out.push_back({.architecture = "qwen2", .type = kQ4_1});
  out.push_back(mix());
  // As Q4_K_M files of small models are.
  out.push_back(
      {.type = kQ4_K, .types = {{"token_embd", kQ6_K}, {"attn_k", kQ5_K}, {"attn_v", kQ6_K}, {"ffn_down", kQ6_K}}});
  // And Q2_K files, with one more type.
  out.push_back({.type = kQ2_K,
                 .types = {{"token_embd", kQ6_K}, {"attn_v", kQ3_K}, {"attn_output", kIQ4_XS}, {"ffn_down", kQ3_K}}});
  return out;
}

TEST_F(PackedGguf, AnAdapterAddsToPackedRowsWhatItAddsToUnpackedOnes) {
  const auto tokens = some_tokens(61);
  for (const File& file : files()) {
    SCOPED_TRACE(fmt::format("{} {} {}", file.architecture, file.type, file.tied));
    write_adapter(folder_, file);
    const std::string path = write(file);
    auto packed = open(path, {.adapter = folder_});
    auto plain = open(path, {.quantization = Quantization::None, .adapter = folder_});
    ASSERT_TRUE(packed.is_ok()) << packed.status().message();
    ASSERT_TRUE(plain.is_ok()) << plain.status().message();
    const auto want = all_logits(**plain, tokens, 64, 1), base = all_logits(**plain, tokens, 64);
    EXPECT_FALSE(same_bits(want, base));
    for (int64_t chunk : {64, 1}) EXPECT_TRUE(same_bits(want, all_logits(**packed, tokens, chunk, 1))) << chunk;
    EXPECT_TRUE(same_bits(base, all_logits(**packed, tokens, 64)));
    EXPECT_EQ((*packed)->options().quantization, Quantization::Gguf);
  }
}

TEST_F(PackedGguf, Fp32HasTheBitsOfTheUnpackedFile) {
  const auto tokens = some_tokens(61);
  for (const File& file : files())
    for (cpu::Isa isa : cpu::supported_isas()) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", file.architecture, file.type, file.tied, cpu::isa_name(isa)));
      const std::string path = write(file);
      Options options{.isa = std::string(cpu::isa_name(isa))};
      auto packed = open(path, options);
      options.quantization = Quantization::None;
      auto plain = open(path, options);
      ASSERT_TRUE(packed.is_ok()) << packed.status().message();
      ASSERT_TRUE(plain.is_ok()) << plain.status().message();
      const auto want = all_logits(**plain, tokens, 64);
      for (int64_t chunk : {64, 1, 5}) EXPECT_TRUE(same_bits(want, all_logits(**packed, tokens, chunk))) << chunk;
      EXPECT_EQ((*packed)->options().quantization, Quantization::Gguf);
      EXPECT_EQ((*plain)->options().quantization, Quantization::None);
      const size_t tenths = file.types.empty() ? 4 : 7;  // of mixes some is unpacked
      EXPECT_LT((*packed)->memory().weight_bytes, (*plain)->memory().weight_bytes * tenths / 10);
      EXPECT_LT((*packed)->weight_bytes_per_step(), (*plain)->weight_bytes_per_step() * tenths / 10);
    }
}

TEST_F(PackedGguf, AutoIsBf16WhereWeightsStayPackedAndTheDotProductIsFast) {
  const std::string path = write({});
  std::vector<cpu::Isa> isas = cpu::supported_isas();
  if (cpu::parse_isa("amx-blocks")) isas.push_back(cpu::Isa::AmxBlocks);
  for (cpu::Isa isa : isas)
    for (Quantization quantization : {Quantization::Auto, Quantization::None}) {
      const Options options{.quantization = quantization, .dtype = {}, .isa = std::string(cpu::isa_name(isa))};
      const auto e = open(path, options);
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      const bool dots = cpu::has_block_tiles(isa) || (cpu::is_avx512(isa) && cpu::bf16_dot_is_fast());
      EXPECT_EQ((*e)->options().dtype, dots && quantization == Quantization::Auto ? DType::BF16 : DType::F32)
          << options.isa;
    }
}

// One packed matrix does not make a file packed: the others would be rounded.
TEST_F(PackedGguf, AutoIsFp32WhereMostWeightsAreUnpacked) {
  const std::string path = write({.type = kF16, .types = {{"ffn_down", kQ8_0}}});
  for (cpu::Isa isa : cpu::supported_isas()) {
    const auto e = open(path, {.dtype = {}, .isa = std::string(cpu::isa_name(isa))});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    EXPECT_EQ((*e)->options().quantization, Quantization::Gguf);
    EXPECT_EQ((*e)->options().dtype, DType::F32) << cpu::isa_name(isa);
  }
}

// The report says what was done: Ascend has no kernels on packed weights.
TEST_F(PackedGguf, WhatADeviceUnpacksIsReportedAsUnpacked) {
  engine::EngineOptions o;
  o.model_path = write({});
  o.chunked_prefill_size = 16;
  o.max_running_requests = 1;
  o.max_total_tokens = 256;
  for (DeviceKind kind : {DeviceKind::Cpu, DeviceKind::Ascend}) {
    DeviceOptions device;
    device.kind = kind;
    device.ascend_runtime = "sim";
    auto platform = make_platform(device);
    ASSERT_TRUE(platform.is_ok()) << platform.status().message();
    testing::internal::CaptureStderr();
    const auto e = engine::Engine::create(o, std::move(*platform));
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const size_t kept = log.find("weights: gguf ("), unpacked = log.find("weights: gguf (no kernels, so unpacked: ");
    EXPECT_NE(kept, std::string::npos) << log;
    EXPECT_EQ(unpacked != std::string::npos, kind == DeviceKind::Ascend) << log;
    EXPECT_EQ(log.find("kept packed") != std::string::npos, kind == DeviceKind::Cpu) << log;
  }
}

// Activations in int8 of the mixes alone: in fp32 on the first instruction set, in bf16 on the last.
bool worth_int8(const File& file, DType dtype, cpu::Isa isa) {
  const auto sets = cpu::supported_isas();
  return !file.types.empty() &&
         ((dtype == DType::F32 && isa == sets.front()) || (dtype == DType::BF16 && isa == sets.back()));
}

TEST_F(PackedGguf, SameBitsInAllModesThreadsChunksBatchesAndPasses) {
  const auto tokens = some_tokens(45);
  struct Case {
    File file;
    DType dtype;
    cpu::Isa isa;
    bool int8;
  };
  std::vector<Case> cases;
  for (const File& file : files())
    for (DType dtype : {DType::F32, DType::BF16, DType::F16})
      for (cpu::Isa isa : cpu::supported_isas()) {
        cases.push_back({file, dtype, isa, false});
        if (worth_int8(file, dtype, isa)) cases.push_back({file, dtype, isa, true});
      }
  for (const auto& [file, dtype, isa, int8] : cases) {
    // Enough of each for 16 bits: the formats with heads of their own in bf16, the mix in both.
    const bool mix = !file.types.empty();
    if (dtype != DType::F32 && !mix && (file.tied || dtype == DType::F16)) continue;
    if (dtype == DType::F16 && isa != cpu::supported_isas().back()) continue;
    SCOPED_TRACE(fmt::format("{} {} {} {} {} {}", file.architecture, file.type, file.tied, dtype_name(dtype),
                             cpu::isa_name(isa), int8));
    const std::string path = write(file);
    const Options setup{.dtype = dtype, .isa = std::string(cpu::isa_name(isa)), .int8_activations = int8};
    auto e = open(path, setup);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    std::vector<Options> others(5, setup);
    others[0].threads = 1;
    others[1].threads = 3;
    others[2].policy = engine::GraphPolicy::Off;
    others[3].passes = {"none"};
    others[4].decode = GraphMode::Piecewise;
    const auto expected = testing_support::same_logits_everywhere(
        **e, tokens, others, [&](const Options& other) { return open(path, other); });
    // All prefixes at once, one token each; the greedy program has the same head.
    std::vector<engine::Sequence> sequences;
    for (size_t n = 1; n <= 13; ++n) sequences.emplace_back(some_tokens(n * 3));
    std::vector<engine::StepItem> items;
    for (auto& s : sequences) {
      ASSERT_TRUE((*e)->reserve(s, s.size()).is_ok());
      const engine::StepItem head{&s, s.size() - 1};
      ASSERT_TRUE((*e)->step({&head, 1}).is_ok());
      items.push_back({&s, 1, 1});
    }
    auto logits = (*e)->step(items);
    ASSERT_TRUE(logits.is_ok()) << logits.status().message();
    std::vector<int64_t> best;
    for (size_t i = 0; i < items.size(); ++i) {
      const auto row = logits->subspan(i * kVocab, kVocab);
      EXPECT_TRUE(same_bits(row, std::span(expected).subspan((3 * i + 2) * kVocab, kVocab))) << i;
      best.push_back(std::max_element(row.begin(), row.end()) - row.begin());
    }
    for (auto& s : sequences) (*e)->release(s);
    std::vector<engine::StepItem> greedy;
    for (auto& s : sequences) {
      ASSERT_TRUE((*e)->reserve(s, s.size()).is_ok());
      const engine::StepItem head{&s, s.size() - 1};
      ASSERT_TRUE((*e)->step({&head, 1}).is_ok());
      greedy.push_back({&s, 1, 1});
    }
    auto chosen = (*e)->step_greedy(greedy);
    ASSERT_TRUE(chosen.is_ok()) << chosen.status().message();
    for (size_t i = 0; i < greedy.size(); ++i) EXPECT_EQ((*chosen)[i], best[i]) << i;
    for (auto& s : sequences) (*e)->release(s);
    if (HasFailure()) return;
  }
}

// The length of the difference beside the length of the first: 1.4 of numbers that have nothing to do with each other.
double distance(std::span<const float> a, std::span<const float> b) {
  double different = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    different += d * d;
    all += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  return std::sqrt(different / all);
}

// Rounded to 8 bits, and to nothing worse: a wrong sum is not near. Experts and adapters as well.
TEST_F(PackedGguf, Int8ActivationsAreNearTheOthers) {
  const auto tokens = some_tokens(40);
  std::vector<File> all = files();
  for (uint32_t type : {kQ8_0, kQ4_K, kQ6_K}) all.push_back({.architecture = "qwen3moe", .type = type, .experts = 5});
  for (const File& file : all) {
    SCOPED_TRACE(fmt::format("{} {} {}", file.architecture, file.type, file.experts));
    const std::string path = write(file);
    if (file.experts == 0) write_adapter(folder_, file);
    const std::string adapter = file.experts == 0 ? folder_ : "";
    testing::internal::CaptureStderr();
    auto int8 = open(path, {.adapter = adapter, .int8_activations = true}), whole = open(path, {.adapter = adapter});
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(int8.is_ok()) << int8.status().message();
    ASSERT_TRUE(whole.is_ok()) << whole.status().message();
    EXPECT_NE(log.find("kept packed, activations in int8"), std::string::npos) << log;
    for (int32_t slot : {0, 1}) {
      if (slot == 1 && adapter.empty()) continue;
      const auto a = all_logits(**whole, tokens, 64, slot), b = all_logits(**int8, tokens, 64, slot);
      EXPECT_FALSE(same_bits(a, b));
      EXPECT_LT(distance(a, b), 0.1);
    }
    const std::string graph = (*int8)->graph_text();
    EXPECT_EQ(graph.find("activations=\"same\""), std::string::npos) << graph;
  }
}

TEST_F(PackedGguf, Int8ActivationsWithoutBlocksAreRefused) {
  const std::string plain = write({.type = kF16});
  const auto floats = open(plain, {.int8_activations = true});
  const std::string packed = write({});
  const auto unpacked = open(packed, {.quantization = Quantization::None, .int8_activations = true});
  engine::EngineOptions o;
  o.model_path = packed;
  o.int8_activations = true;
  o.max_total_tokens = 256;
  DeviceOptions device;
  device.kind = DeviceKind::Ascend;
  device.ascend_runtime = "sim";
  auto platform = make_platform(device);
  ASSERT_TRUE(platform.is_ok()) << platform.status().message();
  const auto ascend = engine::Engine::create(o, std::move(*platform));
  for (const auto* e : {&floats, &unpacked, &ascend}) {
    ASSERT_FALSE(e->is_ok());
    EXPECT_NE(e->status().message().find("`block_activations` int8: no weights of this model stay in GGUF or MXFP4 "
                                         "blocks on this device; allowed: auto"),
              std::string::npos)
        << e->status().message();
  }
}

TEST_F(PackedGguf, EveryMatrixStaysAndParallelOnesAreJoined) {
  for (const File& file : files()) {
    if (!file.types.empty()) continue;
    auto e = open(write(file), {.dtype = DType::BF16});
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const PassReport* quantise = pass(**e, "quantise_linears");
    EXPECT_EQ(quantise->matched, 7 * kLayers + (file.tied ? 1 : 2));
    EXPECT_EQ(quantise->refusals, 0);
    EXPECT_EQ(pass(**e, "pack_parallel_linears")->matched, 2 * kLayers);
  }
}

// Experts as well, each from its own rows of the stack.
TEST_F(PackedGguf, ExpertsStay) {
  const auto tokens = some_tokens(40);
  for (uint32_t type : {kQ8_0, kQ5_1, kIQ4_NL, kQ2_K, kQ3_K, kQ4_K, kQ6_K, kIQ4_XS}) {
    const std::string path = write({.architecture = "qwen3moe", .type = type, .experts = 5});
    auto packed = open(path, {}), plain = open(path, {.quantization = Quantization::None});
    ASSERT_TRUE(packed.is_ok()) << packed.status().message();
    ASSERT_TRUE(plain.is_ok()) << plain.status().message();
    EXPECT_EQ((*packed)->config().architecture, "Qwen3MoeForCausalLM");
    EXPECT_TRUE(same_bits(all_logits(**plain, tokens, 64), all_logits(**packed, tokens, 64))) << type;
    const PassReport* quantise = pass(**packed, "quantise_linears");
    EXPECT_EQ(quantise->matched, 7 * kLayers + 1) << "q, k, v, o, gate, up, down; the table";
    EXPECT_LT((*packed)->memory().weight_bytes, (*plain)->memory().weight_bytes * 4 / 10);
    if (type != kIQ4_NL) continue;
    auto int8 = open(path, {.quantization = Quantization::W8A8Int8});
    ASSERT_TRUE(int8.is_ok()) << int8.status().message();
    EXPECT_LT((*int8)->memory().weight_bytes, (*plain)->memory().weight_bytes / 2);
  }
}

TEST_F(PackedGguf, OnlyLinearsOfOneFormatAreJoined) {
  auto e = open(write(mix()), {});
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const PassReport* quantise = pass(**e, "quantise_linears");
  EXPECT_EQ(quantise->matched, 6 * kLayers + 2) << "q, k, v, o, gate, down; the table and the head";
  EXPECT_EQ(quantise->refusals, 0);
  const PassReport* pack = pass(**e, "pack_parallel_linears");
  EXPECT_EQ(pack->matched, kLayers);
  EXPECT_EQ(pack->refusals, 2 * kLayers) << "v; gate beside up";
  std::string reasons;
  for (const PassRemark& r : pack->refused) reasons += r.reason + "\n";
  for (const char* words : {"its format is \"q8_0\", and that of the first linear of its input \"q4_1\"",
                            "it is a linear, and the first linear of its input a linear_blocks"})
    EXPECT_NE(reasons.find(words), std::string::npos) << reasons;
}

TEST_F(PackedGguf, ABrokenFactorIsAnErrorThatNamesTheTensor) {
  for (const auto& [type, at] : {std::pair{kQ8_0, 0},
                                 {kQ4_0, 0},
                                 {kQ4_1, 0},
                                 {kQ4_1, 2},
                                 {kQ2_K, 82},
                                 {kQ3_K, 108},
                                 {kQ4_K, 2},
                                 {kQ6_K, 208},
                                 {kIQ4_XS, 0}})
    for (const auto& [gguf, name] : {std::pair{"blk.1.ffn_up.weight", "model.layers.1.mlp.up_proj.weight"},
                                     {"token_embd.weight", "model.embed_tokens.weight"}}) {
      const std::string path = write({.type = type, .poisoned = gguf, .poison_at = static_cast<size_t>(at)});
      for (auto quantization : {Quantization::Auto, Quantization::None}) {
        const auto e = open(path, {.quantization = quantization});
        ASSERT_FALSE(e.is_ok()) << type << " " << gguf;
        EXPECT_NE(e.status().message().find(name), std::string::npos) << e.status().message();
      }
    }
}

// Neither cache takes the unpacked file's plan or weights for the packed one's; a second start reads them.
TEST_F(PackedGguf, CachesGiveTheSameBits) {
  const auto tokens = some_tokens(40);
  size_t weights = 0;
  for (const File& file : {File{.type = kQ4_1}, mix()}) {
    const std::string path = write(file);
    const std::string caches = fmt::format("{}/{}", folder_, weights++);
    for (auto quantization : {Quantization::None, Quantization::Auto})
      for (DType dtype : {DType::F32, DType::BF16}) {
        auto fresh = open(path, {.quantization = quantization, .dtype = dtype});
        ASSERT_TRUE(fresh.is_ok()) << fresh.status().message();
        const auto expected = all_logits(**fresh, tokens, 64);
        for (int start = 0; start < 2; ++start) {
          auto e = open(path, {.quantization = quantization, .dtype = dtype, .caches = caches});
          ASSERT_TRUE(e.is_ok()) << e.status().message();
          EXPECT_TRUE(same_bits(expected, all_logits(**e, tokens, 7))) << start;
        }
      }
    const std::filesystem::directory_iterator cached(caches + "/weights");
    EXPECT_EQ(std::distance(begin(cached), end(cached)), 4) << "one for each dtype, packed or not";
  }
}

TEST_F(PackedGguf, AskedForWithoutSuchBlocksIsAnError) {
  const std::string path = write({.type = kF16});
  auto plain = open(path, {});
  ASSERT_TRUE(plain.is_ok()) << plain.status().message();
  EXPECT_EQ((*plain)->options().quantization, Quantization::None);
  for (const std::string& model : {path, testing_support::tiny_model_path("qwen3_tied")}) {
    const auto e = open(model, {.quantization = Quantization::Gguf});
    ASSERT_FALSE(e.is_ok()) << model;
    EXPECT_NE(e.status().message().find("no matrix in a GGUF block type"), std::string::npos) << e.status().message();
    EXPECT_NE(e.status().message().find("allowed: auto, none"), std::string::npos) << e.status().message();
  }
}

}  // namespace
}  // namespace reprise::packed_gguf_test
