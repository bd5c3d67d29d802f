// HubServer: a stand-in for a model hub on a port of this machine, in Hugging Face's API and ModelScope's. It holds
// repositories in memory and keeps what it was asked; a test makes it fail by a hook. With `cdn` large files are
// answered by a redirect to that other server, as the real one does. A thread for each connection (LocalListener); it
// goes with its test.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "hub/digest.h"
#include "support/local_listener.h"

namespace reprise::testing_support {

inline std::string sha256_of(std::string_view bytes) {
  auto d = hub::Digest::make(hub::Digest::Kind::Sha256);
  d->add(bytes);
  return d->hex();
}
inline std::string git_sha1_of(std::string_view bytes) {
  auto d = hub::Digest::git_blob(bytes.size());
  d->add(bytes);
  return d->hex();
}

struct HubRequest {
  std::string method, path, query;
  std::map<std::string, std::string> headers;  // lower case
  std::string header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? "" : it->second;
  }
};

struct HubReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  size_t cut_after = SIZE_MAX;  // bytes of the body, then the connection is closed
  bool tells_length = true;
};

class HubServer {
 public:
  struct Repo {
    std::string commit = std::string(40, 'a');
    std::map<std::string, std::string> files;
    bool tells_blobs = true;  // sizes and hashes in the listing
  };
  // A reply in place of the hub's own; called before it, with how many requests came before.
  using Hook = std::function<std::optional<HubReply>(const HubRequest&, int before)>;

  std::map<std::string, Repo> repos;  // by "org/name"; filled before the first request
  HubServer* cdn = nullptr;           // for files named *.gguf and *.safetensors
  std::string token;                  // needed for everything when not empty
  Hook hook;
  bool knows_ranges = true;

  std::string url() const { return listener_.url(); }
  std::vector<HubRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  // Requests whose path ends so.
  int asked(const std::string& ending) const {
    int n = 0;
    for (const HubRequest& r : requests()) n += r.path.ends_with(ending);
    return n;
  }

  // The file of a resolve path ("/org/name/resolve/COMMIT/file", or the same below "/models"), null when there is none.
  const std::string* file_of(const std::string& path) const {
    const size_t at = path.find("/resolve/");
    if (at == path.npos) return nullptr;
    const auto repo =
        repos.find(path.substr(path.starts_with("/models/") ? 8 : 1, at - (path.starts_with("/models/") ? 8 : 1)));
    const size_t file = path.find('/', at + 9);
    if (repo == repos.end() || file == path.npos) return nullptr;
    const auto it = repo->second.files.find(path.substr(file + 1));
    return it == repo->second.files.end() ? nullptr : &it->second;
  }

  HubReply of_bytes(const HubRequest& r, const std::string& bytes) const {
    HubReply reply;
    const bool large = is_large(r.path);
    reply.headers = {{"ETag", "\"" + (large ? sha256_of(bytes) : git_sha1_of(bytes)) + "\""}};
    const std::string range = r.header("range");
    if (!knows_ranges || range.empty()) {
      reply.body = bytes;
      return reply;
    }
    const size_t from = std::stoul(range.substr(6));
    if (from >= bytes.size()) {
      reply.status = 416;
      return reply;
    }
    reply.status = 206;
    reply.headers.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", from, bytes.size() - 1, bytes.size()));
    reply.body = bytes.substr(from);
    return reply;
  }

 private:
  static bool is_large(const std::string& path) { return path.ends_with(".gguf") || path.ends_with(".safetensors"); }

  static HubReply json(const Json& j) { return {200, {{"Content-Type", "application/json"}}, j.dump()}; }
  static HubReply refused(int status, const std::string& code) { return {status, {{"X-Error-Code", code}}, "{}"}; }

  HubReply own(const HubRequest& r) const {
    if (!token.empty() && r.header("authorization") != "Bearer " + token) return refused(401, "RepoNotFound");
    if (r.path.starts_with("/api/v1/models/")) return modelscope_listing(r);
    if (r.path.starts_with("/api/models/")) return listing(r);
    const std::string* bytes = file_of(r.path);
    if (!bytes) return refused(404, "EntryNotFound");
    if (cdn && is_large(r.path)) {
      HubReply reply;
      reply.status = 302;
      reply.headers = {{"Location", cdn->url() + r.path + "?signed=yes"},
                       {"X-Linked-Etag", "\"" + sha256_of(*bytes) + "\""},
                       {"X-Linked-Size", std::to_string(bytes->size())}};
      return reply;
    }
    return of_bytes(r, *bytes);
  }

  HubReply listing(const HubRequest& r) const {
    const size_t at = r.path.find("/revision/");
    const auto repo = repos.find(r.path.substr(12, at - 12));
    if (at == r.path.npos || repo == repos.end()) return refused(404, "RepoNotFound");
    const std::string revision = r.path.substr(at + 10);
    if (revision != "main" && revision != repo->second.commit) return refused(404, "RevisionNotFound");
    Json files = Json::array();
    for (const auto& [name, bytes] : repo->second.files) {
      Json f = {{"rfilename", name}};
      if (repo->second.tells_blobs) {
        f["size"] = bytes.size();
        f["blobId"] = git_sha1_of(bytes);
        if (is_large(name)) f["lfs"] = {{"sha256", sha256_of(bytes)}, {"size", bytes.size()}, {"pointerSize", 134}};
      }
      files.push_back(std::move(f));
    }
    return json({{"id", repo->first}, {"sha", repo->second.commit}, {"siblings", files}});
  }

  HubReply modelscope_listing(const HubRequest& r) const {
    const size_t at = r.path.find("/repo/files");
    const auto repo = repos.find(r.path.substr(15, at - 15));
    if (at == r.path.npos || repo == repos.end())
      return {404, {}, R"({"Code": 10010205001, "Message": "record not found", "Success": false})"};
    Json files = Json::array({{{"Path", "folder"}, {"Type", "tree"}, {"Size", 0}}});
    for (const auto& [name, bytes] : repo->second.files)
      files.push_back({{"Path", name}, {"Type", "blob"}, {"Size", bytes.size()}, {"Sha256", sha256_of(bytes)}});
    return json({{"Code", 200}, {"Success", true}, {"Data", {{"Files", files}}}});
  }

  static std::optional<HubRequest> read_request(int fd) {
    std::string held;
    char c;
    while (!held.ends_with("\r\n\r\n")) {
      if (::recv(fd, &c, 1, 0) != 1) return std::nullopt;
      held += c;
    }
    HubRequest r;
    const size_t line = held.find("\r\n"), first = held.find(' '), second = held.find(' ', first + 1);
    r.method = held.substr(0, first);
    std::string target = held.substr(first + 1, second - first - 1);
    const size_t question = target.find('?');
    if (question != target.npos) r.query = target.substr(question + 1);
    r.path = decoded(target.substr(0, question));
    for (size_t at = line + 2; at < held.size() - 2;) {
      const size_t end = held.find("\r\n", at), colon = held.find(": ", at);
      std::string name = held.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char x) { return std::tolower(x); });
      r.headers[name] = held.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    return r;
  }

  static std::string decoded(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '%') {
        out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        out += text[i];
      }
    }
    return out;
  }

  bool answer_one(int fd) {
    const auto request = read_request(fd);
    if (!request) return false;
    int before = 0;
    {
      const std::lock_guard lock(mutex_);
      before = static_cast<int>(requests_.size());
      requests_.push_back(*request);
    }
    std::optional<HubReply> said;
    if (hook) said = hook(*request, before);
    const HubReply reply = said ? *said : own(*request);
    std::string text = fmt::format("HTTP/1.1 {} Said\r\n", reply.status);
    for (const auto& [name, value] : reply.headers) text += name + ": " + value + "\r\n";
    if (reply.tells_length) text += fmt::format("Content-Length: {}\r\n", reply.body.size());
    text += "\r\n";
    if (request->method != "HEAD") text += reply.body.substr(0, reply.cut_after);
    for (std::string_view left = text; !left.empty();) {
      const ssize_t n = ::send(fd, left.data(), left.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      left.remove_prefix(static_cast<size_t>(n));
    }
    return reply.tells_length && reply.cut_after >= reply.body.size();
  }

  mutable std::mutex mutex_;
  std::vector<HubRequest> requests_;
  LocalListener listener_{[this](int fd) { return answer_one(fd); }};
};

}  // namespace reprise::testing_support
