#include "server/served_model.h"

#include <algorithm>
#include <ctime>

#include "sched/image_prompt.h"

namespace reprise::server {

size_t longest_token_of(const text::Tokenizer& tokenizer) {
  size_t longest = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (const auto bytes = tokenizer.token_bytes(id)) longest = std::max(longest, bytes->size());
    // Special tokens have a text that prompts may hold.
    if (const auto text = tokenizer.id_to_token(id)) longest = std::max(longest, text->size());
  }
  return longest;
}

namespace {

void set_videos(ServedImages& out, const ServedModel& m, const engine::Engine& e) {
  const checkpoint::VisionFields& vision = *e.config().vision;
  auto rules = sched::video_rules(m.path, vision, e.max_image_rows());
  const auto mark = m.tokenizer->id_to_token(static_cast<int32_t>(vision.video_token));
  if (!rules) {
    out.videos_problem = rules.status().message();
  } else if (!mark) {
    out.videos_problem = fmt::format("the tokenizer has no token {}, which stands for videos", vision.video_token);
  } else {
    out.videos = std::move(*rules);
    out.video_token = vision.video_token;
    out.video_mark = std::string(*mark);
  }
}

void set_images(ServedModel& m, const engine::Engine& e) {
  const auto& vision = e.config().vision;
  if (!vision) m.images_problem = sched::reads_no_images(e.config());
  if (!vision || !m.tokenizer) return;
  auto rules = sched::patch_rules(m.path, *vision, e.max_image_rows());
  const auto mark = m.tokenizer->id_to_token(static_cast<int32_t>(vision->image_token));
  if (!rules)
    m.images_problem = rules.status().message();
  else if (!mark)
    m.images_problem = fmt::format("the tokenizer has no token {}, which stands for images", vision->image_token);
  else
    m.images = ServedImages{.rules = std::move(*rules), .token = vision->image_token, .mark = std::string(*mark)};
  if (m.images) set_videos(*m.images, m, e);
}

}  // namespace

ServedModel ServedModel::of(const ServedText& t, const engine::Engine& e) {
  ServedModel m;
  m.path = t.path;
  m.name = t.name;
  if (t.tokenizer) {
    m.tokenizer = *t.tokenizer;
    m.longest_token_bytes = longest_token_of(*m.tokenizer);
  }
  m.chat_template = t.chat_template;
  m.chat_template_problem = t.chat_template_problem;
  if (m.chat_template) {
    const std::string& source = m.chat_template->source();
    m.tool_format =
        t.tool_call_parser == "auto" ? tool_format_of_template(source) : parse_tool_format(t.tool_call_parser).value();
    m.reasoning = t.reasoning_parser == "auto" ? shows_thoughts(source) : t.reasoning_parser != "none";
    m.thought = thought_marks_of_template(source);
    m.harmony = m.tool_format == ToolFormat::Harmony || (t.reasoning_parser == "auto" && shows_harmony(source));
    for (const ReasoningParser& p : reasoning_parsers()) {
      if (p.name != t.reasoning_parser) continue;
      m.thought = marks_of(p, source);
      m.thinks_first = p.thinks_first;
      m.harmony |= p.harmony;
    }
  }
  m.defaults = t.defaults;
  for (int64_t id : e.config().eos_token_ids) m.eos_tokens.push_back(static_cast<int32_t>(id));
  m.context_length = e.context_length();
  m.vocab_size = e.vocab_size();
  set_images(m, e);
  m.pooling = e.pooling();
  m.pooled_size = e.pooled_size();
  m.created = static_cast<int64_t>(std::time(nullptr));
  return m;
}

}  // namespace reprise::server
