#include "hub/model_name.h"

#include <algorithm>

namespace reprise::hub {
namespace {

constexpr size_t kLongestPart = 96;  // of "org" and of "name", as Hugging Face has it
constexpr size_t kLongestRevision = 200;
constexpr size_t kLongestPath = 1024;
constexpr size_t kLongestComponent = 255;

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

// Hugging Face's rules: no "--", which stands for the slash in its cache, and no "..".
bool is_part(std::string_view s) {
  if (s.empty() || s.size() > kLongestPart || !is_word(s.front()) || !is_word(s.back())) return false;
  if (s.find("--") != s.npos || s.find("..") != s.npos || s.ends_with(".git")) return false;
  return std::all_of(s.begin(), s.end(), [](char c) { return is_word(c) || c == '-' || c == '.'; });
}

bool is_repo(std::string_view s) {
  const size_t slash = s.find('/');
  return slash != s.npos && is_part(s.substr(0, slash)) && is_part(s.substr(slash + 1));
}

bool is_file_of_weights(std::string_view s) { return s.ends_with(".gguf") || s.ends_with(".safetensors"); }

}  // namespace

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string printable(std::string_view text) {
  constexpr size_t kShown = 80;
  std::string out;
  for (const char c : text.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7f)
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text.size() > kShown ? out + "..." : out;
}

std::string ModelName::text() const {
  return repo + (revision.empty() ? "" : "@" + revision) + (file.empty() ? "" : ":" + file);
}

bool looks_like_model_name(std::string_view text) {
  const std::string_view repo = text.substr(0, text.find_first_of("@:"));
  return is_repo(repo) && !is_file_of_weights(repo);
}

Result<ModelName> parse_model_name(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view before = text.substr(0, colon);
  const size_t at = before.find('@');
  ModelName n;
  n.repo = before.substr(0, at);
  if (!is_repo(n.repo))
    return invalid(
        "model \"{}\": expected {}, for example Qwen/Qwen3-0.6B; org and name are letters, digits, '-', "
        "'_' and '.', and neither begins or ends with '-' or '.'",
        printable(text), kNameForm);
  if (at != before.npos) {
    n.revision = before.substr(at + 1);
    RETURN_IF_ERROR(check_revision(n.revision).at(fmt::format("model \"{}\"", printable(text))));
  }
  if (colon != text.npos) {
    n.file = text.substr(colon + 1);
    RETURN_IF_ERROR(check_file_path(n.file).at(fmt::format("model \"{}\"", printable(text))));
  }
  return n;
}

Status check_revision(std::string_view s) {
  const bool fine =
      !s.empty() && s.size() <= kLongestRevision && is_word(s.front()) && s.back() != '/' && s.find("..") == s.npos &&
      s.find("//") == s.npos && s.find("/.") == s.npos &&
      std::all_of(s.begin(), s.end(), [](char c) { return is_word(c) || c == '-' || c == '.' || c == '/'; });
  if (fine) return Status::ok();
  return invalid("revision \"{}\": expected a branch, tag or commit of at most {} letters, digits, '-', '_', '.', '/'",
                 printable(s), kLongestRevision);
}

Status check_file_path(std::string_view path) {
  const auto wrong = [path](std::string_view why) { return invalid("file \"{}\": {}", printable(path), why); };
  if (path.empty()) return wrong("a name is expected");
  if (path.size() > kLongestPath) return wrong("too long; allowed: 1024 bytes");
  for (size_t i = 0; i < path.size(); ++i) {
    const auto c = static_cast<unsigned char>(path[i]);
    // U+0080 to U+009F are controls as well: in UTF-8 these two bytes.
    const bool high = c == 0xc2 && i + 1 < path.size() && static_cast<unsigned char>(path[i + 1]) < 0xa0;
    if (c < 0x20 || c == 0x7f || high) return wrong("control characters are not allowed");
  }
  if (path.find('\\') != path.npos) return wrong("'\\' is not allowed");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..")
      return wrong("a path inside the repository is expected, without \"..\" and not absolute");
    if (part.size() > kLongestComponent) return wrong("a part of it is too long; allowed: 255 bytes");
    begin = end + 1;
  }
  return Status::ok();
}

}  // namespace reprise::hub
