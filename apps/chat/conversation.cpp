#include "chat/conversation.h"

#include <filesystem>

#include "base/file.h"

namespace reprise::apps {
namespace {

constexpr size_t kMostBytesOfAFile = 64 << 20;

// A text, or OpenAI's list of parts that are all texts.
Result<std::string> message_text(const OrderedJson& content, const std::string& place) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return invalid("{} is {}; a text is expected", place, content.type_name());
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const OrderedJson& part = content[i];
    if (!part.is_object() || part.value("type", OrderedJson()) != "text" || !part.contains("text") ||
        !part["text"].is_string())
      return invalid("{}[{}]: parts other than {{\"type\": \"text\", \"text\": ...}} are not read", place, i);
    text += part["text"].get<std::string>();
  }
  return text;
}

}  // namespace

std::optional<std::string> Conversation::system() const {
  if (messages_.empty() || messages_[0]["role"] != "system") return std::nullopt;
  return messages_[0]["content"].get<std::string>();
}

void Conversation::set_system(std::optional<std::string> text) {
  if (system()) messages_.erase(0);
  if (text) messages_.insert(messages_.begin(), OrderedJson{{"role", "system"}, {"content", std::move(*text)}});
}

std::optional<std::string> Conversation::take_last(std::string_view role) {
  if (messages_.empty() || messages_.back()["role"] != role) return std::nullopt;
  std::string text = messages_.back()["content"].get<std::string>();
  messages_.erase(messages_.size() - 1);
  return text;
}

Status Conversation::save(const std::string& path) const {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !load(path))
    return invalid("{} is there and holds no conversation; it is not replaced, choose another name", path);
  const OrderedJson file = {{"messages", messages_}};
  return write_file_atomically(path, file.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

Result<Conversation> Conversation::load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, read_file(path, kMostBytesOfAFile));
  ASSIGN_OR_RETURN(const OrderedJson file, parse_ordered_json(content, path));
  const OrderedJson& list = file.is_object() && file.contains("messages") ? file["messages"] : file;
  if (!list.is_array()) return invalid("{}: a list of messages, or {{\"messages\": [...]}}, is expected", path);
  Conversation c;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}: messages[{}]", path, i);
    const OrderedJson& m = list[i];
    if (!m.is_object() || !m.contains("role") || !m.contains("content"))
      return invalid("{}: an object with \"role\" and \"content\" is expected", place);
    const OrderedJson& role = m["role"];
    if (role != "system" && role != "user" && role != "assistant")
      return invalid("{}.role is {}; allowed: system, user, assistant", place,
                     role.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
    if (role == "system" && i > 0) return invalid("{}.role is \"system\"; only the first message may have it", place);
    ASSIGN_OR_RETURN(std::string text, message_text(m["content"], place + ".content"));
    c.add(role.get<std::string>().c_str(), std::move(text));
  }
  return c;
}

}  // namespace reprise::apps
