#include "client/server_probe.h"

#include "client/load.h"

namespace reprise::client {

HttpCallOptions call_options(const std::string& api_key, double timeout_s) {
  HttpCallOptions o;
  if (!api_key.empty()) o.headers.emplace_back("authorization", "Bearer " + api_key);
  o.silence = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3));
  return o;
}

GenerationRecord call_once(HttpCalls& http, const GenerationCall& call, const GenerationStyle& style) {
  return std::move(run_load(http, {&call, 1}, style, {}).records.front());
}

Result<ServerFacts> probe_server(HttpCalls& http, const std::string& url, std::string_view named_by) {
  const auto get = [&](const std::string& path) { return http.fetch({"GET", path, ""}); };
  auto models = get("/v1/models");
  if (!models)
    return error(models.status().code(), "{}: {}; start a server (reprise serve) or name one (--base-url)", url,
                 models.status().message());
  if (models->status != 200)
    return error(Code::Invalid, "{}/v1/models answers {}: {}", url, models->status, models->body.substr(0, 200));
  ASSIGN_OR_RETURN(const Json list, parse_json(models->body, url + "/v1/models"));
  const auto data = list.is_object() ? list.find("data") : list.end();
  if (!list.is_object() || data == list.end() || !data->is_array() || data->empty() || !data->front().is_object() ||
      !data->front().contains("id") || !data->front()["id"].is_string())
    return error(Code::Invalid, "{}/v1/models names no model; {} gives one", url, named_by);
  ServerFacts facts;
  const Json& card = data->front();
  facts.model = card["id"].get<std::string>();
  const auto size = [&](const Json& from, const char* key) {
    if (from.is_object() && from.contains(key) && from[key].is_number_integer() && from[key] > 0)
      facts.vocab_size = from[key].get<int64_t>();
  };
  if (card.contains("meta")) size(card["meta"], "n_vocab");
  if (facts.vocab_size) return facts;
  const auto info = get("/model_info");
  if (info && info->status == 200) size(Json::parse(info->body, nullptr, false), "vocab_size");
  return facts;
}

}  // namespace reprise::client
