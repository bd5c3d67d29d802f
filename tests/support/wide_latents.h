// WideLatents: a tiny DeepSeek checkpoint in the sizes that the fused attention of Ascend takes, computing the same.
//
// Latents get 512 numbers instead of a few, rotated parts 64, and heads of zeros make their number a power of two.
// Everything that is new is zero, or sits where it has the angle it had: pair i of r / 2 becomes pair i * 64 / r of 32,
// which has the same frequency. What the wider sizes do to norms and scores is undone in the weights, so Hugging Face's
// logits of the small checkpoint are those of the wide one. The folder goes with the object.
#pragma once

#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>

#include "base/half.h"
#include "base/json.h"
#include "support/tiny_models.h"

namespace reprise::testing_support {

class WideLatents {
 public:
  // `heads` of them, at least as many as the checkpoint has. `model`: a folder, as tiny_model_path() takes it.
  WideLatents(const std::string& model, int64_t heads)
      : from_(tiny_model_path(model)),
        to_(fmt::format("{}/reprise_wide_{}_{}_{}", testing::TempDir(),
                        std::filesystem::path(model).filename().string(), heads, ::getpid())),
        heads_(heads) {
    std::filesystem::create_directories(to_);
    config_ = *parse_json(*read_file(from_ + "/config.json"), "config.json");
    old_heads_ = config_["num_attention_heads"];
    rank_ = config_["kv_lora_rank"];
    nope_ = config_["qk_nope_head_dim"];
    rope_ = config_["qk_rope_head_dim"];
    value_ = config_["v_head_dim"];
    wide_nope_ = 4 * (nope_ + rope_) - kRope;  // so that scores are divided by twice as much
    EXPECT_GE(heads, old_heads_);
    EXPECT_GE(wide_nope_, nope_);
    EXPECT_EQ(kRope % rope_, 0);
    write_weights();
    write_config();
    std::filesystem::copy_file(from_ + "/golden.safetensors", to_ + "/golden.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
  }
  ~WideLatents() { std::filesystem::remove_all(to_); }
  WideLatents(const WideLatents&) = delete;
  WideLatents& operator=(const WideLatents&) = delete;
  const std::string& path() const { return to_; }

 private:
  static constexpr int64_t kRank = 512, kRope = 64;

  struct Matrix {
    int64_t rows = 0, columns = 0;
    std::vector<float> values;

    Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}
    float& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * columns + c)]; }
  };

  // Where number i of a rotated part goes; neighbours are pairs.
  int64_t place(int64_t i) const { return i / 2 * (kRope / rope_) * 2 + i % 2; }

  static Matrix read(const checkpoint::SafetensorsFile& file, const checkpoint::StoredTensor& t) {
    Matrix m(t.shape.size() > 1 ? t.shape[0] : 1, t.shape.back());
    const auto bytes = file.bytes(t);
    for (size_t i = 0; i < m.values.size(); ++i) {
      uint16_t half = 0;
      if (t.type_name == "BF16") {
        std::memcpy(&half, bytes.data() + 2 * i, 2);
        m.values[i] = bf16_to_float(half);
      } else {
        EXPECT_EQ(t.type_name, "F32") << t.name;
        std::memcpy(&m.values[i], bytes.data() + 4 * i, 4);
      }
    }
    return m;
  }

  // The wide form of a parameter of latent attention.
  Matrix widen(const std::string& name, Matrix m) const {
    if (name.ends_with("q_proj.weight") || name.ends_with("q_b_proj.weight")) {
      Matrix out(heads_ * (wide_nope_ + kRope), m.columns);
      for (int64_t h = 0; h < old_heads_; ++h)
        for (int64_t i = 0; i < nope_ + rope_; ++i)
          for (int64_t c = 0; c < m.columns; ++c)
            out.at(h * (wide_nope_ + kRope) + (i < nope_ ? i : wide_nope_ + place(i - nope_)), c) =
                2 * m.at(h * (nope_ + rope_) + i, c);
      return out;
    }
    if (name.ends_with("kv_a_proj_with_mqa.weight")) {
      Matrix out(kRank + kRope, m.columns);
      for (int64_t i = 0; i < rank_ + rope_; ++i)
        for (int64_t c = 0; c < m.columns; ++c) out.at(i < rank_ ? i : kRank + place(i - rank_), c) = m.at(i, c);
      return out;
    }
    if (name.ends_with("kv_a_layernorm.weight")) {  // the mean is over zeros as well
      Matrix out(1, kRank);
      for (int64_t i = 0; i < rank_; ++i)
        out.at(0, i) = m.at(0, i) * static_cast<float>(std::sqrt(static_cast<double>(rank_) / kRank));
      return out;
    }
    if (name.ends_with("kv_b_proj.weight")) {
      Matrix out(heads_ * (wide_nope_ + value_), kRank);
      for (int64_t h = 0; h < old_heads_; ++h)
        for (int64_t i = 0; i < nope_ + value_; ++i)
          for (int64_t c = 0; c < rank_; ++c)
            out.at(h * (wide_nope_ + value_) + (i < nope_ ? i : wide_nope_ + i - nope_), c) =
                m.at(h * (nope_ + value_) + i, c);
      return out;
    }
    Matrix out(m.rows, heads_ * value_);  // o_proj
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < m.columns; ++c) out.at(r, c) = m.at(r, c);
    return out;
  }

  static bool is_wide(const std::string& name) {
    for (const char* end : {"q_proj.weight", "q_b_proj.weight", "kv_a_proj_with_mqa.weight", "kv_a_layernorm.weight",
                            "kv_b_proj.weight", "self_attn.o_proj.weight"})
      if (name.ends_with(end)) return true;
    return false;
  }

  void write_weights() const {
    auto file = checkpoint::SafetensorsFile::open(from_ + "/model.safetensors");
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    std::deque<Matrix> made;  // the tensors to write point into it
    std::vector<checkpoint::TensorToWrite> tensors;
    for (const checkpoint::StoredTensor& t : file->tensors()) {
      if (is_wide(t.name)) {
        const Matrix& m = made.emplace_back(widen(t.name, read(*file, t)));
        const auto shape = t.shape.size() > 1 ? std::vector<int64_t>{m.rows, m.columns} : std::vector{m.columns};
        tensors.push_back({t.name,
                           DType::F32,
                           shape,
                           {reinterpret_cast<const uint8_t*>(m.values.data()), m.values.size() * sizeof(float)}});
        continue;
      }
      ASSERT_TRUE(t.type_name == "BF16" || t.type_name == "F32") << t.name << ": " << t.type_name;
      tensors.push_back({t.name, t.type_name == "BF16" ? DType::BF16 : DType::F32, t.shape, file->bytes(t)});
    }
    const Status written = checkpoint::write_safetensors(to_ + "/model.safetensors", tensors);
    ASSERT_TRUE(written.is_ok()) << written.message();
  }

  void write_config() {
    config_["num_attention_heads"] = heads_;
    config_["num_key_value_heads"] = heads_;
    config_["kv_lora_rank"] = kRank;
    config_["qk_nope_head_dim"] = wide_nope_;
    config_["qk_rope_head_dim"] = kRope;
    config_["qk_head_dim"] = wide_nope_ + kRope;
    config_["head_dim"] = kRope;
    // YaRN's ramp ends at a whole number of pairs: at the second of 4, so here at the sixteenth of 32.
    if (config_.contains("rope_parameters") && config_["rope_parameters"]["rope_type"] == "yarn")
      config_["rope_parameters"]["beta_slow"] = 0.105;
    std::ofstream(to_ + "/config.json") << config_.dump();
  }

  std::string from_, to_;
  int64_t heads_, old_heads_ = 0, rank_ = 0, nope_ = 0, rope_ = 0, value_ = 0, wide_nope_ = 0;
  Json config_;
};

}  // namespace reprise::testing_support
