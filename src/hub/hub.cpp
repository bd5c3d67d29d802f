#include "hub/hub.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/elapsed.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "hub/digest.h"

namespace reprise::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostListingBytes = 64 << 20;
constexpr uint64_t kMostIndexBytes = 64 << 20;
constexpr uint64_t kSpareDisk = 16 << 20;

// For a path (with slashes) or one part of it.
std::string encoded(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~' || (c == '/' && keep_slashes);
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

uint64_t free_bytes(fs::path folder) {
  struct statvfs s {};
  std::error_code ignored;
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  if (::statvfs(folder.empty() ? "." : folder.c_str(), &s) != 0 || s.f_blocks == 0) return UINT64_MAX;
  return static_cast<uint64_t>(s.f_bavail) * s.f_frsize;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// ETag: W/"abc" is abc. It becomes a file name.
std::string plain_etag(std::string text) {
  if (text.starts_with("W/")) text.erase(0, 2);
  text.erase(std::remove(text.begin(), text.end(), '"'), text.end());
  const bool fine = !text.empty() && text.size() <= 128 && text[0] != '.' &&
                    std::all_of(text.begin(), text.end(),
                                [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
  return fine ? text : std::string();
}

std::string in_parentheses(const std::string& text) { return text.empty() ? "" : " (" + printable(text) + ")"; }

}  // namespace

// One fetch: the session and what is said about it.
struct Hub::Fetch {
  const Hub& hub;
  const HubSettings& settings;
  const ModelName& name;
  const FetchOptions& options;
  HttpSession session;
  DownloadEvents events = {};

  std::string revision() const {
    return name.revision.empty() ? std::string(settings.default_revision()) : name.revision;
  }

  // What an answer means that is no listing and not that file.
  Status refusal(const HttpAnswer& a, const std::string& file = {}) const {
    const std::string at = settings.endpoint_words();
    if (!a.by_hub) return invalid("{}: {}, where the hub keeps it, answers {}", file, a.host, a.status);
    const std::string says = in_parentheses(a.hub_header("x-error-message"));
    const std::string code = a.hub_header("x-error-code");
    if (code == "RevisionNotFound")
      return error(Code::NotFound, "{} has no revision \"{}\" of {}; leave out @revision for \"{}\"", at, revision(),
                   name.repo, settings.default_revision());
    if (a.status == 403 || code == "GatedRepo")
      return error(Code::NotFound,
                   "{} does not give out {} ({}){}; it is gated or private: ask for access at {}/{}, and set {} to a "
                   "token of that account{}",
                   at, name.repo, a.status, says, settings.endpoint, web_path(), settings.token_variable(),
                   settings.token.empty() ? "; none is set" : "");
    if (a.status == 401 && settings.token.empty())
      return error(Code::NotFound,
                   "{} shows no model {} without a token (401); it does not exist, or is private or gated: check the "
                   "spelling, or set {}",
                   at, name.repo, settings.token_variable());
    if (a.status == 401)
      return error(
          Code::NotFound,
          "{} shows no model {} to this token (401){}; check the spelling, and that {} is valid and may read it", at,
          name.repo, says, settings.token_variable());
    if (a.status == 404 && !file.empty())
      return error(Code::NotFound, "{} lists {} for {}, but does not have it (404)", at, file, name.repo);
    if (a.status == 404)
      return error(Code::NotFound,
                   "{} has no model {} (404); check the spelling, or name another hub by REPRISE_HUB or "
                   "{}_ENDPOINT",
                   at, name.repo, settings.kind == HubKind::ModelScope ? "MODELSCOPE" : "HF");
    return invalid("{} answers {} for {}{}", a.host, a.status, name.repo, says);
  }

  std::string web_path() const { return (settings.kind == HubKind::ModelScope ? "models/" : "") + name.repo; }

  std::string file_url(const std::string& commit, const std::string& path) const {
    if (settings.kind == HubKind::ModelScope)
      return fmt::format("{}/models/{}/resolve/{}/{}", settings.endpoint, name.repo, encoded(revision(), false),
                         encoded(path, true));
    return fmt::format("{}/{}/resolve/{}/{}", settings.endpoint, name.repo, commit, encoded(path, true));
  }

  Result<Listing> list() {
    HttpRequest request;
    request.most_bytes = kMostListingBytes;
    const std::string r = encoded(revision(), false);
    const bool modelscope = settings.kind == HubKind::ModelScope;
    request.url = modelscope ? fmt::format("{}/api/v1/models/{}/repo/files?Revision={}&Recursive=True",
                                           settings.endpoint, name.repo, r)
                             : fmt::format("{}/api/models/{}/revision/{}?blobs=true", settings.endpoint, name.repo, r);
    ASSIGN_OR_RETURN(const HttpAnswer answer, run_with_tries(session, settings, request, events));
    if (answer.status != 200) return refusal(answer);
    const std::string source = fmt::format("listing of {} by {}", name.repo, settings.endpoint_words());
    ASSIGN_OR_RETURN(Listing listing, modelscope ? parse_modelscope_listing(answer.body, source)
                                                 : parse_hugging_face_listing(answer.body, source));
    if (listing.refused > 0)
      log::warning("{}: {} file name{} cannot be used and {} left out: \"{}\"", source, listing.refused,
                   listing.refused == 1 ? "" : "s", listing.refused == 1 ? "is" : "are", listing.first_refused);
    return listing;
  }

  // Size and ETag of a file whose listing tells neither.
  Status ask_about(RepoFile& file, const std::string& commit) {
    HttpRequest request;
    request.head = true;
    request.url = file_url(commit, file.path);
    ASSIGN_OR_RETURN(const HttpAnswer answer, run_with_tries(session, settings, request, events));
    if (answer.status >= 400) return refusal(answer, file.path);
    const auto either = [&](const char* first, const char* second) {
      const std::string v = answer.hub_header(first);
      return v.empty() ? answer.hub_header(second) : v;
    };
    if (const std::string c = answer.hub_header("x-repo-commit"); is_commit(c) && c != commit)
      return invalid("{}: the hub sends commit {} in place of {}", file.path, c, commit);
    const std::string etag = plain_etag(either("x-linked-etag", "etag"));
    const std::string size = either("x-linked-size", answer.status / 100 == 3 ? "" : "content-length");
    if (etag.empty() || size.empty() || size.size() > 15 || size.find_first_not_of("0123456789") != size.npos)
      return invalid("{}: {} tells neither in its listing nor in its answer how large the file is and which", file.path,
                     settings.endpoint_words());
    file.size = std::stoull(size);
    // In another form it names the file but proves nothing.
    (is_hex(etag, 64) ? file.sha256 : file.git_sha1) = etag;
    return Status::ok();
  }

  Result<Download> download_of(RepoFile file, const Snapshot& snapshot) {
    if (file.etag().empty() && settings.kind == HubKind::HuggingFace) RETURN_IF_ERROR(ask_about(file, snapshot.commit));
    Download d;
    d.url = file_url(snapshot.commit, file.path);
    d.place = hub.cache_.place(name, snapshot, file);
    d.refusal = [this, path = file.path](const HttpAnswer& a) { return refusal(a, path); };
    if (!is_hex(file.git_sha1, 40)) file.git_sha1.clear();
    d.file = std::move(file);
    // The name of a file says nothing of its content there, and a branch moves on.
    if (settings.kind == HubKind::ModelScope && is_there(d)) RETURN_IF_ERROR(forget_changed(d));
    return d;
  }

  Status forget_changed(const Download& d) {
    if (d.file.sha256.empty()) return Status::ok();
    ASSIGN_OR_RETURN(Digest digest, Digest::make(Digest::Kind::Sha256));
    ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(d.place.file));
    constexpr size_t kPiece = 1 << 20;
    for (size_t at = 0; at < file.bytes().size(); at += kPiece) {
      if (events.stop()) return error(Code::Cancelled, "interrupted");
      const auto piece = file.bytes().subspan(at, std::min(kPiece, file.bytes().size() - at));
      digest.add({reinterpret_cast<const char*>(piece.data()), piece.size()});
    }
    if (digest.hex() != d.file.sha256) ::unlink(d.place.file.c_str());
    return Status::ok();
  }

  Status check_cache(uint64_t missing) const {
    const char* variable = settings.kind == HubKind::ModelScope ? "MODELSCOPE_CACHE" : "HF_HUB_CACHE";
    std::error_code problem;
    fs::create_directories(settings.cache, problem);
    if (!problem && ::access(settings.cache.c_str(), W_OK) != 0) problem = {errno, std::generic_category()};
    if (problem)
      return error(Code::Invalid, "{}: {}; set {} to a folder that can be written", settings.cache, problem.message(),
                   variable);
    const uint64_t room = free_bytes(settings.cache);
    if (missing == 0 || room >= missing + kSpareDisk) return Status::ok();
    return error(Code::Invalid,
                 "{}: {} are to be fetched, but only {} are free; make room, or set {} to another folder",
                 settings.cache, size_words(missing), size_words(room), variable);
  }

  // All of them under one bar. Returns the bytes that were missing.
  Result<uint64_t> bring(const std::vector<Download>& all) {
    uint64_t missing = 0, total = 0;
    std::vector<const Download*> wanted;
    for (const Download& d : all) {
      if (is_there(d) && (d.place.link.empty() || exists(d.place.link))) continue;
      wanted.push_back(&d);
      total += d.file.size;
      if (!is_there(d)) missing += d.file.size - arrived_before(d);
    }
    if (wanted.empty()) return uint64_t{0};
    RETURN_IF_ERROR(check_cache(missing));
    log::notice("fetching {}: {} file{}, {}, from {} into {} (HF_HUB_OFFLINE=1 forbids it)", name.text(), wanted.size(),
                wanted.size() == 1 ? "" : "s", size_words(missing), settings.endpoint_words(), settings.cache);
    Progress bar("fetching", total, options.progress);
    const auto start = std::chrono::steady_clock::now();
    uint64_t done = 0, new_bytes = 0;
    std::string current;
    const auto show = [&](uint64_t bytes, const std::string& what) {
      done += bytes;
      const double seconds = seconds_since(start);
      const double speed = seconds > 0 ? static_cast<double>(new_bytes) / 1e6 / seconds : 0;
      bar.advance(bytes, fmt::format("{:.0f} MB/s, {}, {} of {}", speed, what, size_words(done), size_words(total)));
    };
    events.waits = [&](const std::string& what) { show(0, what); };
    for (size_t i = 0; i < wanted.size(); ++i) {
      current = fmt::format("{} ({} of {})", wanted[i]->file.path, i + 1, wanted.size());
      uint64_t old = is_there(*wanted[i]) ? wanted[i]->file.size : arrived_before(*wanted[i]);
      events.arrived = [&](uint64_t bytes) {
        const uint64_t known = std::min(old, bytes);
        old -= known;
        new_bytes += bytes - known;
        show(bytes, current);
      };
      RETURN_IF_ERROR(download_file(session, settings, *wanted[i], events));
    }
    return missing;
  }

  Result<std::vector<Download>> downloads_of(const std::vector<RepoFile>& files, const Snapshot& snapshot) {
    std::vector<Download> out;
    for (const RepoFile& f : files) {
      ASSIGN_OR_RETURN(Download d, download_of(f, snapshot));
      out.push_back(std::move(d));
    }
    return out;
  }

  // The index comes first: it says which shards there are to be.
  Status fetch_index(Choice& choice, const Listing& listing, const Snapshot& snapshot) {
    ASSIGN_OR_RETURN(const auto index, downloads_of({*listing.find(choice.index)}, snapshot));
    if (index[0].file.size > kMostIndexBytes)
      return invalid("{}: {} bytes; more than {} are no index of shards", choice.index, index[0].file.size,
                     kMostIndexBytes);
    if (!is_there(index[0])) {
      RETURN_IF_ERROR(check_cache(index[0].file.size));
      RETURN_IF_ERROR(download_file(session, settings, index[0], events));
    }
    const std::string path = exists(index[0].place.file) ? index[0].place.file : index[0].place.link;
    ASSIGN_OR_RETURN(const std::string text, read_file(path, kMostIndexBytes));
    ASSIGN_OR_RETURN(const auto shards, parse_index_of_shards(text, choice.index));
    return add_shards(choice, listing, shards, name.repo);
  }

  Result<FetchedModel> run() {
    ASSIGN_OR_RETURN(const Listing listing, list());
    ASSIGN_OR_RETURN(Choice choice, choose_files(listing, name.file, name.repo));
    const Snapshot snapshot = hub.cache_.snapshot(name, listing.commit);
    if (!choice.index.empty()) RETURN_IF_ERROR(fetch_index(choice, listing, snapshot));
    ASSIGN_OR_RETURN(const auto downloads, downloads_of(choice.files, snapshot));
    FetchedModel out;
    ASSIGN_OR_RETURN(out.fetched, bring(downloads));
    // Now, and not before: who follows the branch finds the old commit or all of the new one.
    RETURN_IF_ERROR(hub.cache_.write_ref(name, listing.commit));
    for (const Download& d : downloads) out.bytes += d.file.size;
    out.files = downloads.size();
    out.path = choice.gguf.empty() ? snapshot.folder : snapshot.folder + "/" + choice.gguf;
    out.by_rule = choice.by_rule;
    return out;
  }
};

Result<KeptModel> Hub::find(const ModelName& name) const {
  const auto snapshot = cache_.find(name);
  if (!snapshot) return error(Code::NotFound, "{} is not in {}", name.text(), settings_.cache);
  ASSIGN_OR_RETURN(KeptModel model, kept_model(*snapshot, name.file, name.repo));
  if (!model.missing.empty())
    return error(Code::NotFound, "{} is not wholly in {}: {}", name.text(), settings_.cache, model.missing);
  return model;
}

Result<FetchedModel> Hub::fetch(const ModelName& name, const FetchOptions& options) const {
  if (!settings_.offline.empty())
    return error(Code::NotFound, "{} forbids to fetch {}; unset it, or fetch the model elsewhere into {}",
                 settings_.offline, name.text(), settings_.cache);
  DownloadEvents events;
  events.arrived = [](uint64_t) {};
  events.waits = [](const std::string& what) { log::notice("{}", what); };
  events.stop = options.stop ? options.stop : [] { return false; };
  ASSIGN_OR_RETURN(HttpSession session, HttpSession::open(settings_, events.stop, options.curl.c_str()));
  // Hashes need libcrypto; it is better missed now than after gigabytes.
  RETURN_IF_ERROR(Digest::make(Digest::Kind::Sha256).status());
  Fetch fetch{*this, settings_, name, options, std::move(session), std::move(events)};
  return fetch.run();
}

}  // namespace reprise::hub
