// download_file: one file of a repository from the hub to its place on disk. What has arrived stays in a partial file,
// so that a cut, Ctrl-C or a kill costs nothing: the next call goes on from there. Cuts and busy hubs are tried again
// with growing waits. The bytes are counted and hashed as they come, and the file gets its name when they are right. A
// lock (flock, as huggingface_hub takes it) keeps two processes from writing one file; the second waits and then finds
// it done. Blocks the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "hub/cache.h"
#include "hub/http.h"

namespace reprise::hub {

// What a download tells the code that shows it. Counts are of new bytes; those that come a second time are not told
// again.
struct DownloadEvents {
  std::function<void(uint64_t bytes)> arrived;
  std::function<void(const std::string& what)> waits;  // "waiting 4 s: huggingface.co answers 503"
  std::function<bool()> stop;                          // true: end with Cancelled
};

struct Download {
  RepoFile file;
  std::string url;
  Place place;
  // What to say of an answer that is neither the file nor worth another try.
  std::function<Status(const HttpAnswer&)> refusal;
};

// Whether the place holds a file of the right size already.
bool is_there(const Download& d);
// Bytes of the partial file that another try need not fetch.
uint64_t arrived_before(const Download& d);

Status download_file(HttpSession& session, const HubSettings& settings, const Download& d,
                     const DownloadEvents& events);

// The back-off of tries that bring nothing: waits double from HubSettings::first_wait to half a minute; a hub may ask
// for more. One run of tries.
class Retry {
 public:
  Retry(const HubSettings& settings, const DownloadEvents& events) : settings_(settings), events_(events) {}
  // Before the next try. The status when it was the last one, Cancelled when stopped meanwhile.
  Status wait(const Status& why, std::optional<int> asked_seconds);
  void progress() { failed_ = 0; }

 private:
  const HubSettings& settings_;
  const DownloadEvents& events_;
  int failed_ = 0;
};

// Runs a request whose answer is kept, with tries. Passing statuses that do not pass are an error that names the host.
Result<HttpAnswer> run_with_tries(HttpSession& session, const HubSettings& settings, const HttpRequest& request,
                                  const DownloadEvents& events);

}  // namespace reprise::hub
