// Anthropic's Messages: the answers, whole and as events.
#include "server/dialect.h"
#include "server/fields.h"
#include "server/messages_reader.h"

namespace reprise::server {
namespace {

using sched::FinishReason;
using sched::RequestResult;

// A call's id with Anthropic's prefix.
std::string id_of(const ToolCall& call) {
  constexpr std::string_view kOurs = "call_";
  return "toolu_" + (call.id.starts_with(kOurs) ? call.id.substr(kOurs.size()) : call.id);
}

OrderedJson use_of(const ToolCall& call, OrderedJson input) {
  return {{"type", "tool_use"}, {"id", id_of(call)}, {"name", call.name}, {"input", std::move(input)}};
}

class MessagesWriter final : public AnswerWriter {
 public:
  MessagesWriter(const ServedModel& model, const GenerateCall& call) : model_(model), call_(call) {}

  OrderedJson whole(const std::vector<Answer>& answers) const override {
    const Answer& a = answers.front();
    OrderedJson content = OrderedJson::array();
    if (!a.reasoning.empty()) content.push_back({{"type", "thinking"}, {"thinking", a.reasoning}, {"signature", ""}});
    if (!a.text.empty()) content.push_back({{"type", "text"}, {"text", a.text}});
    for (const ToolCall& c : a.calls) {
      auto input = parse_ordered_json(c.arguments, "arguments");
      content.push_back(use_of(c, input ? std::move(*input) : OrderedJson::object()));
    }
    const Usage u = usage_of(call_, answers);
    OrderedJson out = message(u.prompt_tokens, u.cached_tokens, u.completion_tokens);
    out["content"] = std::move(content);
    out.update(end_of(a));
    return out;
  }

  std::string admitted(size_t, int64_t cached_tokens) override {
    started_ = true;
    const auto prompt = static_cast<int64_t>(call_.prompts.front().size());
    return server_event({{"type", "message_start"}, {"message", message(prompt, cached_tokens, 0)}}, "message_start") +
           ping();
  }
  std::string part(const AnswerPart& p, const Answer& so_far) override {
    std::string out = started_ ? "" : admitted(0, 0);
    if (!p.reasoning.empty()) out += say(Block::Thinking, "thinking_delta", "thinking", p.reasoning);
    if (!p.text.empty()) out += say(Block::Text, "text_delta", "text", p.text);
    for (const ToolCall& c : p.calls) {
      out += open(Block::Call, use_of(c, OrderedJson::object()));
      out += delta({{"type", "input_json_delta"}, {"partial_json", c.arguments}});
      out += close();
    }
    if (!p.result) return out;
    const int64_t completion = p.result->completion_tokens;
    return out + close() +
           server_event(
               {{"type", "message_delta"}, {"delta", end_of(so_far)}, {"usage", {{"output_tokens", completion}}}},
               "message_delta") +
           server_event({{"type", "message_stop"}}, "message_stop");
  }
  std::string error(const ApiError& error) override { return server_event(error.json(ErrorForm::Anthropic), "error"); }
  std::string end(const std::vector<Answer>&) override { return {}; }
  std::string ping() const override { return server_event({{"type", "ping"}}, "ping"); }

 private:
  enum class Block : uint8_t { None, Thinking, Text, Call };

  OrderedJson message(int64_t prompt, int64_t cached, int64_t completion) const {
    return {{"id", call_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", name_in_answers(model_, call_)},
            {"content", OrderedJson::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage",
             {{"input_tokens", prompt - cached},
              {"cache_creation_input_tokens", 0},
              {"cache_read_input_tokens", cached},
              {"output_tokens", completion}}}};
  }

  OrderedJson end_of(const Answer& a) const {
    const RequestResult& r = *a.result;
    const bool cut = r.completion_tokens >= call_.sampling.max_new_tokens;
    const char* reason = !a.stop_string.empty()             ? "stop_sequence"
                         : r.finish == FinishReason::Length ? (cut ? "max_tokens" : "model_context_window_exceeded")
                         : !a.calls.empty()                 ? "tool_use"
                                                            : "end_turn";
    // The API has no word for an answer that was aborted on purpose.
    const bool aborted = r.finish == FinishReason::Cancelled;
    return {{"stop_reason", aborted ? OrderedJson(nullptr) : OrderedJson(reason)},
            {"stop_sequence", a.stop_string.empty() ? OrderedJson(nullptr) : OrderedJson(a.stop_string)}};
  }

  // One block is open at a time, and has deltas of its own kind alone.
  std::string open(Block kind, OrderedJson block) {
    std::string out = close();
    open_ = kind;
    return out + server_event({{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}},
                              "content_block_start");
  }
  std::string delta(OrderedJson what) const {
    return server_event({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(what)}},
                        "content_block_delta");
  }
  std::string say(Block kind, const char* type, const char* field, const std::string& text) {
    std::string out;
    if (open_ != kind) {
      OrderedJson block = {{"type", field}, {field, ""}};
      if (kind == Block::Thinking) block["signature"] = "";
      out = open(kind, std::move(block));
    }
    return out + delta({{"type", type}, {field, text}});
  }
  std::string close() {
    if (open_ == Block::None) return {};
    std::string out;
    if (open_ == Block::Thinking) out = delta({{"type", "signature_delta"}, {"signature", ""}});
    open_ = Block::None;
    return out + server_event({{"type", "content_block_stop"}, {"index", index_++}}, "content_block_stop");
  }

  const ServedModel& model_;
  const GenerateCall& call_;
  Block open_ = Block::None;
  int64_t index_ = 0;  // of the block that is open, or comes next
  bool started_ = false;
};

class MessagesDialect final : public Dialect {
 public:
  const char* route() const override { return "/v1/messages"; }
  const char* name() const override { return "anthropic"; }
  ErrorForm errors() const override { return ErrorForm::Anthropic; }
  ParsedCall parse(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) const override {
    return parse_messages(body, model, limits);
  }
  std::unique_ptr<AnswerWriter> writer(const ServedModel& model, const GenerateCall& call) const override {
    return std::make_unique<MessagesWriter>(model, call);
  }
};

}  // namespace

const Dialect& messages_dialect() {
  static const MessagesDialect dialect;
  return dialect;
}

}  // namespace reprise::server
