#include "settings/tables.h"

namespace reprise::settings {

std::vector<Setting> speculation_rows() {
  return {
      also("--speculative-algo",
           text("speculative_algorithm", "NAME",
                "guess tokens and verify several in one step, which changes no bit of an answer: NGRAM (text that was "
                "there before goes on as it did), SUFFIX (the same by frequency, with earlier answers of the same "
                "cache_salt), STANDALONE (a second model guesses), NEXTN or MTP (the checkpoint's layer that predicts "
                "further tokens), EAGLE, EAGLE3 (a head that was trained for the model; EAGLE without one is NEXTN), "
                "none",
                "none")),
      also("--speculative-draft-model", text("speculative_draft_model_path", "MODEL",
                                             "what guesses: for STANDALONE a smaller model with the same vocabulary, "
                                             "for EAGLE and EAGLE3 the head; as `model_path`")),
      choice("speculative_draft_model_quantization",
             {"auto", "none", "w8a8_int8", "modelslim", "compressed-tensors", "gguf", "mxfp4"},
             "of that model; default: as `quantization`; for EAGLE and EAGLE3 auto"),
      choice("speculative_draft_load_format", {"auto", "safetensors", "gguf", "dummy"},
             "of that model; default: as `load_format`"),
      integer("speculative_num_draft_tokens", {1, 64},
              "rows of one sequence in a step: its last token and its drafts (default 8; where a model or a head "
              "guesses 4)"),
      integer("speculative_num_steps", {1, 63}, "drafts of one sequence in a step: one less than its rows"),
      choice("speculative_adaptive", {"on", "off"},
             "on: measured step times say how many drafts a step has; off: as many as there are", "on"),
      integer("speculative_max_rows", {1, 4096},
              "rows of a step that has drafts; default: the largest decode size, and where graphs freeze sizes all "
              "drafts of the largest batch"),
      choice("speculative_exact", {"auto", "required"},
             "required: no start where drafts are asked for and this device or model cannot verify them, or may give "
             "other bits with them; auto: a notice",
             "auto"),
      integer("speculative_ngram_min_match_window_size", {1, 64}, "shortest match that is gone on from", "3"),
      integer("speculative_ngram_max_match_window_size", {1, 64}, "longest match that NGRAM tells from others", "12"),
      integer("speculative_ngram_max_trie_depth", {1, 64}, "longest match that SUFFIX tells from others", "24"),
      integer("speculative_ngram_capacity", {1, int64_t{1} << 30}, "tokens of earlier answers that SUFFIX keeps",
              "10000000"),
      real("speculative_accept_threshold_single", {0, 1},
           "1: a draft is accepted when it is the token that is drawn; less would change answers, and is refused"),
      real("speculative_accept_threshold_acc", {0, 1}, "as `speculative_accept_threshold_single`"),
      text("speculative_config", "JSON",
           "vLLM's words: method (ngram, suffix, draft_model, mtp, eagle, eagle3), model, num_speculative_tokens, "
           "prompt_lookup_min, "
           "prompt_lookup_max, "
           "suffix_decoding_max_tree_depth, suffix_decoding_max_cached_requests, suffix_decoding_max_spec_factor, "
           "suffix_decoding_min_token_prob"),
  };
}

}  // namespace reprise::settings
