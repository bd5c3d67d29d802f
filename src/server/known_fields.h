// The fields of requests that OpenAI, vLLM, SGLang and llama.cpp's server have, and what becomes of each here: read;
// without a bearing on the answer; or one that would change the answer and is not honoured. A request whose answer may
// not be what it asks for is told so: by warnings, or by an error under --strict-fields. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace reprise::server {

// The objects that have fields of their own.
enum class FieldForm : uint8_t {
  Completion,
  Chat,
  Native,
  NativeSampling,
  Messages,
  OllamaChat,
  OllamaGenerate,
  OllamaOptions,
  Responses
};
constexpr size_t kFieldForms = 9;

enum class FieldFate : uint8_t {
  Read,         // by the parsers
  Harmless,     // the answer is the same with and without it
  NotHonoured,  // the answer is not what it asks for
};

struct KnownField {
  const char* name;
  unsigned forms;  // one bit for each FieldForm
  FieldFate fate;
  const char* neutral;  // JSON: a list of values that ask for nothing, besides null, false, "", [] and {}
  const char* instead;  // what does the like here; "" = nothing
};
const std::vector<KnownField>& known_fields();
// Those of the other dialects than OpenAI's and SGLang's; a part of known_fields().
std::vector<KnownField> dialect_fields();
const KnownField* known_field(std::string_view name, FieldForm form);

// A warning begins with the field's name: `"temprature" is unknown; did you mean "temperature"?`.
struct FieldWarning {
  std::string field, text;
};
// Names the members of one object that are not read, with `path` in front.
std::vector<FieldWarning> field_warnings(const OrderedJson& object, FieldForm form, std::string_view path = "");
// The known field of the form that the name is nearest to; "" when none is near.
std::string nearest_field(std::string_view name, FieldForm form);

}  // namespace reprise::server
