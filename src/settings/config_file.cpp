#include "settings/config_file.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/close_names.h"
#include "base/file.h"
#include "base/json.h"
#include "settings/setting.h"
#include "settings/values.h"

namespace reprise::settings {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kMostFiles = 32;

// The text with blanks in place of its comments, so that errors name the same line and column; and the names that
// stand twice in the outermost object, of which JSON's parser would keep one.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  std::string without_comments() {
    for (size_t at = 0; at < text_.size();) {
      const char c = text_[at];
      if (c == '"') {
        at = string_at(at);
      } else if (c == '/' && at + 1 < text_.size() && text_[at + 1] == '/') {
        while (at < text_.size() && text_[at] != '\n') text_[at++] = ' ';
      } else {
        depth_ += (c == '{' || c == '[') - (c == '}' || c == ']');
        ++at;
      }
    }
    return text_;
  }
  const std::string& twice() const { return twice_; }

 private:
  // Returns where the text goes on behind the string that begins there.
  size_t string_at(size_t begin) {
    size_t end = begin + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    end = std::min(end + 1, text_.size());
    const size_t next = std::min(text_.find_first_not_of(" \t\r\n", end), text_.size());
    if (depth_ == 1 && next < text_.size() && text_[next] == ':') {
      std::string name = text_.substr(begin + 1, end - begin - 2);
      if (!names_.insert(name).second) twice_ = name;
    }
    return end;
  }

  std::string text_;
  int depth_ = 0;
  std::set<std::string> names_;
  std::string twice_;
};

std::string words_of(const OrderedJson& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

Status unknown(std::string_view name) {
  std::vector<std::string> names;
  for (const Setting& s : table()) names.push_back(name_of(s.key));
  const std::vector<std::string_view> views(names.begin(), names.end());
  return invalid("\"{}\" is not a setting{}", name, close_names(name, views));
}

Result<std::vector<std::string>> values_of(const Setting& s, const OrderedJson& value) {
  std::vector<std::string> out;
  if (value.is_null()) return invalid("null is no value; leave the setting out");
  if (!value.is_array()) {
    out.push_back(words_of(value));
  } else if (s.kind == Kind::Texts || s.kind == Kind::Words) {
    for (const OrderedJson& one : value) out.push_back(words_of(one));
  } else if (s.kind == Kind::Integers) {
    std::string joined;
    for (const OrderedJson& one : value) joined += (joined.empty() ? "" : ",") + words_of(one);
    out.push_back(joined);
  } else {
    return invalid("it takes one value, not a list");
  }
  for (const std::string& one : out) RETURN_IF_ERROR(check(s, one));
  return out;
}

Result<std::vector<std::string>> includes_of(const OrderedJson& value) {
  std::vector<std::string> out;
  if (!value.is_array()) return invalid("a list of files is expected, like [\"more.json\"]");
  for (const OrderedJson& one : value) {
    if (!one.is_string()) return invalid("a list of files is expected, like [\"more.json\"]");
    out.push_back(one.get<std::string>());
  }
  return out;
}

// Later values outrank, in the place of the earlier ones.
void put(std::vector<FileValue>& all, FileValue value) {
  const auto same = std::find_if(all.begin(), all.end(), [&](const FileValue& v) { return v.key == value.key; });
  if (same == all.end())
    all.push_back(std::move(value));
  else
    *same = std::move(value);
}

Status read(const std::filesystem::path& path, std::vector<std::string>& open, size_t& files,
            std::vector<FileValue>& out) {
  const std::string name = path.string();
  const std::string file = path.lexically_normal().string();
  if (std::find(open.begin(), open.end(), file) != open.end()) return invalid("{}: it includes itself", name);
  if (++files > kMostFiles) return invalid("{}: more than {} files of settings are included", name, kMostFiles);
  ASSIGN_OR_RETURN(const std::string text, read_file(name, kMostBytes));
  std::vector<std::string> includes;
  ASSIGN_OR_RETURN(std::vector<FileValue> values, parse_config(text, name, includes));
  open.push_back(file);
  for (const std::string& more : includes) RETURN_IF_ERROR(read(path.parent_path() / more, open, files, out));
  open.pop_back();
  for (FileValue& v : values) put(out, std::move(v));
  return Status::ok();
}

}  // namespace

Result<std::vector<FileValue>> parse_config(std::string_view text, const std::string& place,
                                            std::vector<std::string>& includes) {
  const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (text.substr(first).starts_with("---") || text.substr(first).starts_with("%YAML"))
    return invalid("{}: this is YAML; settings are JSON with // comments", place);
  Scan scan(text);
  const std::string plain = scan.without_comments();
  ASSIGN_OR_RETURN(const OrderedJson object, parse_ordered_json(plain, place));
  if (!object.is_object()) return invalid("{}: an object is expected, like {{\"context-length\": 4096}}", place);
  if (!scan.twice().empty()) return invalid("{}: \"{}\" is given twice", place, scan.twice());
  std::vector<FileValue> out;
  for (const auto& [name, value] : object.items()) {
    if (name == "include") {
      auto files = includes_of(value);
      if (!files) return files.status().at(fmt::format("{}: include", place));
      includes = std::move(*files);
      continue;
    }
    const std::string key = key_of(name);
    const Setting* s = find(key);
    if (!s) return unknown(name).at(place);
    if (s->key == "config") return invalid("{}: config: \"include\" names further files", place);
    auto values = values_of(*s, value);
    if (!values) return values.status().at(fmt::format("{}: {}", place, name));
    if (std::any_of(out.begin(), out.end(), [&](const FileValue& v) { return v.key == key; }))
      return invalid("{}: \"{}\" is given twice", place, name);
    out.push_back({key, std::move(*values), place});
  }
  return out;
}

Result<std::vector<FileValue>> read_config(const std::string& path) {
  std::vector<std::string> open;
  std::vector<FileValue> out;
  size_t files = 0;
  RETURN_IF_ERROR(read(path, open, files, out));
  return out;
}

}  // namespace reprise::settings
