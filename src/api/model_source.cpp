#include "api/model_source.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <tuple>

#include "api/default_model.h"
#include "base/log.h"

namespace reprise::api {
namespace {

bool is_on_disk(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool is_packaged(std::string_view name) { return name == kDefaultModelName || name == kMinilmName; }

Result<std::string> packaged_model(std::string_view name) {
  ASSIGN_OR_RETURN(std::string path, name == kMinilmName ? minilm_folder() : default_model_file());
  if (is_on_disk(path)) return path;
  return error(Code::NotFound, "{} is not there yet ({}); fetch it with: reprise pull {}", name, path, name);
}

// The user may have meant a path.
Status neither(const Status& why, const std::string& path) {
  if (why.code() != Code::NotFound) return why;
  return error(Code::NotFound, "{}; nor is there a file or folder {} here", why.message(), path);
}

void say_which(const hub::ModelName& name, const std::string& path, const std::string& by_rule) {
  if (!by_rule.empty())
    log::notice("{}: {} ({}); {}:FILE chooses another", name.text(), std::filesystem::path(path).filename().string(),
                by_rule, name.text());
}

Result<std::string> by_name(const std::string& path, const HubOptions& options) {
  ASSIGN_OR_RETURN(const hub::ModelName name, model_name(path, options));
  ASSIGN_OR_RETURN(const hub::Hub models, open_hub(options));
  const auto kept = models.find(name);
  if (kept) {
    say_which(name, kept->path, kept->by_rule);
    return kept->path;
  }
  if (!models.settings().offline.empty())
    return neither(
        error(Code::NotFound, "{}, and {} forbids to fetch it", kept.status().message(), models.settings().offline),
        path);
  auto fetched = fetch_model(models, name, options);
  if (!fetched) return neither(fetched.status(), path);
  say_which(name, fetched->path, fetched->by_rule);
  return fetched->path;
}

}  // namespace

std::string short_name(const std::string& path) {
  if (is_model_name(path)) return path;
  std::filesystem::path p(path);
  if (p.filename().empty()) p = p.parent_path();
  return p.filename().string();
}

std::vector<settings::Binding> HubOptions::bindings() {
  return {{"revision", &revision}, {"download_dir", &download_dir}};
}

bool is_model_name(const std::string& path) {
  return !is_packaged(path) && hub::looks_like_model_name(path) && !is_on_disk(path);
}

Result<hub::ModelName> model_name(const std::string& path, const HubOptions& options) {
  ASSIGN_OR_RETURN(hub::ModelName name, hub::parse_model_name(path));
  if (options.revision.empty() || options.revision == name.revision) return name;
  if (!name.revision.empty()) return invalid("`revision` {} contradicts {}; give one of them", options.revision, path);
  RETURN_IF_ERROR(hub::check_revision(options.revision).at("`revision`"));
  name.revision = options.revision;
  return name;
}

Result<hub::Hub> open_hub(const HubOptions& options) {
  ASSIGN_OR_RETURN(hub::HubSettings settings, hub::hub_settings(::getenv));
  if (!options.download_dir.empty()) settings.cache = options.download_dir;
  return hub::Hub(std::move(settings));
}

Result<hub::FetchedModel> fetch_model(const hub::Hub& hub, const hub::ModelName& name, const HubOptions& options) {
  hub::FetchOptions how;
  how.progress = options.progress;
  if (options.stop) how.stop = options.stop;
  auto fetched = hub.fetch(name, how);
  if (!fetched && fetched.status().code() == Code::Cancelled)
    return error(Code::Cancelled, "interrupted; what has arrived is kept, and the same command goes on from there");
  return fetched;
}

Result<std::string> resolve_model_path(const std::string& path, const HubOptions& options) {
  if (is_packaged(path) && !is_on_disk(path)) return packaged_model(path);
  if (!is_model_name(path)) return path;
  // The weights and the tokenizer must be of one revision, even if another process fetches another one meanwhile.
  static std::mutex mutex;
  static std::map<std::tuple<std::string, std::string, std::string>, std::string> known;
  const std::lock_guard lock(mutex);
  std::string& found = known[{path, options.revision, options.download_dir}];
  if (found.empty()) {
    ASSIGN_OR_RETURN(found, by_name(path, options));
  }
  return found;
}

}  // namespace reprise::api
