// What the parsers of all dialects share: checks of a call, its defaults, and the prompt of a conversation. What is
// wrong goes to the Fields that are given, under the dialect's own name for it. Plain functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "server/chat_tools.h"
#include "server/fields.h"
#include "server/generate_call.h"

namespace reprise::server {

constexpr int64_t kMany = int64_t{1} << 40;

// The model that a request names: the served one, or one of its adapters, which SGLang also writes MODEL:ADAPTER; else
// 404.
void check_model(Fields& f, GenerateCall& call, const ServedModel& model);
// SGLang's field lora_path, which names an adapter.
void read_adapter(Fields& f, GenerateCall& call, const ServedModel& model);
// "\"model\", \"adapter\"", for errors.
std::string served_names(const ServedModel& model);
// The model takes conversations.
void check_chats(Fields& f, const char* field, const ServedModel& model);
// A member that is a text; "" where it is not.
std::string text_of_member(const OrderedJson& object, const char* name);
// Adds a line to a text.
void add_line(std::string& text, const std::string& more);
// The turns of a conversation that a dialect has put together, as write_prompt() takes them.
std::optional<OrderedJson> read_turns(Fields& f, OrderedJson turns, const ServedModel& model);

// What needs all of the call to be seen.
void check_call(Fields& f, const GenerateCall& call, const ServedModel& model, const CallLimits& limits,
                const char* prompt_name);
// A token stands for some bytes of text at most, so a text of more bytes than that for every place of the context need
// not be tokenised to be too long.
bool fits_context(Fields& f, const char* name, const std::string& text, const ServedModel& model);

// Warns of the fields that no parser reads. Before the others, so that a misspelt name is what an error names.
void warn_of_fields(Fields& f, const OrderedJson& body, FieldForm form, const char* path, GenerateCall& call,
                    const CallLimits& limits);
// One more, of a value that is known only where it is read.
void warn(Fields& f, std::string field, std::string text, GenerateCall& call, const CallLimits& limits);
// What tools may ask for that only an answer held to a form keeps.
void warn_of_tools(Fields& f, const ChatTools& tools, GenerateCall& call, const CallLimits& limits);

// What holds where a request is silent, with a seed of its own and the model's tokens that end an answer.
engine::SamplingParams default_sampling(const ServedModel& model);
void read_stops(Fields& f, const char* field, GenerateCall& call, const CallLimits& limits);
// The answers are of the form, or an error is in `f`.
void hold_to(Fields& f, const char* field, const AnswerForm& form, GenerateCall& call, const ServedModel& model);
// The same; or, where the form is JSON, calls of the tools that the request lets the model choose from. A model whose
// own way to call has no form is told another one.
void hold_to_or_call(Fields& f, const char* field, AnswerForm form, ChatTools& tools, GenerateCall& call,
                     const ServedModel& model);

// The source of the model's chat template has the name of a variable in it.
bool template_names(const ServedModel& model, std::string_view variable);
// Gives variables to the template, those that a request may set.
void set_variables(Fields& f, const Json& extra, const ServedModel& model, GenerateCall& call, const CallLimits& limits,
                   text::RenderOptions& options);
// Turns the template's switch of thinking, unless a request did so by its name. False: it has none.
bool set_thinking(bool on, const ServedModel& model, text::RenderOptions& options);
// How much a model thinks, in the words that its template has for it. As vLLM and SGLang do, "none" turns thinking off
// and others on where the template has a switch.
void set_effort(Fields& f, const char* field, const std::string& effort, GenerateCall& call, const ServedModel& model,
                const CallLimits& limits, text::RenderOptions& options);

// A conversation as templates take it.
struct ChatTurn {
  OrderedJson messages;  // as read_messages() gives them; the images of their parts are those of the call
  ChatTools tools;
  text::RenderOptions options;
  bool separate_reasoning = true;
};
// Writes its prompt, and says how its answers are taken apart.
void write_prompt(Fields& f, const char* field, ChatTurn turn, GenerateCall& call, const ServedModel& model);
// The call's images in the places that its prompt has for them.
void place_images(Fields& f, const char* field, GenerateCall& call, const ServedModel& model);

}  // namespace reprise::server
