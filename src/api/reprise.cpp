#include "api/reprise.h"

#include <atomic>

#include "api/model_settings.h"
#include "api/sampling_settings.h"
#include "api/text_generator.h"
#include "api/text_model.h"
#include "base/log_form.h"
#include "see/explain.h"

namespace reprise::api {
namespace {

static_assert(static_cast<int>(LogLevel::Off) == static_cast<int>(log::Level::Off));

std::atomic<bool> g_log_set{false};

void tell(const Status& status, Error& error) {
  error = {std::string(code_name(status.code())), status.message(), settings::named_in(status.message())};
}

// What the result holds; else nothing, and why.
template <typename Value>
std::optional<Value> told(Result<Value> result, Error& error) {
  if (result) return std::move(result).value();
  tell(result.status(), error);
  return std::nullopt;
}

Status set_all(const Options& options, std::span<const settings::Binding> bindings) {
  for (const auto& [name, value] : options) RETURN_IF_ERROR(settings::set(bindings, name, value));
  return Status::ok();
}

}  // namespace

struct Model::Parts {
  ModelSettings chosen;
  std::string chat_template;
  std::unique_ptr<engine::Engine> engine;
  std::optional<TextModel> text;
  std::optional<TextGenerator> generator;
  std::atomic<bool> cancelled{false};

  Status open(const Options& options);
  Result<std::vector<int32_t>> encode(const Prompt& prompt) const;
  Result<Answer> generate(const Prompt& prompt, const TextSink& on_text);
};

Status Model::Parts::open(const Options& options) {
  std::vector<settings::Binding> bindings = chosen.bindings();
  for (const settings::Binding& b : chosen.graph.bindings()) bindings.push_back(b);
  bindings.push_back({"chat_template", &chat_template});
  RETURN_IF_ERROR(set_all(options, bindings));
  RETURN_IF_ERROR(chosen.check());
  ASSIGN_OR_RETURN(engine, open_engine(chosen));
  ASSIGN_OR_RETURN(TextModel opened, TextModel::open(chosen, chat_template, *engine));
  text.emplace(std::move(opened));
  generator.emplace(*engine, text->tokenizer(), !chosen.disable_radix_cache);
  return Status::ok();
}

Result<std::vector<int32_t>> Model::Parts::encode(const Prompt& prompt) const {
  if (!prompt.token_ids.empty() + !prompt.messages.empty() + !prompt.text.empty() != 1)
    return invalid("a prompt is one of text, messages and token_ids");
  if (!prompt.token_ids.empty()) return prompt.token_ids;
  if (!prompt.text.empty()) return text->encode(prompt.text);
  OrderedJson messages = OrderedJson::array();
  for (const Message& m : prompt.messages) messages.push_back({{"role", m.role}, {"content", m.content}});
  return text->encode_chat(messages);
}

Result<Answer> Model::Parts::generate(const Prompt& prompt, const TextSink& on_text) {
  cancelled = false;
  SamplingSettings sampling;
  RETURN_IF_ERROR(set_all(prompt.sampling, sampling.bindings()));
  RETURN_IF_ERROR(sampling.check());
  sched::GenerationRequest request;
  ASSIGN_OR_RETURN(request.prompt, encode(prompt));
  request.sampling = sampling.params(text->defaults(), chosen.random_seed);
  const auto sink = [&](size_t, std::string_view piece) { return (!on_text || on_text(piece)) && !cancelled; };
  ASSIGN_OR_RETURN(auto results, generator->run({&request, 1}, sink));
  TextResult& r = results.front();
  return Answer{r.text.value_or(""), std::move(r.token_ids), std::string(sched::finish_reason_name(r.finish)),
                static_cast<int64_t>(request.prompt.size())};
}

std::optional<Options> options_of_json(std::string_view json, Error& error) {
  return told(settings::values_of_json(json), error);
}

Model::Model(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Model::~Model() = default;

std::unique_ptr<Model> Model::open(const Options& options, Error& error) {
  if (!g_log_set) log::set_level(log::Level::Warning);
  auto parts = std::make_unique<Parts>();
  if (const Status opened = parts->open(options); !opened.is_ok()) {
    tell(opened, error);
    return nullptr;
  }
  return std::unique_ptr<Model>(new Model(std::move(parts)));
}

std::optional<Answer> Model::generate(const Prompt& prompt, Error& error, const TextSink& on_text) {
  return told(parts_->generate(prompt, on_text), error);
}

void Model::cancel() { parts_->cancelled = true; }

std::string Model::explain(const std::string& phase, Error& error) const {
  if (phase != "decode" && phase != "prefill") {
    tell(invalid("phase \"{}\" is not known; allowed: decode, prefill", phase), error);
    return {};
  }
  const auto view = see::view_of_phase(*parts_->engine, phase);
  if (view) return see::explain_json(*parts_->engine, *view).dump();
  tell(view.status(), error);
  return {};
}

void set_log(LogLevel least, LogSink sink) {
  g_log_set = true;
  log::set_level(static_cast<log::Level>(least));
  if (!sink) return log::set_sink({});
  log::set_sink([sink = std::move(sink)](log::Level level, std::string_view message, const OrderedJson&) {
    sink(static_cast<LogLevel>(level), message);
  });
}

}  // namespace reprise::api
