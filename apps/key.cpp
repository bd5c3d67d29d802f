// `reprise key new`: makes a key of the server, prints it once, and appends its hash to the file of keys.
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "command.h"
#include "common/flags.h"
#include "server/key_ring.h"

namespace reprise::apps {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

struct KeyFlags {
  std::string name, file, expires;
  bool admin = false;
  int64_t requests = 0, tokens = 0, running = 0, most_tokens = 0;
  std::optional<int64_t> priority;
};

Result<std::string> random_key() {
  unsigned char bytes[24];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
    return error(Code::Internal, "no random numbers: {}", ::strerror(errno));
  std::string out = "sk-";
  for (const unsigned char b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

OrderedJson line_of(const KeyFlags& f, const std::string& key) {
  OrderedJson line = {{"name", f.name}, {"sha256", sha256_hex(key)}};
  const auto add = [&](const char* name, int64_t value) {
    if (value > 0) line[name] = value;
  };
  if (f.admin) line["admin"] = true;
  add("requests_per_minute", f.requests);
  add("tokens_per_minute", f.tokens);
  add("max_running", f.running);
  add("max_tokens_per_request", f.most_tokens);
  if (f.priority) line["priority"] = *f.priority;
  if (!f.expires.empty()) line["expires"] = f.expires;
  return line;
}

// The lines before stay as they are, comments on who has which key among them.
Status append(const std::string& path, const std::string& line, bool ends_line) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return invalid("{}: {}", path, ::strerror(errno));
  const std::string text = (ends_line ? "" : "\n") + line + "\n";
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int problem = errno;
  ::close(file);
  return written ? Status::ok() : invalid("{}: {}", path, ::strerror(problem));
}

Status run(const KeyFlags& f) {
  ASSIGN_OR_RETURN(const std::string key, random_key());
  const std::string line = line_of(f, key).dump();
  std::string before;
  std::error_code ignored;
  if (std::filesystem::exists(f.file, ignored)) {
    ASSIGN_OR_RETURN(before, read_file(f.file, size_t{16} << 20));
  }
  const bool ends_line = before.empty() || before.back() == '\n';
  // What the server would not read is not written.
  const auto whole = server::KeyRing::parse(before + (ends_line ? "" : "\n") + line);
  if (!whole) return whole.status().at(f.file);
  RETURN_IF_ERROR(append(f.file, line, ends_line));
  log::info("the key of \"{}\", which is shown this once; {} has its hash (SIGHUP has a server read it)", f.name,
            f.file);
  fmt::print("{}\n", key);
  return Status::ok();
}

}  // namespace

Command add_key_new(CLI::App& key) {
  auto flags = std::make_shared<KeyFlags>();
  CLI::App* app = key.add_subcommand("new", "Make a key, print it once, and append its hash to the file of keys");
  app->add_option("name", flags->name, "whose key it is, for logs and metrics")->type_name("NAME")->required();
  add_text(*app, "--api-keys-file", flags->file, "file that --api-keys-file of `serve` names; made where there is none",
           "FILE");
  add_switch(*app, "--admin", flags->admin, "it opens the admin routes");
  add_integer(*app, "--requests-per-minute", flags->requests, {0, kMost}, "0: no bound");
  add_integer(*app, "--tokens-per-minute", flags->tokens, {0, kMost}, "of prompts and answers; 0: no bound");
  add_integer(*app, "--max-running", flags->running, {0, kMost}, "answers that run or wait; 0: no bound");
  add_integer(*app, "--max-tokens-per-request", flags->most_tokens, {0, kMost}, "prompt and answers; 0: no bound");
  add_integer(*app, "--priority", flags->priority, {-1000000, 1000000}, "of requests that name none");
  add_text(*app, "--expires", flags->expires, "a day or a time, such as 2027-01-31 or 2027-01-31T12:00:00Z", "TIME");
  return {app,
          [flags] {
            return flags->file.empty() ? invalid("--api-keys-file is required: the file to append to") : Status::ok();
          },
          [flags] { return run(*flags); }};
}

}  // namespace reprise::apps
