// `reprise models`: the models that are on this machine.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "command.h"
#include "common/flags.h"
#include "common/kept_models.h"

namespace reprise::apps {

using namespace api;

Command add_models(CLI::App& program) {
  struct Flags {
    bool json = false;
    HubOptions hub;
  };
  auto flags = std::make_shared<Flags>();
  Command c;
  c.app = program.add_subcommand("models", "List the models on this machine, and whether they fit its memory");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  add_text(*c.app, "--download-dir", flags->hub.download_dir, "the folder of hub models to look into, alone", "DIR");
  c.app->footer(
      "Looked into are the caches of Hugging Face's and ModelScope's tools and $REPRISE_CACHE. The first column is "
      "what\n"
      "--model-path takes. \"memory\" reckons with weights as they are kept in memory and the KV cache of one "
      "sequence,\n"
      "within 0.8 of the machine's memory. What is incomplete, broken or of an unknown kind is listed with the "
      "reason.");
  c.check = [flags] { return open_hub(flags->hub).status(); };
  c.run = [flags]() -> Status {
    ASSIGN_OR_RETURN(const auto models, listed_models(flags->hub));
    fmt::print("{}", flags->json ? models_json(models).dump() + "\n" : models_table(models));
    return Status::ok();
  };
  return c;
}

}  // namespace reprise::apps
