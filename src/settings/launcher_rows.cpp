#include "settings/tables.h"

namespace reprise::settings {
namespace {

constexpr const char* kOneProcess = "a process is one rank of one replica";
constexpr const char* kLaunched = "ranks of several hosts find each other by what mpirun or srun tells them";
constexpr const char* kReplicas = "all replicas of a server (`dp_size`) live in its process";
constexpr const char* kNoRay = "ranks are processes of this program, or of mpirun or srun (`dist_launcher`)";
constexpr const char* kOneDevice = "one device is used; ASCEND_RT_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES chooses it";
constexpr const char* kNoSplit = "prefill and decode run in one process; leave out all --disaggregation flags";
constexpr const char* kNoAdapters =
    "adapters as GGUF files are not read; `lora_modules` NAME=FOLDER takes those that PEFT saves";
constexpr const char* kOneCacheType = "keys and values have one dtype: `kv_cache_dtype`";
constexpr const char* kNoTls = "TLS is a reverse proxy's; docs/deploy.md shows one";
constexpr const char* kNoTiers = "the prefix cache is in the device's memory alone; leave the flag out";

}  // namespace

std::vector<Setting> launcher_rows() {
  return {
      // One process
      also("--pipeline-parallel-size", integer("pp_size", {1, 1}, kOneProcess)),
      integer("node_rank", {0, kMany}, kLaunched),
      also("--nccl-init-addr", text("dist_init_addr", "TEXT", kLaunched)),
      integer("nccl_port", {0, 65535}, kLaunched),
      text("master_addr", "TEXT", kLaunched),
      integer("master_port", {0, 65535}, kLaunched),
      integer("base_gpu_id", {0, kMany}, kOneDevice),
      integer("gpu_id_step", {1, kMany}, kOneDevice),
      integer("moe_dense_tp_size", {1, kMany}, "dense layers are cut over all ranks of `tp_size`"),
      flag("enable_dp_lm_head", "the head is cut over all ranks of `tp_size`; effective: off"),
      flag("disable_custom_all_reduce", "there is one rank, and nothing to reduce"),
      flag("enable_symm_mem", "there is one rank, and nothing to reduce"),
      choice("deepep_mode", {"auto", "normal", "low_latency"}, "ranks exchange all rows of their experts"),
      integer("ep_num_redundant_experts", {0, 0}, "no expert is on two ranks yet"),
      text("moe_runner_backend", "TEXT", "each device has one kernel for experts; effective: auto"),
      flag("disable_shared_experts_fusion", "shared experts are not fused with routed ones"),
      integer("attn_cp_size", {1, 1}, kOneProcess),
      flag("headless", kLaunched),
      text("data_parallel_address", "TEXT", kReplicas),
      integer("data_parallel_rpc_port", {0, 65535}, kReplicas),
      integer("data_parallel_start_rank", {0, 0}, kReplicas),
      integer("data_parallel_size_local", {0, kMany}, kReplicas),
      refused(flag("use_ray", kNoRay)),
      // Scheduling
      flag("enable_mixed_chunk", "always on; `mixed_prefill_tokens` bounds the prompts' part"),
      real("schedule_conservativeness", {0, kEndless},
           "pages are given as they are needed; see `max_running_requests`"),
      choice("radix_eviction_policy", {"lru"}, "the only one here"),
      real("swa_full_tokens_ratio", {0, kEndless}, "all layers share one pool of pages"),
      flag("disable_hybrid_swa_memory", "all layers share one pool of pages"),
      flag("enable_dynamic_chunking", "chunks follow the step's free tokens anyway"),
      flag("sleep_on_idle", "always on"),
      // Start
      flag("skip_server_warmup", "the server sends no requests to itself; `graph_warmups` runs captures"),
      text("warmups", "TEXT", "the server sends no requests to itself; `graph_warmups` runs captures"),
      flag("enable_torch_compile_debug_mode", "memory plans are proved at every start"),
      flag("enable_cudagraph_gc", "there is no garbage collector"),
      choice("model_impl", {"auto", "sglang", "transformers"}, "there is one implementation"),
      text("model_loader_extra_config", "TEXT", "the loader has no settings beyond its flags"),
      choice("tokenizer_mode", {"auto", "slow"}, "there is one tokenizer"),
      integer("tokenizer_worker_num", {1, 1024}, "long requests are tokenised by two threads"),
      flag("enable_tokenizer_batch_encode", "each prompt is tokenised as it comes"),
      flag("enable_multimodal", "text alone is served"),
      text("mm_attention_backend", "TEXT", "text alone is served"),
      text("mamba_ssm_dtype", "TEXT", "no model with state-space layers is served"),
      text("mamba_scheduler_strategy", "TEXT", "no model with state-space layers is served"),
      integer("max_mamba_cache_size", {0, kMany}, "no model with state-space layers is served"),
      real("mamba_full_memory_ratio", {0, kEndless}, "no model with state-space layers is served"),
      // Backends
      choice("sampling_backend", {"flashinfer", "pytorch", "ascend"}, "there is one sampler"),
      choice("grammar_backend", {"xgrammar", "outlines", "llguidance", "none"}, "there is one compiler of grammars"),
      text("prefill_attention_backend", "TEXT", "each device has one attention"),
      text("decode_attention_backend", "TEXT", "each device has one attention"),
      // Serving and logs
      integer("stream_interval", {1, kMany}, "every token is sent as it comes; effective: 1"),
      flag("stream_output", "streams carry what is new, as OpenAI's do"),
      flag("enable_cache_report", "usage always has the cached tokens"),
      integer("log_requests_level", {0, 3}, "prompts and answers are logged by `log_prompts` alone; effective: 0"),
      choice("log_requests_format", {"text", "json"}, "see `log_format`"),
      text("log_level_http", "TEXT", "see `access_log`"),
      integer("decode_log_interval", {1, kMany}, "no step is logged; /metrics has the figures"),
      flag("enable_request_time_stats_logging", "see `access_log` and /metrics"),
      real("load_watch_interval", {0, kEndless}, "/metrics has the load at any time"),
      text("crash_dump_folder", "TEXT", "no requests are written to disk"),
      real("gc_warning_threshold_secs", {0, kEndless}, "there is no garbage collector"),
      // vLLM
      flag("enable_prefix_caching", "always on; `disable_radix_cache` turns it off"),
      flag("enable_chunked_prefill", "always on; `chunked_prefill_size` bounds a step"),
      flag("enable_auto_tool_choice", "always on"),
      also("--no-enable-log-requests", flag("disable_log_requests", "requests are logged under `access_log` alone")),
      flag("disable_log_stats", "no statistics are logged; /metrics has them"),
      flag("disable_uvicorn_access_log", "requests are logged under `access_log` alone"),
      text("uvicorn_log_level", "TEXT", "see `log_level`"),
      real("swap_space", {0, kEndless}, "preempted requests are computed again; nothing is swapped"),
      integer("max_seq_len_to_capture", {0, kMany}, "graphs serve sequences of every length"),
      choice("distributed_executor_backend", {"mp", "uni", "external_launcher"},
             "`dist_launcher` says who starts the processes"),
      flag("disable_frontend_multiprocessing", "a server is one process"),
      text("guided_decoding_backend", "TEXT", "there is one compiler of grammars"),
      // llama.cpp
      also("--gpu-layers", text("n_gpu_layers", "TEXT", "all layers run on `device`")),
      text("flash_attn", "TEXT", "each device has one attention"),
      flag("cont_batching", "always on"),
      flag("jinja", "chat templates are always Jinja"),
      flag("mlock", "weights are not locked in memory"),
      flag("no_mmap", "weights are packed when they are loaded, and kept"),
      flag("metrics", "/metrics is always there"),
      flag("conversation", "reprise chat is a conversation"),
      // Refused
      refused(text(
          "gpu_memory_utilization", "TEXT",
          "it counts activations and graphs as well; `mem_fraction_static` X is the share for weights and KV cache")),
      refused(text("cache_type_k", "TEXT", kOneCacheType)),
      refused(text("cache_type_v", "TEXT", kOneCacheType)),
      refused(
          text("model_draft", "TEXT", "`speculative_draft_model_path` MODEL with `speculative_algorithm` STANDALONE")),
      refused(text("split_mode", "TEXT", kOneDevice)),
      refused(text("tensor_split", "TEXT", kOneDevice)),
      refused(text("lora", "TEXT", kNoAdapters)),
      refused(text("grammar", "TEXT", "a request gives the form of its answer: response_format, regex")),
      refused(text("grammar_file", "TEXT", "a request gives the form of its answer: response_format, regex")),
      refused(text("generation_config", "TEXT", "`sampling_defaults` model or openai says where defaults come from")),
      refused(text("override_generation_config", "TEXT", "generation_config.json of the model gives the defaults")),
      refused(text("allowed_origins", "TEXT", "`cors_origins` ORIGIN,... names them")),
      refused(text("ssl_keyfile", "TEXT", kNoTls)),
      refused(text("ssl_certfile", "TEXT", kNoTls)),
      choice("disaggregation_mode", {"null"}, "prefill and decode run in one process"),
      refused(text("disaggregation_transfer_backend", "TEXT", kNoSplit)),
      refused(text("disaggregation_bootstrap_port", "TEXT", kNoSplit)),
      integer("speculative_eagle_topk", {1, kMany}, "drafts are chains; effective: 1"),
      text("speculative_draft_model_revision", "TEXT", "the name of the draft model says it: org/name@revision"),
      text("speculative_draft_attention_backend", "TEXT", "each device has one attention, for both models"),
      text("speculative_token_map", "TEXT", "drafts are of the whole vocabulary"),
      text("speculative_attention_mode", "TEXT", "drafts are further rows of a decode step; effective: decode"),
      flag("speculative_use_rejection_sampling", "a draft is accepted when it is the token that is drawn"),
      integer("speculative_ngram_min_bfs_breadth", {1, kMany}, "drafts are chains; effective: 1"),
      integer("speculative_ngram_max_bfs_breadth", {1, kMany}, "drafts are chains; effective: 1"),
      choice("speculative_ngram_match_type", {"BFS", "PROB"}, "the latest of the longest matches is gone on from"),
      integer("max_cpu_loras", {1, kMany},
              "adapters are in the slots of `max_loras`; others are read from their folders"),
      integer("max_loaded_loras", {1, kMany}, "adapters are in the slots of `max_loras`; effective: as many"),
      words("lora_target_modules", "NAME", "every linear layer takes adapters"),
      text("lora_backend", "TEXT", "there is one kernel for adapters"),
      choice("lora_eviction_policy", {"lru", "fifo"}, "an adapter stays until it is unloaded"),
      choice("lora_dtype", {"auto", "float16", "bfloat16"}, "adapters are kept in the model's dtype"),
      flag("fully_sharded_loras", "adapters are on one rank"),
      refused(flag("enable_hierarchical_cache", kNoTiers)),
      refused(flag("enable_lmcache", kNoTiers)),
      integer("cpu_offload_gb", {0, 0}, "weights stay on the device"),
      refused(flag("is_embedding", "models generate text; embeddings are not served")),
      refused(flag("skip_tokenizer_init", "the tokenizer is cheap; requests may give token ids all the same")),
      refused(flag("enable_eplb", "experts are not moved between ranks yet")),
      refused(flag("enable_two_batch_overlap", "a step is one batch")),
      refused(text("completion_template", "TEXT", "/v1/completions takes no `suffix`")),
      refused(text("preferred_sampling_params", "TEXT", "generation_config.json of the model gives the defaults")),
  };
}

}  // namespace reprise::settings
