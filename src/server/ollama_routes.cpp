// Ollama's routes about models: there is one, which the server was started with.
#include "server/api_call.h"
#include "server/dates.h"
#include "server/fields.h"
#include "server/ollama_reader.h"
#include "server/request_body.h"

namespace reprise::server {
namespace {

// "134.5M", "7.6B".
std::string size_of(int64_t parameters) {
  const auto n = static_cast<double>(parameters);
  if (n >= 1e9) return fmt::format("{:.1f}B", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.1f}M", n / 1e6);
  return fmt::format("{:.1f}K", n / 1e3);
}

OrderedJson details_of(const ServedModel& m) {
  return {{"parent_model", ""},
          {"format", m.weights.format},
          {"family", m.weights.architecture},
          {"families", OrderedJson::array({m.weights.architecture})},
          {"parameter_size", size_of(m.weights.parameters)},
          {"quantization_level", m.weights.type}};
}

OrderedJson entry_of(const ServedModel& m) {
  const std::string name = m.name.find(':') == std::string::npos ? m.name + ":latest" : m.name;
  return {{"name", name},
          {"model", name},
          {"size", m.weights.bytes},
          {"digest", m.weights.digest},
          {"details", details_of(m)}};
}

}  // namespace

void Api::ollama_version(Call& call) { call.json({{"version", REPRISE_VERSION}}); }

void Api::ollama_tags(Call& call) {
  OrderedJson entry = entry_of(*serving_.model);
  entry["modified_at"] = date_of(serving_.model->weights.modified);
  call.json({{"models", OrderedJson::array({std::move(entry)})}});
}

void Api::ollama_running(Call& call) {
  OrderedJson entry = entry_of(*serving_.model);
  entry["size_vram"] = serving_.model->weights.device_bytes;
  entry["context_length"] = serving_.model->context_length;
  call.json({{"models", OrderedJson::array({std::move(entry)})}});
}

void Api::ollama_show(Call& call) {
  ApiError error;
  const auto body = body_of<Json>(call.request.body, options_.limits, stopping_, error);
  if (!body) return call.fail(error);
  const ServedModel& m = *serving_.model;
  Fields f(*body);
  const std::string name = f.text("model", f.text("name", ""));
  if (name.empty()) f.fail("model", "it is required");
  if (!f.error() && !names_served_model(name, m))
    f.take(ApiError{404, fmt::format("the model \"{}\" is not served here; there is \"{}\"", name, m.name)});
  if (f.error()) return call.fail(*f.error());
  const std::string& arch = m.weights.architecture;
  OrderedJson info = {{"general.architecture", arch},
                      {"general.parameter_count", m.weights.parameters},
                      {arch + ".context_length", m.context_length},
                      {arch + ".vocab_size", m.vocab_size}};
  OrderedJson capabilities = OrderedJson::array({m.pooled_size > 0 ? "embedding" : "completion"});
  if (m.pooling.gives_vectors()) info[arch + ".embedding_length"] = m.pooled_size;
  if (m.chat_template && m.pooled_size == 0) capabilities.push_back("tools");
  if (m.images) capabilities.push_back("vision");
  if (m.reasoning && m.pooled_size == 0) capabilities.push_back("thinking");
  call.json({{"modified_at", date_of(m.weights.modified)},
             {"template", m.chat_template ? m.chat_template->source() : ""},
             {"details", details_of(m)},
             {"model_info", std::move(info)},
             {"capabilities", std::move(capabilities)}});
}

void Api::ollama_manages_no_models(Call& call) {
  call.fail({501,
             "this server serves the model that it was started with, and manages no others; `reprise pull` "
             "fetches models"});
}

}  // namespace reprise::server
