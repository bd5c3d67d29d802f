#include "passes/pass_environment.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>

namespace reprise {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Status apply_pass_environment(PassOptions& options) {
  if (const auto text = variable("REPRISE_PASS_BISECT_LIMIT"); !text.empty() && options.bisect_limit < 0) {
    int64_t limit = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (problem != std::errc() || end != text.data() + text.size() || limit < -1)
      return invalid("REPRISE_PASS_BISECT_LIMIT \"{}\" is not a number of changes; allowed: -1 (all) or more", text);
    options.bisect_limit = limit;
  }
  const auto folder = variable("REPRISE_DUMP_DIR");
  if (folder.empty() || !options.dump_dir.empty()) return Status::ok();
  constexpr int kMany = 1000;
  for (int i = 0; i < kMany; ++i) {
    const std::string own = fmt::format("{}/{:03}", folder, i);
    std::error_code failed;
    std::filesystem::create_directories(std::string(folder), failed);
    if (!failed && std::filesystem::create_directory(own, failed)) {
      options.dump_dir = own;
      return Status::ok();
    }
    if (failed) return invalid("REPRISE_DUMP_DIR {}: {}", folder, failed.message());
  }
  return Status::ok();  // enough to look at
}

}  // namespace reprise
