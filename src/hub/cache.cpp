#include "hub/cache.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.h"

namespace reprise::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostKeptFiles = 100'000;
constexpr std::string_view kModels = "models--";

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

// Names of what lies in a folder, in order.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code problem;
  for (fs::directory_iterator it(folder, problem), end; !problem && it != end; it.increment(problem))
    out.push_back(it->path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

uint64_t bytes_of_partials(const std::string& folder) {
  uint64_t sum = 0;
  std::error_code problem;
  for (const std::string& name : names_in(folder)) {
    if (!name.ends_with(".incomplete")) continue;
    const auto size = fs::file_size(folder + "/" + name, problem);
    if (!problem) sum += size;
  }
  return sum;
}

// Folders of ModelScope's older tools, newest first; their names hide the dots.
std::vector<std::string> older_folders(const std::string& folder) {
  return {folder + "/models", folder + "/hub/models"};
}

bool is_new_modelscope_name(const std::string& name) { return name.find("--") != name.npos; }

// The commit that refs/REVISION holds.
std::optional<std::string> read_ref(const std::string& repo_folder, const std::string& revision) {
  auto text = read_file(repo_folder + "/refs/" + revision, 128);
  if (!text) return std::nullopt;
  while (!text->empty() && static_cast<unsigned char>(text->back()) <= ' ') text->pop_back();
  return is_commit(*text) ? std::optional(*text) : std::nullopt;
}

// All refs of a repository: revision to commit.
std::vector<std::pair<std::string, std::string>> refs_of(const std::string& repo_folder) {
  std::vector<std::pair<std::string, std::string>> out;
  const std::string folder = repo_folder + "/refs";
  std::error_code problem;
  for (fs::recursive_directory_iterator it(folder, problem), end; !problem && it != end; it.increment(problem)) {
    const std::string revision = it->path().lexically_relative(folder).string();
    if (!check_revision(revision).is_ok()) continue;
    if (auto commit = read_ref(repo_folder, revision)) out.emplace_back(revision, *commit);
  }
  std::sort(out.begin(), out.end());
  return out;
}

uint64_t bytes_of(const std::vector<RepoFile>& files) {
  uint64_t sum = 0;
  for (const RepoFile& f : files) sum += f.size;
  return sum;
}

// The shards that an index in a snapshot asks for. One that is not there is named.
Status add_kept_shards(KeptModel& model, Choice& choice, const SnapshotFiles& there, const std::string& folder) {
  const std::string path = folder + "/" + choice.index;
  ASSIGN_OR_RETURN(const std::string text, read_file(path, 64 << 20));
  ASSIGN_OR_RETURN(const auto shards, parse_index_of_shards(text, path));
  for (const std::string& name : shards) {
    const RepoFile* f = there.listing.find(name);
    if (f) choice.files.push_back(*f);
    if (!f && model.missing.empty()) model.missing = name + " is missing";
  }
  return Status::ok();
}

}  // namespace

std::string HubCache::repo_folder(const std::string& repo) const {
  const std::string flat = replaced(repo, "/", "--");
  return kind_ == HubKind::ModelScope ? folder_ + "/models/" + flat : folder_ + "/" + std::string(kModels) + flat;
}

Snapshot HubCache::snapshot(const ModelName& name, const std::string& commit) const {
  if (kind_ == HubKind::HuggingFace) return {repo_folder(name.repo) + "/snapshots/" + commit, commit};
  // As ModelScope's tools: what an older one left is used on.
  const size_t slash = name.repo.find('/');
  const std::string hidden = name.repo.substr(0, slash + 1) + replaced(name.repo.substr(slash + 1), ".", "___");
  if (name.revision.empty())
    for (const std::string& folder : older_folders(folder_))
      if (const std::string older = folder + "/" + hidden; is_folder(older) && !names_in(older).empty())
        return {older, ""};
  return {repo_folder(name.repo) + "/snapshots/" + (name.revision.empty() ? "master" : name.revision), ""};
}

std::optional<Snapshot> HubCache::find(const ModelName& name) const {
  std::string commit = name.revision;
  if (kind_ == HubKind::HuggingFace && !is_commit(commit)) {
    const auto ref = read_ref(repo_folder(name.repo), commit.empty() ? "main" : commit);
    if (!ref) return std::nullopt;
    commit = *ref;
  }
  Snapshot s = snapshot(name, commit);
  return is_folder(s.folder) ? std::optional(std::move(s)) : std::nullopt;
}

Place HubCache::place(const ModelName& name, const Snapshot& snapshot, const RepoFile& file) const {
  Place p;
  const std::string path = snapshot.folder + "/" + file.path;
  if (kind_ == HubKind::HuggingFace) {
    const std::string repo = repo_folder(name.repo);
    p.file = repo + "/blobs/" + file.etag();
    p.link = path;
    p.lock = fmt::format("{}/.locks/{}/{}.lock", folder_, fs::path(repo).filename().string(), file.etag());
  } else {
    p.file = path;
    p.lock = fmt::format("{}/.lock/model_{}_{}.lock", folder_, replaced(name.repo, "/", "___"),
                         replaced(replaced(file.path, "/", "___"), ".", "_"));
  }
  p.partial = p.file + ".incomplete";
  return p;
}

Status HubCache::write_ref(const ModelName& name, const std::string& commit) const {
  const std::string revision = name.revision.empty() ? "main" : name.revision;
  if (kind_ == HubKind::ModelScope || revision == commit) return Status::ok();
  const std::string folder = repo_folder(name.repo);
  if (read_ref(folder, revision) == commit) return Status::ok();
  const std::string path = folder + "/refs/" + revision;
  std::error_code problem;
  fs::create_directories(fs::path(path).parent_path(), problem);
  if (problem) return error(Code::Invalid, "{}: {}", path, problem.message());
  return write_file_atomically(path, commit);
}

std::vector<HubCache::Entry> HubCache::hugging_face_entries() const {
  std::vector<Entry> out;
  for (const std::string& flat : names_in(folder_)) {
    if (!flat.starts_with(kModels)) continue;
    const std::string repo = replaced(flat.substr(kModels.size()), "--", "/");
    if (!looks_like_model_name(repo)) continue;
    const std::string folder = folder_ + "/" + flat;
    uint64_t partial = bytes_of_partials(folder + "/blobs");
    std::vector<std::pair<std::string, std::string>> wanted;  // revision as a user gives it, and its commit
    std::set<std::string> seen;
    for (auto& [revision, commit] : refs_of(folder))
      if (seen.insert(commit).second) wanted.emplace_back(revision == "main" ? "" : revision, commit);
    for (const std::string& commit : names_in(folder + "/snapshots"))
      if (is_commit(commit) && seen.insert(commit).second) wanted.emplace_back(commit, commit);
    for (auto& [revision, commit] : wanted) {
      Entry e{{repo, revision, ""}, {folder + "/snapshots/" + commit, commit}, std::exchange(partial, 0)};
      out.push_back(std::move(e));
    }
    // Killed before the first file was whole.
    if (wanted.empty() && partial > 0) out.push_back({{repo, "", ""}, {folder + "/snapshots/none", ""}, partial});
  }
  return out;
}

std::vector<HubCache::Entry> HubCache::modelscope_entries() const {
  std::vector<Entry> out;
  const std::string models = folder_ + "/models";
  for (const std::string& flat : names_in(models)) {
    const std::string repo = replaced(flat, "--", "/");
    if (!is_new_modelscope_name(flat) || !looks_like_model_name(repo)) continue;
    const std::string folder = models + "/" + flat + "/snapshots";
    for (const std::string& revision : names_in(folder))
      if (check_revision(revision).is_ok())
        out.push_back({{repo, revision == "master" ? "" : revision, ""},
                       {folder + "/" + revision, ""},
                       bytes_of_partials(folder + "/" + revision)});
  }
  for (const std::string& older : older_folders(folder_)) {
    for (const std::string& org : names_in(older)) {
      if (is_new_modelscope_name(org)) continue;
      for (const std::string& hidden : names_in(older + "/" + org)) {
        const std::string repo = org + "/" + replaced(hidden, "___", ".");
        const std::string folder = older + "/" + org + "/" + hidden;
        if (looks_like_model_name(repo) && is_folder(folder))
          out.push_back({{repo, "", ""}, {folder, ""}, bytes_of_partials(folder)});
      }
    }
  }
  return out;
}

std::vector<HubCache::Entry> HubCache::entries() const {
  return kind_ == HubKind::ModelScope ? modelscope_entries() : hugging_face_entries();
}

SnapshotFiles files_of(const Snapshot& snapshot) {
  SnapshotFiles out;
  out.listing.commit = snapshot.commit;
  std::error_code problem;
  fs::recursive_directory_iterator it(snapshot.folder, problem), end;
  for (; !problem && it != end && out.listing.files.size() < kMostKeptFiles; it.increment(problem)) {
    std::error_code gone;
    const std::string path = it->path().lexically_relative(snapshot.folder).string();
    const fs::file_status what = it->status(gone);
    if (fs::is_directory(what)) continue;
    if (!fs::is_regular_file(what)) {
      out.broken.push_back(path);
      continue;
    }
    RepoFile f;
    f.path = path;
    f.size = it->file_size(gone);
    if (!gone && !path.ends_with(".incomplete")) out.listing.files.push_back(std::move(f));
  }
  std::sort(out.listing.files.begin(), out.listing.files.end(),
            [](const RepoFile& a, const RepoFile& b) { return a.path < b.path; });
  std::sort(out.broken.begin(), out.broken.end());
  return out;
}

Result<KeptModel> kept_model(const Snapshot& snapshot, const std::string& file, std::string_view where) {
  const SnapshotFiles there = files_of(snapshot);
  KeptModel out;
  // What the hub has, where huggingface_hub kept its listing; then nothing can be missing unseen.
  const std::string tree =
      fs::path(snapshot.folder).parent_path().parent_path().string() + "/trees/" + snapshot.commit + ".json";
  std::optional<Listing> whole;
  if (!snapshot.commit.empty())
    if (const auto text = read_file(tree, 64 << 20))
      if (auto parsed = parse_kept_tree(*text, tree)) whole = std::move(parsed).value();
  Listing known = whole ? *whole : there.listing;
  // A link whose file is gone still tells what there was.
  if (!whole)
    for (const std::string& path : there.broken) known.files.push_back({path, 0, "", ""});
  ASSIGN_OR_RETURN(Choice choice, choose_files(known, file, where));
  for (RepoFile& f : choice.files) {
    const RepoFile* kept = there.listing.find(f.path);
    if (!kept && out.missing.empty()) out.missing = f.path + " is missing";
    if (kept && whole && kept->size != f.size && out.missing.empty())
      out.missing = fmt::format("{} has {} of {} bytes", f.path, kept->size, f.size);
    f.size = kept ? kept->size : 0;
  }
  if (!choice.index.empty() && there.listing.find(choice.index))
    RETURN_IF_ERROR(add_kept_shards(out, choice, there, snapshot.folder));
  out.path = choice.gguf.empty() ? snapshot.folder : snapshot.folder + "/" + choice.gguf;
  out.bytes = bytes_of(choice.files);
  out.by_rule = choice.by_rule;
  return out;
}

}  // namespace reprise::hub
