// Conversation: the messages so far, in OpenAI's form, and their file. A message of the user that has no answer yet is
// the last one. A plain value; one thread at a time.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace reprise::apps {

class Conversation {
 public:
  explicit Conversation(std::optional<std::string> system = {}) { set_system(std::move(system)); }

  const OrderedJson& messages() const { return messages_; }
  std::optional<std::string> system() const;
  void set_system(std::optional<std::string> text);
  void ask(std::string text) { add("user", std::move(text)); }
  void answer(std::string text) { add("assistant", std::move(text)); }
  // The last message, if it is one of that role, taken off.
  std::optional<std::string> take_last(std::string_view role);
  // Everything but the system message.
  void forget() { *this = Conversation(system()); }

  // {"messages": [{"role": ..., "content": ...}, ...]}. A file that holds something else is not replaced.
  Status save(const std::string& path) const;
  // Reads that form, or the list alone. Errors name the message and the key.
  static Result<Conversation> load(const std::string& path);

 private:
  void add(const char* role, std::string text) { messages_.push_back({{"role", role}, {"content", std::move(text)}}); }

  OrderedJson messages_ = OrderedJson::array();
};

}  // namespace reprise::apps
