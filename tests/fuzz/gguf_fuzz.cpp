// Any bytes as a GGUF file: parsing answers a Status, and from a file that parses every reader built on it can run: the
// tensors in each float dtype, the tokenizer and what it makes of a text, the config, the pooling and the generation
// defaults.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "api/gguf_tokenizer.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/gguf_tokenizer.h"
#include "checkpoint/pooling.h"
#include "models/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  using namespace reprise::checkpoint;
  auto file = GgufFile::parse({data, size}, "fuzz");
  if (!file.is_ok()) return 0;
  for (const GgufEntry& e : file->metadata()) {
    (void)file->integer(e.key);
    (void)file->number(e.key);
    (void)file->boolean(e.key);
    (void)file->string(e.key);
    for (uint64_t i = 0; i < e.value.count && i < 100; ++i) {
      (void)e.value.as_int(i);
      (void)e.value.as_double(i);
    }
  }
  if (const auto metadata = read_gguf_tokenizer(*file); metadata.is_ok()) {
    const auto tokenizer = text::Tokenizer::from_gguf(api::for_text(*metadata));
    if (tokenizer.is_ok())
      (void)tokenizer->encode_pair("A \xEF\xBC\xA1  graph\u0301, captured\nonce </s> \xE6\x96\x87", "<s> the sea ", 64);
  }
  (void)read_pooling(*file);
  (void)read_model_config(*file, {}, models::families(true));
  (void)read_generation_config(*file);
  auto checkpoint = Checkpoint::from_gguf(std::move(*file), models::families());
  if (!checkpoint.is_ok()) return 0;
  for (const CheckpointTensor& t : checkpoint->tensors()) {
    std::vector<float> row(static_cast<size_t>(t.row_elements()));
    std::vector<uint8_t> packed(Checkpoint::packed_row_bytes(t));
    uint64_t bad = 0;
    for (DType target : {DType::F32, DType::F16, DType::BF16}) {
      (void)checkpoint->read_rows(t, 0, 1, target, row.data(), &bad);
      (void)checkpoint->read_rows(t, t.rows() - 1, 1, target, row.data(), nullptr);
    }
    (void)checkpoint->read_packed_rows(t, t.rows() - 1, 1, packed.data());
  }
  return 0;
}
