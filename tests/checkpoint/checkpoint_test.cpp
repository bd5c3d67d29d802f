#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/half.h"
#include "checkpoint/convert.h"
#include "checkpoint/gguf_names.h"
#include "checkpoint/helpers.h"
#include "checkpoint/shard_index.h"
#include "models/model.h"

namespace reprise::checkpoint::checkpoint_test {
namespace {

namespace fs = std::filesystem;

std::string one_tensor(std::string_view name, int value) {
  std::string out =
      safetensors_bytes(fmt::format(R"({{"{}":{{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}}})", name), 0);
  put<int32_t>(out, value);
  return out;
}

TEST(Checkpoint, EveryModelOfTheTestDataOpens) {
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(data_dir() + "/models")) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().string());
    auto c = Checkpoint::open(entry.path().string(), models::families());
    ASSERT_TRUE(c.is_ok()) << c.status().message();
    ++seen;
    for (const CheckpointTensor& t : c->tensors()) {
      std::vector<float> out(static_cast<size_t>(t.elements()));
      uint64_t bad = 0;
      const Status s = c->read_rows(t, 0, t.rows(), DType::F32, out.data(), &bad);
      ASSERT_TRUE(s.is_ok()) << s.message();
      EXPECT_EQ(bad, 0u);
    }
    EXPECT_NE(c->find("model.embed_tokens.weight"), nullptr);
  }
  EXPECT_GE(seen, 10);
}

TEST(Checkpoint, ShardsReadLikeOneFile) {
  auto c = Checkpoint::open(data_dir() + "/models/llama_gqa4_sharded", models::families());
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->total_bytes(), 245632u);
  const CheckpointTensor* t = c->find("model.layers.1.mlp.up_proj.weight");
  ASSERT_NE(t, nullptr);
  std::vector<uint16_t> all(static_cast<size_t>(t->elements())), rows(static_cast<size_t>(2 * t->row_elements()));
  ASSERT_TRUE(c->read_rows(*t, 0, t->rows(), DType::BF16, all.data()).is_ok());
  ASSERT_TRUE(c->read_rows(t->name, 3, 2, DType::BF16, rows.data()).is_ok());
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), all.begin() + 3 * t->row_elements()));
  EXPECT_EQ(std::memcmp(all.data(), c->raw(*t).data(), t->bytes), 0);
  c->release(*t);  // the pages come back from the file
  std::vector<uint16_t> again(all.size());
  ASSERT_TRUE(c->read_rows(*t, 0, t->rows(), DType::BF16, again.data()).is_ok());
  EXPECT_EQ(all, again);
}

TEST(Checkpoint, ShardIndexErrors) {
  const auto index = [](std::string_view map) { return fmt::format(R"({{"metadata":{{}},"weight_map":{}}})", map); };
  const auto open = [&](std::string_view map) {
    const TemporaryFolder f;
    f.write("model-1.safetensors", one_tensor("a", 1));
    f.write("model-2.safetensors", one_tensor("b", 2));
    f.write("model.safetensors.index.json", index(map));
    return Checkpoint::open(f.path, models::families()).status();
  };
  EXPECT_TRUE(open(R"({"a":"model-1.safetensors","b":"model-2.safetensors"})").is_ok());
  expect_error(open(R"({"a":"model-2.safetensors","b":"model-1.safetensors"})"), {"index places it in"});
  expect_error(open(R"({"a":"model-1.safetensors","b":"model-1.safetensors"})"), {"not in the shard", "b"});
  expect_error(open(R"({"a":"model-1.safetensors","c":"model-2.safetensors"})"), {"does not list", "b (in"});
  expect_error(open(R"({"a":"model-1.safetensors","b":"model-3.safetensors","c":"model-4.safetensors"})"),
               {"2 of 3 shards are missing", "model-3", "model-4"});
  expect_error(open(R"({"a":"model-1.safetensors","a":"model-2.safetensors"})"), {"\"a\" is given twice"});
  for (std::string_view path : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", ".safetensors", "",
                                ".hidden.safetensors", "x.bin", "a\\\\b.safetensors", "a\\u0000.safetensors"})
    expect_error(open(fmt::format(R"({{"a":"{}"}})", path)), {"weight_map \"a\"", "is not allowed"});
  expect_error(open(R"({"a":1})"), {"\"a\" is not a file name"});
  expect_error(open("{}"), {"weight_map is empty"});
  expect_error(open("[]"), {"no object \"weight_map\""});
  expect_error(parse_shard_index("[]", "i").status(), {"no object \"weight_map\""});
  expect_error(parse_shard_index("{", "i").status(), {"not valid JSON"});
}

TEST(Checkpoint, WrongPaths) {
  const TemporaryFolder f;
  expect_error(Checkpoint::open(f.path, models::families()).status(), {"no weights", "model.safetensors.index.json"});
  expect_error(Checkpoint::open(f.path + "/none.gguf", models::families()).status(), {"none.gguf", "No such file"});
  expect_error(Checkpoint::open(f.write("text.txt", "hello, this is no model"), models::families()).status(),
               {"not a GGUF file"});
  expect_error(Checkpoint::open(f.write("empty.gguf", ""), models::families()).status(), {"empty.gguf"});
  expect_error(Checkpoint::open(f.write("empty.safetensors", ""), models::families()).status(), {"empty.safetensors"});
}

TEST(Checkpoint, ReadErrors) {
  std::string bytes = safetensors_bytes(
      R"({"abc":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]},"f8":{"dtype":"F8_E4M3","shape":[4],)"
      R"("data_offsets":[32,36]},)"
      R"("i":{"dtype":"I8","shape":[4],"data_offsets":[36,40]}})",
      40);
  auto c =
      Checkpoint::from_safetensors(std::move(SafetensorsFile::parse(bytes_of(bytes), "t")).value(), models::families());
  ASSERT_TRUE(c.is_ok());
  std::vector<float> out(64);
  for (auto [first, rows] :
       {std::pair<int64_t, int64_t>{-1, 1}, {0, 5}, {4, 1}, {0, -1}, {INT64_MAX, 1}, {1, INT64_MAX}})
    expect_error(c->read_rows("abc", first, rows, DType::F32, out.data()), {"\"abc\"", "rows"});
  EXPECT_TRUE(c->read_rows("abc", 4, 0, DType::F32, out.data()).is_ok());
  expect_error(c->read_rows("abd", 0, 1, DType::F32, out.data()), {"no tensor \"abd\"", "close names: abc"});
  expect_error(c->read_rows("f8", 0, 1, DType::F32, out.data()), {"\"f8\"", "F8_E4M3", "cannot be read"});
  expect_error(c->read_rows("i", 0, 1, DType::F32, out.data()), {"\"i\"", "I8 cannot be read as f32", "allowed: i8"});
  expect_error(c->read_rows("abc", 0, 1, DType::I32, out.data()), {"\"abc\"", "allowed: f32, f16, bf16"});
  std::vector<uint8_t> raw(4);
  ASSERT_TRUE(c->read_rows("i", 0, 1, DType::I8, raw.data()).is_ok());
  EXPECT_EQ(std::memcmp(raw.data(), bytes.data() + bytes.size() - 4, 4), 0);
}

TEST(Checkpoint, NonFiniteWeightsAreNamed) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values(10000, 1.5f);
  values[3] = nan;
  values[4095] = inf;
  values[9999] = -inf;
  const std::string bytes = GgufBuilder().f32_tensor("w", {100, 100}, values).finish();
  auto c = Checkpoint::from_gguf(std::move(GgufFile::parse(bytes_of(bytes), "t.gguf")).value(), models::families());
  ASSERT_TRUE(c.is_ok());
  std::vector<float> out(10000);
  for (DType t : {DType::F32, DType::F16, DType::BF16}) {
    uint64_t bad = 0;
    ASSERT_TRUE(c->read_rows("w", 0, 100, t, out.data(), &bad).is_ok());
    EXPECT_EQ(bad, 3u) << dtype_name(t);
  }
  expect_error(c->require_finite(*c->find("w"), 3), {"t.gguf", "\"w\"", "3 values of 10000", "NaN"});
  EXPECT_TRUE(c->require_finite(*c->find("w"), 0).is_ok());
}

// What llama.cpp's converter does to q and k: halves of each head interleaved.
std::vector<float> interleave(const std::vector<float>& hf, int64_t rows, int64_t cols, int64_t heads) {
  std::vector<float> out(hf.size());
  const int64_t dim = rows / heads;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t j = 0; j < dim / 2; ++j)
        for (int64_t c = 0; c < cols; ++c)
          out[static_cast<size_t>((h * dim + 2 * j + half) * cols + c)] =
              hf[static_cast<size_t>((h * dim + half * dim / 2 + j) * cols + c)];
  return out;
}

TEST(Checkpoint, GgufNamesAndHeadOrder) {
  constexpr int64_t kHeads = 6, kKv = 2, kDim = 8, kCols = 4;
  std::vector<float> q(kHeads * kDim * kCols), k(kKv * kDim * kCols), bias(kHeads * kDim);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i);
  for (size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(1000 + i);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
  const auto build = [&](std::string_view arch, bool swap) {
    GgufBuilder b;
    const std::string prefix(arch);
    b.str("general.architecture", arch).u32(prefix + ".attention.head_count", kHeads);
    b.u32(prefix + ".attention.head_count_kv", kKv);
    b.f32_tensor("blk.0.attn_q.weight", {kCols, kHeads * kDim}, swap ? interleave(q, kHeads * kDim, kCols, kHeads) : q);
    b.f32_tensor("blk.0.attn_k.weight", {kCols, kKv * kDim}, swap ? interleave(k, kKv * kDim, kCols, kKv) : k);
    b.f32_tensor("blk.0.attn_q.bias", {kHeads * kDim}, swap ? interleave(bias, kHeads * kDim, 1, kHeads) : bias);
    b.f32_tensor("rope_freqs.weight", {4}, {1, 1, 1, 1});
    return b.finish();
  };
  for (bool swap : {true, false}) {
    const std::string bytes = build(swap ? "llama" : "qwen2", swap);
    auto c = Checkpoint::from_gguf(std::move(GgufFile::parse(bytes_of(bytes), "t")).value(), models::families());
    ASSERT_TRUE(c.is_ok()) << c.status().message();
    EXPECT_EQ(c->find("blk.0.attn_q.weight"), c->find("model.layers.0.self_attn.q_proj.weight"));
    EXPECT_NE(c->find("rope_freqs.weight"), nullptr);
    std::vector<float> out(q.size());
    ASSERT_TRUE(
        c->read_rows("model.layers.0.self_attn.q_proj.weight", 0, kHeads * kDim, DType::F32, out.data()).is_ok());
    EXPECT_EQ(out, q);
    std::vector<float> part(3 * kCols);
    ASSERT_TRUE(c->read_rows("model.layers.0.self_attn.q_proj.weight", 11, 3, DType::F32, part.data()).is_ok());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), q.begin() + 11 * kCols));
    ASSERT_TRUE(c->read_packed_rows(*c->find("model.layers.0.self_attn.q_proj.weight"), 11, 3, part.data()).is_ok());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), q.begin() + 11 * kCols));
    out.resize(k.size());
    ASSERT_TRUE(c->read_rows("model.layers.0.self_attn.k_proj.weight", 0, kKv * kDim, DType::F32, out.data()).is_ok());
    EXPECT_EQ(out, k);
    out.resize(bias.size());
    ASSERT_TRUE(c->read_rows("model.layers.0.self_attn.q_proj.bias", 0, 1, DType::F32, out.data()).is_ok());
    EXPECT_EQ(out, bias);
  }
}

TEST(Checkpoint, GgufHeadErrors) {
  const auto status = [](const GgufBuilder& b) {
    const std::string bytes = b.finish();
    return Checkpoint::from_gguf(std::move(GgufFile::parse(bytes_of(bytes), "t.gguf")).value(), models::families())
        .status();
  };
  const auto llama = [](uint32_t heads, uint32_t kv) {
    GgufBuilder b;
    b.str("general.architecture", "llama").u32("llama.attention.head_count", heads);
    b.u32("llama.attention.head_count_kv", kv).f32_tensor("blk.0.attn_q.weight", {1, 12}, std::vector<float>(12));
    return b;
  };
  EXPECT_TRUE(status(llama(3, 3)).is_ok());
  expect_error(status(llama(4, 4)), {"blk.0.attn_q.weight", "12 rows are not 4 heads of an even size"});
  expect_error(status(llama(5, 5)), {"12 rows are not 5 heads"});
  expect_error(status(llama(0, 1)), {"llama.attention.head_count", "out of range"});
  expect_error(status(llama(3, 0)), {"llama.attention.head_count_kv", "allowed: 1 to 3"});
  expect_error(status(llama(3, 4)), {"llama.attention.head_count_kv", "allowed: 1 to 3"});
  expect_error(status(GgufBuilder().str("general.architecture", "llama")), {"llama.attention.head_count", "missing"});
  GgufBuilder split;
  split.key("split.count", 2);
  put<uint16_t>(split.metadata, 3);
  expect_error(status(split), {"one of 3 files of a split GGUF model, of which 1 are here"});
  GgufBuilder twice;
  twice.str("general.architecture", "qwen2")
      .f32_tensor("output.weight", {1}, {1})
      .f32_tensor("lm_head.weight", {1}, {1});
  expect_error(status(twice), {"\"lm_head.weight\" is given twice"});
}

// The shape of a model of that architecture.
GgufModelShape shape_of(std::string_view architecture, int64_t heads = 0, int64_t kv_heads = 0) {
  const Families known = models::families();
  const auto found =
      std::find_if(known.list.begin(), known.list.end(), [&](const Family* f) { return f->gguf.name == architecture; });
  return {found == known.list.end() ? GgufFamily() : (*found)->gguf, heads, kv_heads};
}

std::string name_of(std::string_view gguf, const GgufModelShape& model = {}) {
  const auto name = hf_name(gguf, model);
  return name ? name->name : "none";
}

TEST(Checkpoint, GgufNameTable) {
  const GgufModelShape llama = shape_of("llama", 8, 2), qwen = shape_of("qwen3", 8, 2);
  EXPECT_EQ(name_of("blk.12.attn_k.weight", llama), "model.layers.12.self_attn.k_proj.weight");
  EXPECT_EQ(hf_name("blk.12.attn_k.weight", llama)->interleaved_heads, 2);
  EXPECT_EQ(hf_name("blk.12.attn_q.bias", llama)->interleaved_heads, 8);
  EXPECT_EQ(hf_name("blk.12.attn_v.weight", llama)->interleaved_heads, 0);
  EXPECT_EQ(hf_name("blk.12.attn_k.weight", qwen)->interleaved_heads, 0);
  EXPECT_EQ(name_of("token_embd.weight", qwen), "model.embed_tokens.weight");
  for (std::string_view bad :
       {"", ".weight", "blk.weight", "blk.x.ffn_up.weight", "blk.01.ffn_up.weight", "blk.123456.ffn_up.weight",
        "blk.1.ffn_up", "blk.1..weight", "blk.1.ffn_up.scale", "blk.1.token_embd.weight", "attn_q.weight",
        "rope_freqs.weight", "blk.0.ssm_a", "model.layers.0.self_attn.q_proj.weight"})
    EXPECT_EQ(name_of(bad, llama), "none") << bad;
  EXPECT_EQ(name_of("output.weight"), "lm_head.weight");
  EXPECT_EQ(name_of("blk.999.ffn_down.weight"), "model.layers.999.mlp.down_proj.weight");
  EXPECT_EQ(name_of("blk.3.attn_v.bias"), "model.layers.3.self_attn.v_proj.bias");
  // The same word stands for other norms in other families.
  const std::string norm = "blk.3.post_attention_norm.weight";
  EXPECT_EQ(name_of(norm, shape_of("gemma3")), "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(name_of(norm, shape_of("glm4")), "model.layers.3.post_self_attn_layernorm.weight");
  EXPECT_EQ(name_of("blk.3.ffn_norm.weight", shape_of("gemma2")), "model.layers.3.pre_feedforward_layernorm.weight");
  EXPECT_EQ(name_of("blk.3.post_ffw_norm.weight", shape_of("glm4")), "model.layers.3.post_mlp_layernorm.weight");
  EXPECT_EQ(hf_name("output_norm.weight", shape_of("gemma2"))->number, StoredNumber::OneMore);
  EXPECT_EQ(hf_name("output_norm.weight", shape_of("llama"))->number, StoredNumber::Plain);
  EXPECT_EQ(hf_name("blk.0.ssm_norm.weight", shape_of("qwen35"))->number, StoredNumber::Plain);
  EXPECT_EQ(hf_name("blk.0.attn_q_norm.weight", shape_of("qwen35"))->number, StoredNumber::OneMore);
  EXPECT_EQ(hf_name("blk.3.attn_k.weight", shape_of("smollm3", 6, 2))->interleaved_heads, 2);
  EXPECT_EQ(name_of("blk.0.ffn_up_exps.weight"), "model.layers.0.mlp.experts.up_proj.weight");
  // Shared experts have one name in Qwen's models and another in DeepSeek's.
  const GgufModelShape deepseek = shape_of("deepseek2");
  EXPECT_EQ(name_of("blk.1.ffn_up_shexp.weight"), "model.layers.1.mlp.shared_expert.up_proj.weight");
  EXPECT_EQ(name_of("blk.1.ffn_up_shexp.weight", deepseek), "model.layers.1.mlp.shared_experts.up_proj.weight");
  EXPECT_EQ(name_of("blk.1.exp_probs_b.bias", deepseek), "model.layers.1.mlp.gate.e_score_correction_bias");
  EXPECT_EQ(name_of("blk.1.attn_kv_a_mqa.weight", deepseek), "model.layers.1.self_attn.kv_a_proj_with_mqa.weight");
  EXPECT_EQ(name_of("blk.1.ssm_a", shape_of("nemotron_h")), "model.layers.1.mamba.A_log");
  EXPECT_EQ(hf_name("blk.1.ssm_a", shape_of("nemotron_h"))->number, StoredNumber::NegativeExp);
  EXPECT_EQ(name_of("blk.1.ffn_latent_up.weight", shape_of("nemotron_h")), "model.layers.1.mlp.fc2_latent_proj.weight");
  EXPECT_EQ(name_of("blk.1.ffn_up_shexp.weight", shape_of("nemotron_h")),
            "model.layers.1.mlp.shared_experts.up_proj.weight");
  EXPECT_EQ(name_of("blk.1.attn_output_norm.bias", shape_of("bert")),
            "encoder.layer.1.attention.output.LayerNorm.bias");
  EXPECT_EQ(name_of("position_embd.weight", shape_of("bert")), "embeddings.position_embeddings.weight");
  EXPECT_EQ(name_of("cls.output.bias", shape_of("bert")), "classifier.out_proj.bias");
  EXPECT_EQ(name_of("cls.output.weight", shape_of("qwen3")), "score.weight");
  EXPECT_EQ(name_of("blk.1.ssm_dt.bias", shape_of("qwen3next")), "model.layers.1.linear_attn.dt_bias");
  EXPECT_EQ(name_of("blk.1.attn_sinks.weight", shape_of("gpt-oss")), "model.layers.1.self_attn.sinks");
}

TEST(Checkpoint, ManyThreadsReadAtOnce) {
  auto c = Checkpoint::open(data_dir() + "/gguf/quants_v3.gguf", models::families());
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  std::vector<std::vector<float>> got(4);
  std::vector<std::thread> threads;
  for (auto& out : got)
    threads.emplace_back([&] {
      for (const CheckpointTensor& t : c->tensors()) {
        std::vector<float> part(static_cast<size_t>(t.elements()));
        for (int64_t r = 0; r < t.rows(); ++r)
          EXPECT_TRUE(c->read_rows(t, r, 1, DType::F32, part.data() + r * t.row_elements()).is_ok());
        c->release(t);
        out.insert(out.end(), part.begin(), part.end());
      }
    });
  for (auto& t : threads) t.join();
  for (const auto& out : got) EXPECT_EQ(std::memcmp(out.data(), got[0].data(), out.size() * 4), 0);
}

// Bulk conversions against the scalar ones of base/half.h.
TEST(Convert, AllHalves) {
  std::vector<uint16_t> in(65536);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
  std::vector<float> out(in.size());
  f16_to_f32(reinterpret_cast<const uint8_t*>(in.data()), out.data(), in.size());
  for (size_t i = 0; i < in.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(half_to_float(in[i]))) << i;
  bf16_to_f32(reinterpret_cast<const uint8_t*>(in.data()), out.data(), in.size());
  for (size_t i = 0; i < in.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(bf16_to_float(in[i]))) << i;
}

TEST(Convert, FloatsToSixteenBits) {
  // All upper halves with lower halves around the ties, every exponent boundary included.
  std::vector<float> in;
  for (uint32_t high = 0; high < 65536; ++high)
    for (uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xf000u, 0xffffu})
      in.push_back(std::bit_cast<float>(high << 16 | low));
  std::vector<uint16_t> out(in.size());
  f32_to_bf16(in.data(), out.data(), in.size());
  for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], float_to_bf16(in[i])) << std::bit_cast<uint32_t>(in[i]);
  f32_to_f16(in.data(), out.data(), in.size());
  for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], float_to_half(in[i])) << std::bit_cast<uint32_t>(in[i]);
}

TEST(Convert, CountsNonFinite) {
  std::vector<uint16_t> all(65536 * 3);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  EXPECT_EQ(count_non_finite(DType::BF16, all.data(), all.size()), 3u * 256);
  EXPECT_EQ(count_non_finite(DType::F16, all.data(), all.size()), 3u * 2048);
  EXPECT_EQ(count_non_finite(DType::I16, all.data(), all.size()), 0u);
  const std::vector<uint16_t> bad(100001, 0x7fff);
  EXPECT_EQ(count_non_finite(DType::BF16, bad.data(), bad.size()), 100001u);
  const double doubles[] = {1.0, std::numeric_limits<double>::infinity(), std::nan("")};
  EXPECT_EQ(count_non_finite(DType::F64, doubles, 3), 2u);
}

}  // namespace
}  // namespace reprise::checkpoint::checkpoint_test
