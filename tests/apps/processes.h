// Processes of a test by their place: whose children they are, and whether they are gone.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/run_binary.h"

namespace reprise::apps {

// What /proc/PID/stat has behind the name: the state, then the parent. "" when there is no such process.
inline std::string state_of(pid_t pid) {
  const std::string stat = content_of(fmt::format("/proc/{}/stat", pid));
  const size_t name = stat.rfind(')');
  return name == std::string::npos || name + 4 >= stat.size() ? "" : stat.substr(name + 2);
}

// Processes whose parent is `pid`, by their numbers.
inline std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> out;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    const auto id = static_cast<pid_t>(std::atoi(entry->d_name));
    const std::string state = id > 0 ? state_of(id) : "";
    if (!state.empty() && std::atoi(state.c_str() + 2) == pid && state[0] != 'Z') out.push_back(id);
  }
  ::closedir(proc);
  std::sort(out.begin(), out.end());
  return out;
}

inline bool is_gone(pid_t pid) {
  const std::string state = state_of(pid);
  return state.empty() || state[0] == 'Z';
}

}  // namespace reprise::apps
