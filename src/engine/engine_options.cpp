#include "engine/engine_options.h"

#include "checkpoint/lora.h"

namespace reprise::engine {

Status check_options(const EngineOptions& o) {
  auto range = [](std::string_view flag, int64_t v, int64_t lo, int64_t hi) {
    return v >= lo && v <= hi ? Status::ok() : invalid("{} {} is out of range; allowed: {} to {}", flag, v, lo, hi);
  };
  RETURN_IF_ERROR(range("`max_running_requests`", o.max_running_requests, 1, 4096));
  RETURN_IF_ERROR(range("`chunked_prefill_size`", o.chunked_prefill_size, 1, 65536));
  RETURN_IF_ERROR(range("`decode_steps`", o.steps_ahead, 1, 64));
  RETURN_IF_ERROR(range("`context_length`", o.context_length, 0, int64_t{1} << 24));
  RETURN_IF_ERROR(range("`max_loras`", o.max_loras, 0, 1024));
  RETURN_IF_ERROR(range("`max_lora_rank`", o.max_lora_rank, 1, checkpoint::LoraConfig::kMostRank));
  RETURN_IF_ERROR(range("`max_total_tokens`", o.max_total_tokens, 0, int64_t{1} << 32));
  if (!(o.mem_fraction_static > 0 && o.mem_fraction_static <= 1))
    return invalid("`mem_fraction_static` {} is out of range; allowed: above 0, up to 1", o.mem_fraction_static);
  auto usual = [](DType d) { return d == DType::F32 || d == DType::F16 || d == DType::BF16; };
  if (o.dtype && !usual(*o.dtype))
    return invalid("dtype {} is not a model dtype; allowed: float32, float16, bfloat16", dtype_name(*o.dtype));
  if (o.kv_dtype && !usual(*o.kv_dtype) && *o.kv_dtype != DType::I8)
    return invalid("dtype {} is not one of a KV cache; allowed: float32, float16, bfloat16, int8",
                   dtype_name(*o.kv_dtype));
  return Status::ok();
}

Result<LoadFormat> parse_load_format(std::string_view name) {
  if (name == "auto") return LoadFormat::Auto;
  if (name == "safetensors") return LoadFormat::Safetensors;
  if (name == "gguf") return LoadFormat::Gguf;
  if (name == "dummy") return LoadFormat::Dummy;
  return invalid("load format \"{}\" is not known; allowed: auto, safetensors, gguf, dummy", name);
}

}  // namespace reprise::engine
