#include "common/server_flags.h"

#include <CLI/CLI.hpp>

#include "common/flags.h"

namespace reprise::apps {

void ServerFlags::add_to(CLI::App& app) {
  add_text(app, "--base-url", base_url, "ask the server at this address in place of a model of our own", "URL");
  add_integer(app, "--parallel", parallel, {1, 1 << 20}, "questions in flight at a server (default: 32)");
  add_text(app, "--server-model", model, "name of its model (default: the first of /v1/models)", "NAME");
  add_text(app, "--api-key", api_key, "sent to the server as \"Authorization: Bearer KEY\"", "KEY");
  add_real(app, "--timeout", timeout_s, {0.1, 1e6},
           "seconds without a byte after which a question failed (default: 600)");
}

Status ServerFlags::check(const std::string& model_path) const {
  const bool described = parallel || timeout_s || !model.empty() || !api_key.empty();
  if (!is_asked() && described)
    return invalid("--parallel, --timeout, --server-model and --api-key are about a server; they need --base-url URL");
  if (is_asked() && !model_path.empty())
    return invalid("--base-url asks a server, which has its model; leave out --model-path");
  return Status::ok();
}

evaluation::AskedServer ServerFlags::place() const {
  evaluation::AskedServer out{base_url, model, api_key, "--server-model"};
  out.parallel = parallel.value_or(out.parallel);
  out.timeout_s = timeout_s.value_or(out.timeout_s);
  return out;
}

}  // namespace reprise::apps
