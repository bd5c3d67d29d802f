// ModelName: a model of a hub as a user spells it, "org/name@revision:file": the repository, perhaps a branch, tag or
// commit of it, perhaps one of its GGUF files by name or tag. A plain value. Also the rule for what a hub may call its
// files: such names come from outside and become paths here. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::hub {

struct ModelName {
  std::string repo;      // "Qwen/Qwen3-0.6B"
  std::string revision;  // "": the hub's default branch
  std::string file;      // "": chosen by rule (choice.h)

  std::string text() const;
};

constexpr std::string_view kNameForm = "org/name[@revision][:file]";

// Whether it can be a name: its first part is "org/name" in letters, digits, '-', '_' and '.', and is no path like
// "./x" or "folder/model.gguf". What is on disk comes first; the caller looks.
bool looks_like_model_name(std::string_view text);
// The error says which part is wrong and what is allowed.
Result<ModelName> parse_model_name(std::string_view text);

// Checks names of branches, tags and commits: they become parts of paths and of URLs.
Status check_revision(std::string_view revision);
// Checks the path of a file in a repository: relative, no "." or "..", no backslash, no control characters, of bounded
// length.
Status check_file_path(std::string_view path);

bool is_hex(std::string_view text, size_t digits);  // that many of 0-9a-f
inline bool is_commit(std::string_view text) { return is_hex(text, 40); }
// For messages: control characters and bytes beyond ASCII as "\xNN", cut after 80 bytes.
std::string printable(std::string_view text);

}  // namespace reprise::hub
