#include "settings/tables.h"

namespace reprise::settings {

std::vector<Setting> graph_rows() {
  return {
      choice("graph", {"auto", "off", "required"},
             "auto captures what can be; required makes anything uncaptured an error", "auto"),
      choice("graph_decode", {"whole", "piecewise", "off"}, "how that phase is captured (default whole)"),
      choice("graph_prefill", {"whole", "piecewise", "off"}, "how that phase is captured (default piecewise)"),
      text("graph_decode_sizes", "N,N,...",
           "batch sizes to capture: auto (default), a list, or learned (from earlier runs' traffic)"),
      text("graph_prefill_sizes", "N,N,...", "token counts to capture: auto (default), a list, or learned"),
      choice("graph_streams", {"1", "2", "auto"},
             "streams of a captured decode step; 2: independent branches (a shared expert, the keys and values of "
             "latent attention) may run beside the rest; auto: where that is measured to be faster, by size",
             "1"),
      flag("graph_prefetch_weights",
           "captured decode steps read the next product's weights ahead into the device's cache while memory idles"),
      integer("graph_prefetch_mb", {1, 1024}, "megabytes of weights that are read ahead at a time, at most", "18"),
      flag("disable_cuda_graph_padding", "replay only at exact sizes"),
      text("split_ops", "OP,OP,...", "ops at which piecewise graphs are cut, besides attention"),
      text("passes", "PASS,PASS,...", "all (default), none (optional passes left out), or a list of passes"),
      text("disable_pass", "PASS,PASS,...", "passes to leave out"),
      text("print_after", "PASS,...", "print the graph after these passes (or all) to standard error"),
      integer("pass_bisect_limit", {-1, int64_t{1} << 40}, "apply only the first N changes of optional passes; -1: all",
              "-1"),
      text("pass_file", "FILE", "more rewrites, in the IR's text form"),
      text("dump_dir", "DIR", "write the graph before and after every pass here"),
      text("plan_cache", "DIR",
           "folder of compiled programs, for quick starts; auto (default): plans in $REPRISE_CACHE; off: none"),
      integer("verify_replay", {0, int64_t{1} << 40},
              "every N-th replay is compared with an eager, unfused run; a difference takes that size out of service "
              "and is reported; 0: none",
              "0"),
      texts("inject_fault", "KIND@STEP[:NODE][/RANK]",
            "for tests of the checks: padding-leak, stale-input, wrong-length, bit-flip, alloc, kernel-error, hang"),
      text("graph_warmups", "N", "runs before each capture; auto: 2 on Ascend NPUs, else 0", "auto"),
  };
}

std::vector<Setting> graph_alias_rows() {
  return {
      also("--disable-decode-cuda-graph", flag("disable_cuda_graph", "`graph_decode` off")),
      flag("enforce_eager", "`graph_decode` off `graph_prefill` off"),
      also("--cuda-graph-bs-decode", words("cuda_graph_bs", "N", "`graph_decode_sizes`")),
      also("--cuda-graph-max-bs-decode",
           integer("cuda_graph_max_bs", {1, 1 << 20}, "`graph_decode_sizes` by rule up to N")),
      flag("enable_profile_cuda_graph", "accepted; see reprise graph profile"),
      flag("enable_torch_compile", "`passes` all, the default"),
      integer("torch_compile_max_bs", {1, 1 << 20}, "larger decode sizes run the unfused plan"),
      also("--enforce-piecewise-cuda-graph",
           flag("enable_piecewise_cuda_graph", "`graph_prefill` piecewise, the default")),
      also("--disable-prefill-cuda-graph", flag("disable_piecewise_cuda_graph", "`graph_prefill` off")),
      also("--cuda-graph-bs-prefill", words("piecewise_cuda_graph_tokens", "N", "`graph_prefill_sizes`")),
      also("--cuda-graph-max-bs-prefill",
           integer("piecewise_cuda_graph_max_tokens", {1, 1 << 20}, "`graph_prefill_sizes` by rule up to N")),
      also("--cuda-graph-tc-compiler",
           text("piecewise_cuda_graph_compiler", "NAME", "eager, or inductor (with a notice)")),
      flag("enable_piecewise_npu_graph_decode", "`graph_decode` piecewise"),
      text("compilation_config", "JSON",
           "keys compiler, splitting_ops, capture_sizes, enable_debug_mode, decode, prefill"),
      text("cuda_graph_config", "JSON", "{\"decode\": {\"backend\", \"max_bs\", \"bs\"}, ...}"),
      choice("cuda_graph_backend_decode", {"full", "breakable", "tc_piecewise", "disabled"},
             "`graph_decode` whole, piecewise, piecewise, off"),
      choice("cuda_graph_backend_prefill", {"breakable", "tc_piecewise", "disabled"},
             "`graph_prefill` piecewise, piecewise, off"),
  };
}

}  // namespace reprise::settings
