// ServedModel: the model that a server answers for: its names, its text side and its bounds. Immutable; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/generation_config.h"
#include "engine/engine.h"
#include "images/patches.h"
#include "sched/adapter_table.h"
#include "sched/image_prompt.h"
#include "server/answer_grammar.h"
#include "server/answer_splitter.h"
#include "server/thought_marks.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace reprise::server {

// The bytes of the tokenizer's longest token.
size_t longest_token_of(const text::Tokenizer& tokenizer);

// What is known of the weights, for those who list models.
struct WeightFacts {
  std::string architecture;  // "llama", as GGUF files call it
  std::string format;        // "gguf" or "safetensors"; "" without files
  std::string type;          // of most weights, as the files name it: "Q4_1", "BF16"
  std::string digest;        // SHA-256 over names, sizes and times of the files, "" where it could not be made
  int64_t parameters = 0;
  uint64_t bytes = 0;         // of the tensors, as stored
  uint64_t device_bytes = 0;  // of them in the memory of an accelerator
  int64_t modified = 0;       // seconds since 1970
};

// The text side that a served model is made of. What is pointed to outlives the served model.
struct ServedText {
  std::string path, name;
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;
  std::string chat_template_problem;                                 // why there is none
  std::string tool_call_parser = "auto", reasoning_parser = "auto";  // auto: as the chat template shows
  checkpoint::GenerationDefaults defaults;
};

// How a model with a vision tower takes images.
struct ServedImages {
  images::PatchRules rules;
  int64_t token = 0;                             // in a prompt, the place of an image
  std::string mark;                              // what a template writes for it
  std::optional<sched::VideoRules> videos = {};  // none: it reads no videos
  std::string videos_problem = {};               // why not
  int64_t video_token = -1;
  std::string video_mark = {};
};

struct ServedModel {
  // Without grammars, which AnswerGrammars::of() makes.
  static ServedModel of(const ServedText& text, const engine::Engine& engine);

  std::string name;  // what clients call it
  std::string path;
  std::optional<text::Tokenizer> tokenizer;           // without one only token ids are served
  const text::ChatTemplate* chat_template = nullptr;  // outlives it; null: none
  std::string chat_template_problem;                  // why there is none
  ToolFormat tool_format = ToolFormat::None;          // how it writes calls of its own accord
  bool reasoning = false;                             // its answers may begin with a thought
  ThoughtMarks thought;                               // between these
  bool thinks_first = false;                          // and do so even where neither prompt nor answer shows the mark
  bool harmony = false;                               // they are messages of the harmony format
  const sched::AdapterTable* adapters = nullptr;      // outlives it; null: requests choose none
  AnswerGrammars* grammars = nullptr;                 // outlives it; null without a tokenizer
  checkpoint::GenerationDefaults defaults;            // where a request is silent
  std::vector<int32_t> eos_tokens;
  std::optional<ServedImages> images;  // none: it reads no images
  std::string images_problem;          // why not
  int64_t context_length = 0;
  int64_t vocab_size = 0;
  checkpoint::PoolingFields pooling;  // of a model that gives vectors or scores, rows of `pooled_size` numbers
  int64_t pooled_size = 0;            // 0: it generates
  size_t longest_token_bytes = 0;     // of text that one token can stand for; 0: not known
  int64_t created = 0;                // seconds since 1970
  WeightFacts weights;
};

}  // namespace reprise::server
