// Any bytes as the GGUF file of a vision tower, beside small text models of both kinds: reading its metadata answers a
// Status, and of a file that can be put beside a text model every tensor can be found by its name and read.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "checkpoint/helpers.h"
#include "models/model.h"

namespace {

using namespace reprise;
using namespace reprise::checkpoint;

// Two layers of width 36, as the towers of the seeds give rows.
std::string text_model(const std::string& arch) {
  GgufBuilder b;
  b.str("general.architecture", arch);
  for (const auto& [name, n] : {std::pair{".block_count", 2},
                                {".context_length", 64},
                                {".embedding_length", 36},
                                {".feed_forward_length", 40},
                                {".attention.head_count", 3},
                                {".attention.head_count_kv", 1},
                                {".attention.key_length", 12},
                                {".attention.value_length", 12}})
    b.u32(arch + name, static_cast<uint32_t>(n));
  b.f32(arch + ".attention.layer_norm_rms_epsilon", 1e-6f).f32(arch + ".rope.freq_base", 1e4f);
  b.array<int32_t>(arch + ".rope.dimension_sections", 5, {2, 2, 2, 0});
  b.strings("tokenizer.ggml.tokens", {"a", "<|image_pad|>", "<|video_pad|>"});
  return b.f32_tensor("token_embd.weight", {36, 3}, std::vector<float>(108)).finish();
}

void read_beside(const std::string& text, const uint8_t* data, size_t size) {
  auto model = GgufFile::parse(bytes_of(text), "text");
  auto tower = GgufFile::parse({data, size}, "fuzz");
  if (!model.is_ok() || !tower.is_ok()) return;
  (void)read_model_config(*model, {}, models::families(true), &*tower);
  auto checkpoint = Checkpoint::from_gguf(std::move(*model), models::families());
  if (!checkpoint.is_ok() || !checkpoint->add_mmproj(std::move(*tower), models::families()).is_ok()) return;
  for (const CheckpointTensor& t : checkpoint->tensors()) {
    (void)checkpoint->find(t.name);
    std::vector<float> row(static_cast<size_t>(t.row_elements()));
    for (const int64_t r : {int64_t{0}, t.rows() - 1}) (void)checkpoint->read_rows(t, r, 1, DType::F32, row.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string kTexts[] = {text_model("qwen2vl"), text_model("qwen3vl")};
  for (const std::string& text : kTexts) read_beside(text, data, size);
  return 0;
}
