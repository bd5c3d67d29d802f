#include "common/asked_server.h"

#include <CLI/CLI.hpp>

#include "base/progress.h"
#include "client/server_probe.h"
#include "common/flags.h"

namespace reprise::apps {

void AskedServer::add_to(CLI::App& app) {
  add_text(app, "--base-url", base_url, "ask the server at this address in place of a model of our own", "URL");
  add_integer(app, "--parallel", parallel, {1, 1 << 20}, "questions in flight at a server (default: 32)");
  add_text(app, "--server-model", model, "name of its model (default: the first of /v1/models)", "NAME");
  add_text(app, "--api-key", api_key, "sent to the server as \"Authorization: Bearer KEY\"", "KEY");
  add_real(app, "--timeout", timeout_s, {0.1, 1e6},
           "seconds without a byte after which a question failed (default: 600)");
}

Status AskedServer::check(const std::string& model_path) const {
  const bool described = parallel || timeout_s || !model.empty() || !api_key.empty();
  if (!is_asked() && described)
    return invalid("--parallel, --timeout, --server-model and --api-key are about a server; they need --base-url URL");
  if (is_asked() && !model_path.empty())
    return invalid("--base-url asks a server, which has its model; leave out --model-path");
  return Status::ok();
}

Result<client::LoadRun> AskedServer::ask_all(const std::vector<client::GenerationCall>& calls,
                                             client::GenerationStyle style, std::string_view title,
                                             const std::function<std::string(size_t call)>& question) const {
  ASSIGN_OR_RETURN(const auto http,
                   client::HttpCalls::open(base_url, client::call_options(api_key, timeout_s.value_or(600))));
  style.model = model;
  if (style.model.empty()) {
    ASSIGN_OR_RETURN(const client::ServerFacts facts, client::probe_server(*http, base_url, "--server-model"));
    style.model = facts.model;
  }
  client::LoadOptions load;
  load.max_concurrency = parallel.value_or(32);
  Progress bar(std::string(title), calls.size());
  client::LoadRun run =
      client::run_load(*http, calls, style, load, [&](const client::GenerationRecord&) { bar.advance(1); });
  for (size_t i = 0; i < run.records.size(); ++i)
    if (!run.records[i].ok)
      return error(Code::Invalid, "{}: question {} was not answered: {}", base_url, question(i),
                   run.records[i].problem);
  return run;
}

}  // namespace reprise::apps
