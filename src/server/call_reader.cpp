#include "server/call_reader.h"

#include <algorithm>

#include "sched/image_prompt.h"
#include "server/ids.h"

namespace reprise::server {

void hold_to(Fields& f, const char* field, const AnswerForm& form, GenerateCall& call, const ServedModel& model) {
  if (!model.grammars) return f.fail(field, "this model has no tokenizer, so its answers cannot be held to a form");
  auto masks = model.grammars->masks(form);
  if (masks)
    call.grammar = std::move(*masks);
  else
    f.fail(field, masks.status().message());
}

void hold_to_or_call(Fields& f, const char* field, AnswerForm form, ChatTools& tools, GenerateCall& call,
                     const ServedModel& model) {
  // Who writes a pattern or a list of texts says all that the answer may be.
  const bool json =
      std::holds_alternative<AnswerForm::AnyObject>(form.what) || std::holds_alternative<AnswerForm::Schema>(form.what);
  if (json && !tools.list.is_null()) {
    tools.or_form = true;
    if (!has_call_form(tools.format)) {
      tools.in_system_prompt = true;
      tools.format = ToolFormat::Hermes;
    }
    form.calls = CallForm{tools.format, tools.list, tools.several};
  }
  hold_to(f, field, form, call, model);
}

std::string served_names(const ServedModel& model) {
  std::string out = fmt::format("\"{}\"", model.name);
  if (model.adapters)
    for (const sched::AdapterPtr& a : model.adapters->list()) out += fmt::format(", \"{}\"", a->name);
  return out;
}

void check_model(Fields& f, GenerateCall& call, const ServedModel& model) {
  const auto name = f.maybe_text("model");
  if (!name || f.error() || *name == model.name || *name == model.path) return;
  if (model.adapters) {
    call.adapter = model.adapters->find(*name);
    const std::string prefix = model.name + ":";
    if (!call.adapter && name->starts_with(prefix)) call.adapter = model.adapters->find(name->substr(prefix.size()));
    if (call.adapter) return;
  }
  f.take(ApiError{404, fmt::format("the model \"{}\" is not served here; there is {}", *name, served_names(model)),
                  "model", "model_not_found"});
}

void read_adapter(Fields& f, GenerateCall& call, const ServedModel& model) {
  constexpr const char* kField = "lora_path";
  const Json* v = f.find(kField);
  if (!v || f.error()) return;
  // One for all prompts, also where it is said of each.
  std::string name;
  if (v->is_string()) {
    name = v->get<std::string>();
  } else if (v->is_array() && !v->empty() && (*v)[0].is_string() &&
             std::all_of(v->begin(), v->end(), [&](const Json& one) { return one == (*v)[0]; })) {
    name = (*v)[0].get<std::string>();
  } else {
    return f.fail(kField, "the name of an adapter is expected, or a list with the same name for every prompt");
  }
  const sched::AdapterPtr found = model.adapters ? model.adapters->find(name) : nullptr;
  if (!found)
    return f.take(ApiError{404, fmt::format("the adapter \"{}\" is not loaded; there is {}", name, served_names(model)),
                           kField, "model_not_found"});
  if (call.adapter && call.adapter != found)
    return f.fail(kField, fmt::format("it names another adapter than \"model\", which is \"{}\"", call.adapter->name));
  call.adapter = found;
}

void check_call(Fields& f, const GenerateCall& call, const ServedModel& model, const CallLimits& limits,
                const char* prompt_name) {
  if (f.error()) return;
  const auto answers = static_cast<int64_t>(call.prompts.size()) * call.n;
  if (answers > limits.most_answers)
    return f.fail("n", fmt::format("{} prompts with {} answers each are more than {} in one request",
                                   call.prompts.size(), call.n, limits.most_answers));
  int64_t tokens = 0;
  for (size_t i = 0; i < call.prompts.size(); ++i) {
    const auto size = static_cast<int64_t>(call.prompts[i].size());
    if (size == 0) return f.fail(prompt_name, "the prompt is empty; at least one token is needed");
    if (size >= model.context_length) {
      f.take(ApiError{400,
                      fmt::format("this model's context is {} tokens; the prompt has {} and leaves no room for an "
                                  "answer",
                                  model.context_length, size),
                      prompt_name, "context_length_exceeded"});
      return;
    }
    tokens += call.n * (size + std::min(call.sampling.max_new_tokens, model.context_length - size));
  }
  if (tokens > limits.token_budget)
    return f.fail("max_tokens", fmt::format("this request may take {} tokens in all; at most {} are allowed", tokens,
                                            limits.token_budget));
  const Status ok = call.sampling.check(model.vocab_size);
  if (!ok.is_ok()) f.take(ApiError{400, ok.message()});
}

void warn_of_fields(Fields& f, const OrderedJson& body, FieldForm form, const char* path, GenerateCall& call,
                    const CallLimits& limits) {
  for (FieldWarning& w : field_warnings(body, form, path)) {
    if (limits.strict_fields) f.take(ApiError{400, w.text, w.field, "unsupported_field"});
    call.warnings.push_back(std::move(w));
  }
}

void warn(Fields& f, std::string field, std::string text, GenerateCall& call, const CallLimits& limits) {
  text = fmt::format("\"{}\" {}", field, text);
  if (limits.strict_fields) f.take(ApiError{400, text, field, "unsupported_field"});
  call.warnings.push_back({std::move(field), std::move(text)});
}

bool fits_context(Fields& f, const char* name, const std::string& text, const ServedModel& model) {
  if (model.longest_token_bytes == 0) return true;
  const size_t most = model.longest_token_bytes * static_cast<size_t>(model.context_length);
  if (text.size() <= most) return true;
  f.take(
      ApiError{400,
               fmt::format("the prompt has {} bytes; this model's context of {} tokens holds at most {} (its longest "
                           "token has {})",
                           text.size(), model.context_length, most, model.longest_token_bytes),
               name, "context_length_exceeded"});
  return false;
}

std::string text_of_member(const OrderedJson& object, const char* name) {
  const OrderedJson* v = given(object, name);
  return v && v->is_string() ? v->get<std::string>() : std::string();
}

void add_line(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += '\n';
  text += more;
}

std::optional<OrderedJson> read_turns(Fields& f, OrderedJson turns, const ServedModel& model) {
  const OrderedJson body = {{"messages", std::move(turns)}};
  const Json plain = body;
  Fields fields(plain);
  auto out = read_messages(fields, body, model, nullptr);
  f.take(fields.error());
  return out;
}

bool template_names(const ServedModel& model, std::string_view variable) {
  return model.chat_template && model.chat_template->source().find(variable) != std::string::npos;
}

void set_effort(Fields& f, const char* field, const std::string& effort, GenerateCall& call, const ServedModel& model,
                const CallLimits& limits, text::RenderOptions& options) {
  static constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
  if (std::find(std::begin(kEfforts), std::end(kEfforts), effort) == std::end(kEfforts))
    return f.fail(field, fmt::format("one of {} is expected", fmt::join(kEfforts, ", ")));
  bool used = set_thinking(effort != "none", model, options);
  if (template_names(model, "reasoning_effort")) {
    used = true;
    if (!options.extra.contains("reasoning_effort")) options.extra["reasoning_effort"] = effort;
  }
  if (!used) warn(f, f.name_of(field), "is not used by this model's chat template", call, limits);
}

void set_variables(Fields& f, const Json& extra, const ServedModel& model, GenerateCall& call, const CallLimits& limits,
                   text::RenderOptions& options) {
  for (const auto& [key, value] : extra.items()) {
    // These are the server's to say.
    if (key == "messages" || key == "tools" || key == "add_generation_prompt" || key == "chat_template" ||
        key == "tokenize")
      f.fail("chat_template_kwargs", fmt::format("\"{}\" cannot be set here", key));
    options.extra[key] = OrderedJson(value);
    if (model.chat_template && !template_names(model, key))
      warn(f, "chat_template_kwargs." + key, "is not used by this model's chat template", call, limits);
  }
}

bool set_thinking(bool on, const ServedModel& model, text::RenderOptions& options) {
  bool used = false;
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (!template_names(model, name)) continue;
    used = true;
    if (!options.extra.contains(name)) options.extra[name] = on;
  }
  return used;
}

void check_chats(Fields& f, const char* field, const ServedModel& model) {
  if (!model.tokenizer) f.fail(field, "this model has no tokenizer; only /v1/completions with token ids is served");
  if (!model.chat_template)
    f.fail(field, model.chat_template_problem.empty() ? "this model has no chat template; --chat-template gives one"
                                                      : model.chat_template_problem);
}

namespace {

// What clients write as text and stands for an image or a video: the template gets another word for it, and the prompt
// has it as text, which is no place of one.
class PlainMarks {
 public:
  explicit PlainMarks(const ServedModel& model) {
    if (!model.images) return;
    for (const std::string& mark : {model.images->mark, model.images->video_mark})
      if (!mark.empty()) marks_.push_back({mark, fmt::format("mark{:016x}{:016x}", random_bits(), random_bits())});
  }

  void hide(OrderedJson& in) {
    if (marks_.empty()) return;
    if (in.is_structured())
      for (OrderedJson& e : in) hide(e);
    else if (in.is_string())
      for (const Mark& m : marks_) replace(in.get_ref<std::string&>(), m.mark, m.word);
  }
  void show(std::string& prompt) const {
    for (const Mark& m : marks_) replace(prompt, m.word, m.mark);
  }

  Result<std::vector<int32_t>> encode(const text::Tokenizer& tokenizer, std::string_view prompt) const {
    std::vector<int32_t> out;
    const auto add = [&](std::string_view text, bool special) -> Status {
      if (text.empty()) return Status::ok();
      ASSIGN_OR_RETURN(const auto ids, tokenizer.encode(text, {.add_special_tokens = false, .parse_special = special}));
      out.insert(out.end(), ids.begin(), ids.end());
      return Status::ok();
    };
    while (true) {
      const Mark* next = nullptr;
      size_t at = prompt.npos;
      for (const Mark& m : marks_)
        if (const size_t found = prompt.find(m.word); found < at) next = &m, at = found;
      if (!next) break;
      RETURN_IF_ERROR(add(prompt.substr(0, at), true));
      RETURN_IF_ERROR(add(next->mark, false));
      prompt.remove_prefix(at + next->word.size());
    }
    RETURN_IF_ERROR(add(prompt, true));
    return out;
  }

 private:
  struct Mark {
    std::string mark, word;
  };

  static void replace(std::string& in, const std::string& from, const std::string& to) {
    for (size_t at = 0; !from.empty() && (at = in.find(from, at)) != std::string::npos; at += to.size())
      in.replace(at, from.size(), to);
  }

  std::vector<Mark> marks_;
};

}  // namespace

void place_images(Fields& f, const char* field, GenerateCall& call, const ServedModel& model) {
  if (call.images.empty() || f.error()) return;
  auto placed =
      sched::place_images(call.prompts.front(), std::move(call.images), model.images->token, model.images->video_token);
  if (!placed) return f.fail(field, placed.status().message());
  call.prompts.front() = std::move(placed->tokens);
  call.images = std::move(placed->images);
}

void write_prompt(Fields& f, const char* field, ChatTurn turn, GenerateCall& call, const ServedModel& model) {
  const ChatTools& tools = turn.tools;
  // Results of tools find their calls by these names in later turns.
  if (model.tool_format == ToolFormat::Kimi) call.split.earlier_calls = count_calls(turn.messages);
  call.split.short_ids = model.tool_format == ToolFormat::Mistral;
  if (call.split.short_ids) turn.messages = shorten_ids(std::move(turn.messages));
  if (tools.in_system_prompt)
    turn.messages = tell_tools(std::move(turn.messages), tools);
  else if (model.tool_format == ToolFormat::Phi4 && !tools.list.is_null())
    turn.messages = place_tools(std::move(turn.messages), tools.list);
  else
    turn.messages = write_past_calls(std::move(turn.messages), model);
  OrderedJson shown = tools.in_system_prompt ? OrderedJson() : tools.list;
  if (model.harmony) {
    if (template_names(model, "thinking")) turn.messages = name_thoughts(std::move(turn.messages));
    shown = describe_tools(std::move(shown));
  }
  PlainMarks marks(model);
  marks.hide(turn.messages);
  marks.hide(shown);
  auto prompt = model.chat_template->render(turn.messages, shown, turn.options);
  if (!prompt && tools.in_system_prompt)
    prompt = model.chat_template->render(without_system(turn.messages), shown, turn.options);
  if (!prompt) return f.fail(field, prompt.status().message());
  if (model.images && model.images->videos)
    *prompt = sched::tell_times(std::move(*prompt), call.images, model.images->video_mark, *model.images->videos);
  call.split.reasoning = model.reasoning && turn.separate_reasoning;
  call.split.thought = model.thought;
  call.split.begins_in_thought = ends_in_thought(*prompt, model.thought) || model.thinks_first;
  call.split.begins_in_answer = ends_in_answer(*prompt, model.thought);
  call.split.tools = tools.format;
  call.split.list = std::make_shared<const OrderedJson>(tools.list);
  // An answer that is held to a form of its own has no messages.
  call.split.calls_alone = tools.or_form;
  call.split.harmony =
      model.harmony && !tools.or_form && tools.format != ToolFormat::List && tools.format != ToolFormat::Arguments;
  if (call.split.harmony || marks_are_special(tools.format) || (call.split.reasoning && model.thought.special))
    call.skip_special_tokens = false;
  call.split.tool = tools.name;
  // The template has written the special tokens itself.
  if (fits_context(f, field, *prompt, model)) {
    auto ids = marks.encode(*model.tokenizer, *prompt);
    if (!ids)
      f.take(ApiError::from(ids.status()));
    else
      call.prompts.push_back(std::move(*ids));
  }
  place_images(f, field, call, model);
  marks.show(*prompt);
  call.prompt_texts.push_back(std::move(*prompt));
}

engine::SamplingParams default_sampling(const ServedModel& model) {
  const checkpoint::SamplingDefaults d = checkpoint::sampling_defaults(model.defaults);
  engine::SamplingParams p;
  p.temperature = d.temperature;
  p.top_p = d.top_p;
  p.top_k = d.top_k;
  p.min_p = d.min_p;
  p.repetition_penalty = d.repetition_penalty;
  p.seed = random_bits();
  for (const int64_t id : model.defaults.eos_token_ids) p.stop_token_ids.push_back(static_cast<int32_t>(id));
  return p;
}

void read_stops(Fields& f, const char* field, GenerateCall& call, const CallLimits& limits) {
  call.sampling.stop = f.texts(field, limits.most_stops);
  for (const std::string& s : call.sampling.stop)
    if (s.empty()) f.fail(field, "an empty string would stop everywhere");
}

void warn_of_tools(Fields& f, const ChatTools& tools, GenerateCall& call, const CallLimits& limits) {
  if (tools.list.is_null() || tools.form || tools.or_form) return;
  if (!tools.several)
    warn(f, "parallel_tool_calls", "is not honoured with tool_choice \"auto\"; there is \"required\"", call, limits);
  for (size_t i = 0; i < tools.list.size(); ++i)
    if (tools.list[i]["function"].value("strict", OrderedJson()) == true) {
      warn(f, fmt::format("tools[{}].function.strict", i),
           "is not honoured with tool_choice \"auto\"; there is \"required\"", call, limits);
      break;
    }
}

}  // namespace reprise::server
