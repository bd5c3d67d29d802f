// `reprise serve`: the HTTP server.
#include <CLI/CLI.hpp>
#include <memory>

#include "command.h"
#include "common/command_settings.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "service/serve_settings.h"

namespace reprise::apps {

namespace {

using service::ServeSettings;

void add_flags(CLI::App& app, ServeSettings& s) {
  add_settings(app, s.bindings());
  add_run_settings(app, s.options.model);
}

// The options that these settings make, with nothing of this process changed.
Result<std::shared_ptr<service::ServeOptions>> interpret(const settings::Precedence& given) {
  auto flags = std::make_shared<ServeSettings>();
  CLI::App scratch("", "serve");
  add_flags(scratch, *flags);
  RETURN_IF_ERROR(CommandSettings::of(scratch)->assign(given));
  RETURN_IF_ERROR(flags->resolve());
  return std::shared_ptr<service::ServeOptions>(flags, &flags->options);
}

Status check(ServeSettings& flags, CLI::App& app) {
  ASSIGN_OR_RETURN(const log::Level level, flags.options.model.level());
  log::set_level(level);
  const auto settings = CommandSettings::of(app);
  flags.options.given = settings->given();
  flags.options.given_by_then = [settings] { return settings->with_file_of_now(); };
  flags.options.interpret = interpret;
  return flags.resolve();
}

}  // namespace

Command add_serve(CLI::App& program) {
  auto flags = std::make_shared<ServeSettings>();
  Command c;
  c.app = program.add_subcommand("serve", "Serve a model over HTTP (OpenAI's API, and SGLang's /generate)");
  add_flags(*c.app, *flags);
  c.app->footer("Try it: curl http://127.0.0.1:30000/v1/completions -d '{\"prompt\": \"Hello\", \"max_tokens\": 8}'");
  c.check = [flags, app = c.app] { return check(*flags, *app); };
  c.over_ranks = [flags] { return flags->options.check ? nullptr : &flags->options.model; };
  c.run = [flags] { return service::serve(flags->options); };
  return c;
}

}  // namespace reprise::apps
