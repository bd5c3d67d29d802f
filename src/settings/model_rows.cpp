#include "settings/tables.h"

namespace reprise::settings {

std::vector<Setting> model_rows() {
  return {
      also("model,-m,--model,--hf-repo", text("model_path", "PATH", kModelPathHelp)),
      text("mmproj", "PATH", "GGUF file of the vision tower of a model that is one GGUF file itself"),
      text("revision", "NAME", "branch, tag or commit of a model by name; default: the hub's"),
      text("download_dir", "DIR", "where models by name are kept; default: HF_HUB_CACHE, or ~/.cache/huggingface/hub"),
      by_model(also("--tokenizer",
                    text("tokenizer_path", "PATH", "folder, tokenizer.json or GGUF; default: the model's own"))),
      choice("load_format", {"auto", "safetensors", "gguf", "dummy"},
             "dummy: random weights, only config.json is needed", "auto"),
      by_model(choice(
          "dtype", {"auto", "float32", "float16", "half", "bfloat16", "float"},
          "of weights and activations; auto: the checkpoint's; GGUF: bfloat16, but float32 for small models where "
          "weights are unpacked or the processor has no fast bf16 dot product; a dtype without kernels on the device "
          "is replaced, with a notice",
          "auto")),
      by_model(choice("kv_cache_dtype", {"auto", "float32", "float16", "half", "bfloat16", "int8", "bf16"},
                      "of the KV cache; auto: as `dtype`; int8: half of bfloat16, a scale per token and head", "auto")),
      by_model(
          choice("quantization", {"auto", "none", "w8a8_int8", "modelslim", "compressed-tensors", "gguf", "mxfp4"},
                 "auto: what the checkpoint is; none: GGUF blocks are unpacked; w8a8_int8: a float model becomes int8 "
                 "while it is loaded",
                 "auto")),
      by_model(
          choice("block_activations", {"auto", "float", "int8"},
                 "what weights in GGUF or MXFP4 blocks are multiplied with; float: the activations as they are; "
                 "int8: each 32 of them rounded to 8 bits but for outliers: faster prompts and batches; auto: int8 "
                 "above 250 million weights with AVX-512 and no tile registers, else float",
                 "auto")),
      choice("mla_prefill", {"absorbed", "expanded"},
             "prompts of DeepSeek models: absorbed has the bits of decoding; expanded makes keys and values where that "
             "is fewer operations",
             "absorbed"),
      by_model(also("-c,--max-model-len,--ctx-size",
                    integer("context_length", {0, int64_t{1} << 24}, "longest sequence; 0: the model's own", "0"))),
      by_model(
          choice("pooling", {"auto", "none", "last", "mean", "cls"},
                 "the row of a text that is its vector; auto: as the model's files say (modules.json), where none does "
                 "decoders generate; none: they generate in any case",
                 "auto")),
      texts("override", "KEY=VALUE", "one field of config.json, for example rope_theta=500000; repeatable"),
      also("--hf-overrides", text("json_model_override_args", "JSON", "`override`, as one JSON object")),
      integer("random_seed", {0, kMany}, "of dummy weights and of draws without `seed`", "0"),
      flag("trust_remote_code", "accepted; no code from a model is ever run"),
  };
}

std::vector<Setting> engine_rows() {
  return {
      by_device(choice("device", {"auto", "cpu", "cuda", "ascend", "npu", "null"},
                       "where to run; auto: what REPRISE_DEVICE names, else a GPU or NPU that is there, else the CPU",
                       "auto")),
      choice("ascend_runtime", {"system", "sim"},
             "libraries of `device` ascend: those of the system (the default), or the simulator's"),
      by_device(also("-t", integer("threads", {0, 1024}, "CPU threads; 0: one per allowed core", "0"))),
      texts("extension", "FILE", "a library with ops, kernels and rewrites of its own; repeatable"),
      by_device(text("isa", "NAME", "CPU instruction set", "auto")),
      by_device(also("--max-num-seqs,--parallel",
                     integer("max_running_requests", {1, 4096},
                             "sequences that run together; default: 64, or by the device's memory"))),
      by_device(integer("max_total_tokens", {0, int64_t{1} << 32},
                        "tokens that the KV cache holds; 0: what memory allows", "0")),
      by_device(also("--max-num-batched-tokens",
                     integer("chunked_prefill_size", {-1, kLargestChunk},
                             "most tokens of one step; default, and -1: 2048, or by the device's memory"))),
      by_device(real("mem_fraction_static", {0, 1, true},
                     "share of memory for weights and KV cache; default: 0.8, or by the device's memory")),
      choice(
          "attention_backend",
          {"ascend", "triton", "torch_native", "flex_attention", "flashinfer", "fa3", "fa4", "flashmla", "cutlass_mla",
           "trtllm_mla", "trtllm_mha", "nsa", "aiter", "wave", "intel_amx", "intel_xpu", "dual_chunk_flash_attn"},
          "accepted; default: each device's own"),
      integer("max_prefill_tokens", {1, kMany},
              "serve: most prompt tokens of a step beyond the first prompt (default 16384)"),
      integer("mixed_prefill_tokens", {1, kMany},
              "serve: most prompt tokens of a step in which others decode (default 256)"),
      also("--num-continuous-decode-steps,--num-scheduler-steps",
           integer("decode_steps", {1, 64},
                   "decode steps that are submitted at once to a device that computes asynchronously; what comes in "
                   "between waits for their end",
                   "1")),
      choice("schedule_policy", {"fcfs", "lpm", "random", "dfs-weight", "lof", "priority"},
             "serve: order of waiting requests, as in SGLang: fcfs (default), lpm (longest cached prefix first), "
             "dfs-weight (heaviest branch of the prefix tree first), random, lof (longest output first)"),
      also("--no-enable-prefix-caching", flag("disable_radix_cache", "keep no prefixes of earlier requests")),
      real("watchdog_timeout", {0, kEndless},
           "serve: seconds that a step may take before the process ends with status 1; 0: any time (default 300)"),
      flag("cache_weights", "keep the packed weights in $REPRISE_CACHE, for quick starts"),
      also("--block-size", integer("page_size", {128, 128}, "tokens of a KV page", "128")),
      also("--tp,--tensor-parallel-size",
           integer("tp_size", {1, kMany},
                   "processes that hold the model together, each a part of it; they share out the CPU's processors of "
                   "this host, or are those that mpirun or srun started",
                   "1")),
      choice("tp_form", {"auto", "gather", "reduce"},
             "what the processes of `tp_size` exchange: gather: activations, with the bits of one process; reduce: "
             "sums, which is half as much, and the bits differ with `tp_size`; auto: gather",
             "auto"),
      also("--ep,--expert-parallel-size",
           integer("ep_size", {1, kMany},
                   "parts of these processes over which whole experts are shared out; the rows of an expert are cut "
                   "over the processes of a part",
                   "1")),
      flag("enable_expert_parallel", "vLLM's word for `ep_size` equal to `tp_size`"),
      choice("moe_a2a_backend", {"none", "auto", "deepep", "mooncake", "ascend_fuseep", "nixl", "mori", "flashinfer"},
             "deepep: on ascend, with `ep_size` equal to `tp_size`, rows go to the ranks of their experts alone, where "
             "CANN's operators for that take them; all others: ranks exchange the results of all rows",
             "none"),
      choice("dist_launcher", {"auto", "self", "env", "mpi"},
             "who starts these processes: this program (self), or a launcher whose variables say which one this is "
             "(env: OMPI_COMM_WORLD_*, PMI_*, SLURM_*; mpi: and all of them exchange data over MPI, as those of "
             "several hosts always do); auto: a launcher where there is one",
             "auto"),
      integer("nnodes", {1, kMany}, "hosts of these processes; above 1 a launcher starts them", "1"),
      real("dist_timeout", {1, 1e6},
           "seconds that a rank may stay away from the others in a step before all of them end", "60"),
      text("cpu_bind", "LIST|LIST",
           "processors of each rank of this host, as 0-31|32-63; without it ranks share out those that the process may "
           "use, whole memory nodes where the numbers fit, or keep to those that mpirun or srun binds them to; nobind: "
           "ranks are bound to none",
           ""),
      words("numa_node", "N", "the memory node whose processors each rank of this host has, as 0 1 or 0,1"),
      also("--dp,--data-parallel-size",
           integer("dp_size", {1, kMany},
                   "serve: replicas of the model in one server, each with a device, a KV cache and a share of the "
                   "CPU's processors of its own",
                   "1")),
      flag("enable_dp_attention",
           "serve: `dp_size` is no number of replicas, but of parts of the `tp_size` processes that share out "
           "requests: each part has a KV cache of its own, and all of them hold the model together"),
      flag("enable_lora", "keep slots for LoRA adapters, which requests choose by name"),
      also("--lora-paths", words("lora_modules", "NAME=FOLDER",
                                 "LoRA adapters to load at the start, as PEFT saves them; implies `enable_lora`")),
      also("--max-loras-per-batch",
           integer("max_loras", {0, 1024},
                   "LoRA adapters that may be loaded at once; default with `enable_lora`: 4, or as many as "
                   "`lora_modules` names; 0: none")),
      integer("max_lora_rank", {1, 4096}, "the largest rank of an adapter; default: 16, or what `lora_modules` needs"),
      live(choice(
          "log_level", {"debug", "info", "notice", "warning", "error", "off"},
          "least level of log lines on standard error; default: info; of `generate`, `chat` and `eval`: notice")),
      also("-v", flag("verbose", "report at the start what is in effect; `log_level` info")),
  };
}

}  // namespace reprise::settings
