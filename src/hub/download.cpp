#include "hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "hub/digest.h"
#include "hub/file_lock.h"

namespace reprise::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongestWait{30};
constexpr int kLongestAsked = 300;  // seconds; a hub that asks for more is left alone

Status full_or(int problem, const std::string& path, uint64_t needed) {
  if (problem == ENOSPC || problem == EDQUOT || problem == EFBIG)
    return error(Code::Invalid,
                 "{}: {}; {} more are needed; make room, or set HF_HUB_CACHE (ModelScope: MODELSCOPE_CACHE) to another "
                 "folder; the same command goes on from here",
                 path, std::strerror(problem), size_words(needed));
  return error(Code::Invalid, "{}: {}", path, std::strerror(problem));
}

Status make_parent(const std::string& path) {
  std::error_code problem;
  fs::create_directories(fs::path(path).parent_path(), problem);
  if (!problem) return Status::ok();
  return error(Code::Invalid, "{}: {}; set HF_HUB_CACHE (ModelScope: MODELSCOPE_CACHE) to a folder that can be written",
               fs::path(path).parent_path().string(), problem.message());
}

// "bytes 100-199/200" from a given byte on, of that many.
bool is_rest(std::string_view range, uint64_t from, uint64_t size) {
  return range.starts_with(fmt::format("bytes {}-", from)) &&
         (range.ends_with(fmt::format("/{}", size)) || range.ends_with("/*"));
}

// The partial file: how much is there, and its hash so far.
class Partial {
 public:
  Partial(const Download& d, const DownloadEvents& events) : d_(d), events_(events) {}
  ~Partial() {
    if (fd_ >= 0) ::close(fd_);
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  uint64_t size() const { return size_; }

  Status open() {
    RETURN_IF_ERROR(make_parent(d_.place.partial));
    fd_ = ::open(d_.place.partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) return full_or(errno, d_.place.partial, d_.file.size);
    RETURN_IF_ERROR(start_hash());
    struct stat st {};
    if (::fstat(fd_, &st) != 0) return full_or(errno, d_.place.partial, d_.file.size);
    const auto there = static_cast<uint64_t>(st.st_size);
    if (there > d_.file.size) return restart();
    std::vector<char> buffer(size_t{1} << 20);
    while (size_ < there) {
      if (events_.stop()) return error(Code::Cancelled, "interrupted");
      const ssize_t n = ::pread(fd_, buffer.data(), buffer.size(), static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return restart();
      observe({buffer.data(), static_cast<size_t>(n)});
    }
    return Status::ok();
  }

  Status restart() {
    if (::ftruncate(fd_, 0) != 0) return full_or(errno, d_.place.partial, d_.file.size);
    size_ = 0;
    return start_hash();
  }

  Status add(std::string_view bytes) {
    if (bytes.size() > d_.file.size - size_)
      return invalid("{}: more than the {} bytes of the hub's listing arrive", d_.file.path, d_.file.size);
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return full_or(errno, d_.place.partial, d_.file.size - size_);
      observe(bytes.substr(0, static_cast<size_t>(n)));
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return Status::ok();
  }

  // The hash of all bytes, next to the hub's; equal where the hub tells none.
  std::pair<std::string, std::string> hashes() {
    if (!digest_) return {};
    return {digest_->hex(), d_.file.etag()};
  }

  // On the disk before it gets its name, so that a power cut leaves no empty file of the right one.
  Status finish() {
    if (::fdatasync(fd_) != 0) return full_or(errno, d_.place.partial, 0);
    if (::rename(d_.place.partial.c_str(), d_.place.file.c_str()) != 0) return full_or(errno, d_.place.file, 0);
    return Status::ok();
  }

 private:
  Status start_hash() {
    digest_.reset();
    if (!d_.file.sha256.empty()) {
      ASSIGN_OR_RETURN(digest_, Digest::make(Digest::Kind::Sha256));
    } else if (!d_.file.git_sha1.empty()) {
      ASSIGN_OR_RETURN(digest_, Digest::git_blob(d_.file.size));
    }
    return Status::ok();
  }
  void observe(std::string_view bytes) {
    if (digest_) digest_->add(bytes);
    size_ += bytes.size();
    if (size_ > told_) events_.arrived(size_ - told_);
    told_ = std::max(told_, size_);
  }

  const Download& d_;
  const DownloadEvents& events_;
  int fd_ = -1;
  uint64_t size_ = 0, told_ = 0;
  std::optional<Digest> digest_;
};

// Until all bytes are there.
Status fetch_rest(HttpSession& session, const HubSettings& settings, const Download& d, const DownloadEvents& events,
                  Partial& partial) {
  Retry retry(settings, events);
  while (partial.size() < d.file.size) {
    const uint64_t before = partial.size();
    HttpRequest request;
    request.url = d.url;
    request.from = before;
    request.begin = [&](const HttpAnswer& a) {
      if (a.status == 206 && is_rest(a.header("content-range"), before, d.file.size)) return Status::ok();
      if (a.status == 206) return invalid("{}: {} sends another part than was asked for", d.file.path, a.host);
      return partial.size() == 0 ? Status::ok() : partial.restart();  // the whole file, even if a part was asked for
    };
    request.body = [&](std::string_view bytes) { return partial.add(bytes); };
    auto answer = session.run(request);
    if (partial.size() > before) retry.progress();
    Status why = answer ? Status::ok() : answer.status();
    if (answer && (answer->status == 200 || answer->status == 206)) {
      if (partial.size() == d.file.size) break;
      why =
          error(Code::Busy, "{} ends {} after {} of {} bytes", answer->host, d.file.path, partial.size(), d.file.size);
    } else if (answer && answer->status == 416 && before > 0) {
      RETURN_IF_ERROR(partial.restart());
      why = error(Code::Busy, "{} does not go on from byte {}", answer->host, before);
    } else if (answer && is_passing_status(answer->status)) {
      why = error(Code::Busy, "{} answers {}", answer->host, answer->status);
    } else if (answer) {
      return d.refusal(*answer);
    }
    if (why.code() != Code::Busy && why.code() != Code::NotFound) return why;
    RETURN_IF_ERROR(retry.wait(why, answer ? answer->retry_after() : std::nullopt));
  }
  return Status::ok();
}

Status fetch_checked(HttpSession& session, const HubSettings& settings, const Download& d,
                     const DownloadEvents& events) {
  Partial partial(d, events);
  RETURN_IF_ERROR(partial.open());
  for (bool fresh = partial.size() == 0;; fresh = true) {
    RETURN_IF_ERROR(fetch_rest(session, settings, d, events, partial));
    const auto [ours, theirs] = partial.hashes();
    if (ours == theirs) return partial.finish();
    // What an earlier run left may have been of something else; what came just now is the hub's.
    if (fresh) {
      ::unlink(d.place.partial.c_str());
      return invalid(
          "{}: its hash is {}, but the hub's listing says {}; it was thrown away; try again, and if it stays "
          "so, the hub or a proxy on the way serves something else",
          d.file.path, ours, theirs);
    }
    RETURN_IF_ERROR(partial.restart());
  }
}

// A relative link from the snapshot to the blob; where the file system has none, the file itself goes there.
Status make_link(const Place& p) {
  if (p.link.empty()) return Status::ok();
  RETURN_IF_ERROR(make_parent(p.link));
  std::error_code problem;
  const fs::path target = fs::path(p.file).lexically_relative(fs::path(p.link).parent_path());
  if (fs::read_symlink(p.link, problem) == target && !problem) return Status::ok();
  const std::string fresh = fmt::format("{}.tmp.{}", p.link, ::getpid());
  fs::remove(fresh, problem);
  fs::create_symlink(target, fresh, problem);
  const bool no_links = problem == std::errc::operation_not_permitted || problem == std::errc::not_supported ||
                        problem == std::errc::operation_not_supported || problem == std::errc::function_not_supported;
  if (problem && !no_links) return error(Code::Invalid, "{}: {}", fresh, problem.message());
  fs::rename(no_links ? p.file : fresh, p.link, problem);
  if (problem) return error(Code::Invalid, "{}: {}", p.link, problem.message());
  return Status::ok();
}

}  // namespace

bool is_there(const Download& d) {
  std::error_code gone;
  for (const std::string& path : {d.place.file, d.place.link})
    if (!path.empty() && fs::is_regular_file(path, gone) && fs::file_size(path, gone) == d.file.size && !gone)
      return true;
  return false;
}

uint64_t arrived_before(const Download& d) {
  std::error_code none;
  const auto size = fs::file_size(d.place.partial, none);
  return none || size > d.file.size ? 0 : size;
}

Status Retry::wait(const Status& why, std::optional<int> asked_seconds) {
  if (++failed_ >= settings_.tries)
    return invalid("{} (tried {} times); try again later: the same command goes on from here", why.message(), failed_);
  if (asked_seconds.value_or(0) > kLongestAsked)
    return invalid("{}, and asks to wait {} s; try again then", why.message(), *asked_seconds);
  std::chrono::milliseconds time =
      std::min<std::chrono::milliseconds>(kLongestWait, settings_.first_wait * (1 << (failed_ - 1)));
  if (asked_seconds) time = std::max<std::chrono::milliseconds>(time, std::chrono::seconds(*asked_seconds));
  const auto end = std::chrono::steady_clock::now() + time;
  events_.waits(fmt::format("waiting {} s: {}", (time.count() + 999) / 1000, why.message()));
  while (std::chrono::steady_clock::now() < end) {
    if (events_.stop()) return error(Code::Cancelled, "interrupted");
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(time, std::chrono::milliseconds(50)));
  }
  return Status::ok();
}

Result<HttpAnswer> run_with_tries(HttpSession& session, const HubSettings& settings, const HttpRequest& request,
                                  const DownloadEvents& events) {
  Retry retry(settings, events);
  for (bool again = false;; again = true) {
    auto answer = session.run(request);
    if (answer && !is_passing_status(answer->status)) return answer;
    // Without a network every further try fails alike, and a person waits for it.
    if (!answer && answer.status().code() == Code::NotFound && again)
      return invalid("{}; check the network and HTTPS_PROXY, or name a hub that can be reached ({}_ENDPOINT)",
                     answer.status().message(), settings.kind == HubKind::ModelScope ? "MODELSCOPE" : "HF");
    if (!answer && answer.status().code() != Code::Busy && answer.status().code() != Code::NotFound) return answer;
    const Status why = answer ? error(Code::Busy, "{} answers {}", answer->host, answer->status) : answer.status();
    RETURN_IF_ERROR(retry.wait(why, answer ? answer->retry_after() : std::nullopt));
  }
}

Status download_file(HttpSession& session, const HubSettings& settings, const Download& d,
                     const DownloadEvents& events) {
  const auto waits = [&] { events.waits(fmt::format("another process fetches {}", d.file.path)); };
  ASSIGN_OR_RETURN(const FileLock lock, FileLock::take(d.place.lock, waits, events.stop));
  if (is_there(d)) {
    events.arrived(d.file.size);
  } else {
    RETURN_IF_ERROR(fetch_checked(session, settings, d, events));
  }
  // Its own copy in a snapshot, where there are no links.
  std::error_code gone;
  if (!d.place.link.empty() && !fs::exists(d.place.file, gone)) return Status::ok();
  return make_link(d.place);
}

}  // namespace reprise::hub
