#include "settings/tables.h"

namespace reprise::settings {

std::vector<Setting> sampling_rows() {
  return {
      also("-n,--max-tokens,--predict,--n-predict",
           integer("max_new_tokens", {1, kMany}, "most tokens of an answer", "128")),
      integer("min_new_tokens", {0, kMany}, "end tokens are not drawn before that many", "0"),
      by_model(also("--temp", real("temperature", {0, kEndless},
                                   "0: always the likeliest token; default: the model's own, else 1"))),
      by_model(real("top_p", {0, 1, true},
                    "draw among the likeliest tokens that make up this share; default: the model's own, else 1")),
      by_model(integer("top_k", {-1, kMany}, "draw among that many; 0 or -1: all; default: the model's own, else 0")),
      by_model(real("min_p", {0, 1},
                    "drop tokens less likely than this share of the likeliest; default: the model's own, else 0")),
      by_model(also("--repeat-penalty", real("repetition_penalty", {0, kEndless, true},
                                             "of tokens in prompt and answer; default: the model's own, else 1"))),
      real("presence_penalty", {-2, 2}, "of tokens in the answer", "0"),
      real("frequency_penalty", {-2, 2}, "of tokens in the answer, for each time", "0"),
      texts("stop", "TEXT", "text that ends the answer and is not shown; repeatable"),
      also("-s", integer("seed", {0, kMany}, "the same seed draws the same answer; default: `random_seed`")),
      flag("ignore_eos", "go on after an end token"),
  };
}

}  // namespace reprise::settings
