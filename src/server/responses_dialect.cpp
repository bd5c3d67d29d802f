// OpenAI's Responses: the answers, whole and as events.
#include <algorithm>
#include <chrono>

#include "server/call_reader.h"
#include "server/dialect.h"
#include "server/fields.h"
#include "server/responses_reader.h"
#include "settings/setting.h"

namespace reprise::server {
namespace {

using engine::SampledToken;
using sched::FinishReason;
using sched::RequestResult;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Each event has its type as its name, and its number.
class Events {
 public:
  void add(const char* type, OrderedJson fields) {
    OrderedJson event = {{"type", type}, {"sequence_number", next_++}};
    event.update(fields);
    text_ += server_event(event, type);
  }
  std::string take() { return std::exchange(text_, {}); }

 private:
  int64_t next_ = 0;
  std::string text_;
};

class ResponsesWriter final : public AnswerWriter {
 public:
  ResponsesWriter(const ServedModel& model, const GenerateCall& call)
      : model_(model), call_(call), tail_(call.id.substr(call.id.find('_') + 1)), created_(now()) {}

  OrderedJson whole(const std::vector<Answer>& answers) const override {
    const Answer& a = answers.front();
    OrderedJson items = OrderedJson::array();
    if (!a.reasoning.empty()) items.push_back(thought(items.size(), a.reasoning, "completed"));
    if (!a.text.empty()) items.push_back(message(items.size(), a.text, logprobs(a.tokens), item_status(a)));
    for (const ToolCall& c : a.calls) items.push_back(called(items.size(), c, argument_of(c), "completed"));
    return ended(a, answers, std::move(items));
  }

  std::string admitted(size_t, int64_t) override {
    started_ = true;
    const OrderedJson begun = response("in_progress", OrderedJson::array());
    events_.add("response.created", {{"response", begun}});
    events_.add("response.in_progress", {{"response", begun}});
    return events_.take();
  }
  std::string part(const AnswerPart& p, const Answer& so_far) override {
    std::string before = started_ ? "" : admitted(0, 0);
    // Tokens whose text is held back belong to the text that comes next.
    held_.insert(held_.end(), p.tokens.begin(), p.tokens.end());
    if (!p.reasoning.empty()) {
      say(Kind::Thought, p.reasoning, OrderedJson::array());
      held_.clear();
    }
    if (!p.text.empty()) say(Kind::Message, p.text, logprobs(std::exchange(held_, {})));
    for (const ToolCall& c : p.calls) call(c);
    if (p.result) {
      if (open_ == Kind::Message)
        for (const OrderedJson& l : logprobs(held_)) logs_.push_back(l);
      close(item_status(so_far));
      finish(so_far);
    }
    return before + events_.take();
  }
  std::string error(const ApiError& error) override {
    std::string before = started_ ? "" : admitted(0, 0);
    close("incomplete");
    OrderedJson out = response("failed", output_);
    out["error"] = {{"code", error.code.empty() ? "server_error" : error.code}, {"message", error.message}};
    events_.add("response.failed", {{"response", std::move(out)}});
    return before + events_.take();
  }
  std::string end(const std::vector<Answer>&) override { return {}; }

 private:
  enum class Kind : uint8_t { None, Thought, Message };

  // The open item has a name by its place.
  std::string id(const char* prefix, size_t index) const { return fmt::format("{}_{}_{}", prefix, tail_, index); }

  OrderedJson text_part(const std::string& text, OrderedJson logs) const {
    return {
        {"type", "output_text"}, {"text", text}, {"annotations", OrderedJson::array()}, {"logprobs", std::move(logs)}};
  }
  OrderedJson thought_part(const std::string& text) const { return {{"type", "reasoning_text"}, {"text", text}}; }
  OrderedJson thought(size_t index, const std::string& text, const char* status) const {
    OrderedJson content = OrderedJson::array();
    if (!text.empty()) content.push_back(thought_part(text));
    return {{"id", id("rs", index)},         {"type", "reasoning"},          {"summary", OrderedJson::array()},
            {"content", std::move(content)}, {"encrypted_content", nullptr}, {"status", status}};
  }
  OrderedJson message(size_t index, const std::string& text, OrderedJson logs, const char* status) const {
    OrderedJson content = OrderedJson::array();
    if (!text.empty()) content.push_back(text_part(text, std::move(logs)));
    return {{"id", id("msg", index)},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }
  // The tool that is called, as the client named it.
  struct Tool {
    std::string name, space;
    bool custom = false;
  };
  Tool tool_of(const ToolCall& c) const {
    Tool out{c.name, "", false};
    const auto look = [&](const OrderedJson& list, const std::string& space, const auto& again) -> bool {
      return std::any_of(list.begin(), list.end(), [&](const OrderedJson& t) {
        const std::string type = text_of_member(t, "type"), name = text_of_member(t, "name");
        if (type == "namespace" && space.empty()) return again(t["tools"], name, again);
        if ((type != "function" && type != "custom") || joined_tool_name(space, name) != c.name) return false;
        out = {name, space, type == "custom"};
        return true;
      });
    };
    if (const auto tools = call_.repeated.find("tools"); tools != call_.repeated.end()) look(*tools, "", look);
    return out;
  }
  // The arguments, or the one text of a custom tool.
  std::string argument_of(const ToolCall& c) const {
    if (!tool_of(c).custom) return c.arguments;
    const auto arguments = parse_ordered_json(c.arguments, "arguments");
    const OrderedJson* input = arguments ? given(*arguments, "input") : nullptr;
    return input && input->is_string() ? input->get<std::string>() : c.arguments;
  }
  OrderedJson called(size_t index, const ToolCall& c, const std::string& argument, const char* status) const {
    const Tool tool = tool_of(c);
    OrderedJson out = {{"id", id(tool.custom ? "ctc" : "fc", index)},
                       {"type", tool.custom ? "custom_tool_call" : "function_call"},
                       {"status", status},
                       {"call_id", c.id},
                       {"name", tool.name},
                       {tool.custom ? "input" : "arguments", argument}};
    if (!tool.space.empty()) out["namespace"] = tool.space;
    return out;
  }
  OrderedJson logprobs(const std::vector<SampledToken>& tokens) const {
    return call_.sampling.logprobs >= 0 ? chat_logprobs(model_, tokens) : OrderedJson::array();
  }

  static const char* item_status(const Answer& a) {
    return a.result->finish == FinishReason::Stop ? "completed" : "incomplete";
  }

  OrderedJson response(const char* status, OrderedJson output) const {
    const OrderedJson& r = call_.repeated;
    const auto repeated = [&](const char* name) { return r.value(name, OrderedJson()); };
    return {{"id", call_.id},
            {"object", "response"},
            {"created_at", created_},
            {"completed_at", nullptr},
            {"status", status},
            {"background", false},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", repeated("instructions")},
            {"max_output_tokens", repeated("max_output_tokens")},
            {"model", name_in_answers(model_, call_)},
            {"output", std::move(output)},
            {"parallel_tool_calls", repeated("parallel_tool_calls")},
            {"previous_response_id", nullptr},
            {"reasoning", repeated("reasoning")},
            {"store", false},
            {"temperature", repeated("temperature")},
            {"text", repeated("text")},
            {"tool_choice", repeated("tool_choice")},
            {"tools", repeated("tools")},
            {"top_logprobs", std::max(0, call_.sampling.logprobs)},
            {"top_p", repeated("top_p")},
            {"truncation", "disabled"},
            {"usage", nullptr},
            {"metadata", repeated("metadata")}};
  }
  OrderedJson ended(const Answer& a, const std::vector<Answer>& answers, OrderedJson items) const {
    const RequestResult& r = *a.result;
    const char* status = r.finish == FinishReason::Stop     ? "completed"
                         : r.finish == FinishReason::Length ? "incomplete"
                                                            : "failed";
    OrderedJson out = response(status, std::move(items));
    if (r.finish == FinishReason::Stop) out["completed_at"] = now();
    if (r.finish == FinishReason::Length) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (r.finish == FinishReason::Cancelled)
      out["error"] = {{"code", "server_error"}, {"message", settings::as_flags(r.status.message())}};
    const Usage u = usage_of(call_, answers);
    out["usage"] = {{"input_tokens", u.prompt_tokens},
                    {"input_tokens_details", {{"cached_tokens", u.cached_tokens}, {"cache_write_tokens", 0}}},
                    {"output_tokens", u.completion_tokens},
                    {"output_tokens_details", {{"reasoning_tokens", a.reasoning_tokens}}},
                    {"total_tokens", u.prompt_tokens + u.completion_tokens}};
    return out;
  }

  OrderedJson at(OrderedJson fields) const {
    OrderedJson out = {{"item_id", id(open_ == Kind::Thought ? "rs" : "msg", output_.size())},
                       {"output_index", output_.size()},
                       {"content_index", 0}};
    out.update(fields);
    return out;
  }
  void say(Kind kind, const std::string& text, OrderedJson logs) {
    const bool thinks = kind == Kind::Thought;
    if (open_ != kind) {
      close("completed");
      open_ = kind;
      const size_t index = output_.size();
      events_.add("response.output_item.added",
                  {{"output_index", index},
                   {"item", thinks ? thought(index, "", "in_progress") : message(index, "", {}, "in_progress")}});
      events_.add("response.content_part.added",
                  at({{"part", thinks ? thought_part("") : text_part("", OrderedJson::array())}}));
    }
    text_ += text;
    for (OrderedJson& l : logs) logs_.push_back(l);
    if (thinks)
      events_.add("response.reasoning_text.delta", at({{"delta", text}}));
    else
      events_.add("response.output_text.delta", at({{"delta", text}, {"logprobs", std::move(logs)}}));
  }
  // Ends the open item.
  void close(const char* status) {
    if (open_ == Kind::None) return;
    const bool thinks = open_ == Kind::Thought;
    const size_t index = output_.size();
    if (thinks)
      events_.add("response.reasoning_text.done", at({{"text", text_}}));
    else
      events_.add("response.output_text.done", at({{"text", text_}, {"logprobs", logs_}}));
    events_.add("response.content_part.done", at({{"part", thinks ? thought_part(text_) : text_part(text_, logs_)}}));
    add(thinks ? thought(index, text_, "completed") : message(index, text_, logs_, status));
    open_ = Kind::None;
    text_.clear();
    logs_ = OrderedJson::array();
  }
  void add(OrderedJson item) {
    events_.add("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
  }
  void call(const ToolCall& c) {
    close("completed");
    const size_t index = output_.size();
    const std::string argument = argument_of(c);
    const Tool tool = tool_of(c);
    const bool custom = tool.custom;
    const OrderedJson item = called(index, c, argument, "completed");
    const OrderedJson place = {{"item_id", item["id"]}, {"output_index", index}};
    const auto with = [&](const char* field) {
      OrderedJson out = place;
      out[field] = argument;
      return out;
    };
    events_.add("response.output_item.added", {{"output_index", index}, {"item", called(index, c, "", "in_progress")}});
    events_.add(custom ? "response.custom_tool_call_input.delta" : "response.function_call_arguments.delta",
                with("delta"));
    OrderedJson done = with(custom ? "input" : "arguments");
    if (!custom) done["name"] = tool.name;
    events_.add(custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done",
                std::move(done));
    add(item);
  }
  void finish(const Answer& a) {
    const char* type = a.result->finish == FinishReason::Stop     ? "response.completed"
                       : a.result->finish == FinishReason::Length ? "response.incomplete"
                                                                  : "response.failed";
    events_.add(type, {{"response", ended(a, {a}, output_)}});
  }

  const ServedModel& model_;
  const GenerateCall& call_;
  std::string tail_;  // of the response's id, which those of its items have, too
  int64_t created_;
  Events events_;
  OrderedJson output_ = OrderedJson::array();  // the items that are complete
  Kind open_ = Kind::None;
  std::string text_;                         // of the open item
  OrderedJson logs_ = OrderedJson::array();  // likewise
  std::vector<SampledToken> held_;           // of no event yet
  bool started_ = false;
};

class ResponsesDialect final : public Dialect {
 public:
  const char* route() const override { return "/v1/responses"; }
  const char* name() const override { return "responses"; }
  ParsedCall parse(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) const override {
    return parse_response(body, model, limits);
  }
  std::unique_ptr<AnswerWriter> writer(const ServedModel& model, const GenerateCall& call) const override {
    return std::make_unique<ResponsesWriter>(model, call);
  }
};

}  // namespace

const Dialect& responses_dialect() {
  static const ResponsesDialect dialect;
  return dialect;
}

}  // namespace reprise::server
