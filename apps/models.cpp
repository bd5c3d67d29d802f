// `reprise models`: the models that are on this machine, or the families that can be run.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "api/kept_models.h"
#include "command.h"
#include "common/flags.h"
#include "models/model.h"
#include "verification/model_tests.h"

namespace reprise::apps {

using namespace api;

namespace {

std::string names_in(const OrderedJson& object) {
  std::string out;
  for (const auto& item : object.items()) out += (out.empty() ? "" : " ") + item.key();
  return out;
}

// As docs/model-coverage.md has it, with words in place of tests.
std::string families_table() {
  std::string out = fmt::format("{:<36}{:<20}{:<14}{:<17}{}\n", "architecture", "model_type", "gguf", "graph modes on",
                                "features tested");
  for (const models::ModelSpec* m : models::all_models()) {
    const checkpoint::Family& f = m->family;
    std::string also(f.wrapper);
    if (!f.other_architecture.empty()) also += (also.empty() ? "" : ", ") + std::string(f.other_architecture);
    const OrderedJson tests = verification::tests_of_family(f.architecture);
    out += fmt::format("{:<36}{:<20}{:<14}{:<17}{}\n", f.architecture, f.model_type,
                       f.gguf.name.empty() ? "-" : f.gguf.name, names_in(tests.value("graph_modes", OrderedJson())),
                       names_in(tests.value("features", OrderedJson())));
    if (!also.empty()) out += fmt::format("  also {}\n", also);
  }
  return out;
}

OrderedJson families_json() {
  OrderedJson out = OrderedJson::array();
  for (const models::ModelSpec* m : models::all_models()) {
    const checkpoint::Family& f = m->family;
    OrderedJson row{{"architecture", f.architecture}, {"model_type", f.model_type}, {"gguf", f.gguf.name}};
    for (const std::string_view also : {f.wrapper, f.other_architecture})
      if (!also.empty()) row["also"].push_back(also);
    row.update(verification::tests_of_family(f.architecture));
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace

Command add_models(CLI::App& program) {
  struct Flags {
    bool json = false, families = false;
    HubOptions hub;
  };
  auto flags = std::make_shared<Flags>();
  Command c;
  c.app = program.add_subcommand("models", "List the models on this machine, and whether they fit its memory");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  add_switch(*c.app, "--families", flags->families, "list the families of models that can be run, not the models here");
  add_text(*c.app, "--download-dir", flags->hub.download_dir, "the folder of hub models to look into, alone", "DIR");
  c.app->footer(
      "Looked into are the caches of Hugging Face's and ModelScope's tools and $REPRISE_CACHE. The first column is "
      "what\n"
      "--model-path takes. \"memory\" reckons with weights as they are kept in memory and the KV cache of one "
      "sequence,\n"
      "within 0.8 of the machine's memory. What is incomplete, broken or of an unknown kind is listed with the "
      "reason.\n--families: the devices on which tests run a family eagerly, in pieces and in whole graphs, and the "
      "features that\ntests show with it; --json has the tests, and why there is none.");
  c.check = [flags] { return open_hub(flags->hub).status(); };
  c.run = [flags]() -> Status {
    if (flags->families) {
      fmt::print("{}", flags->json ? families_json().dump() + "\n" : families_table());
      return Status::ok();
    }
    ASSIGN_OR_RETURN(const auto models, api::listed_models(flags->hub));
    fmt::print("{}", flags->json ? api::models_json(models).dump() + "\n" : api::models_table(models));
    return Status::ok();
  };
  return c;
}

}  // namespace reprise::apps
