// A request of the C interface: messages, options of a chat, a form and a stop string, cut from the input at its zeros.
// What is refused has words; what is taken has a prompt within the context.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "apps/byte_tokenizer.h"
#include "base/hooks.h"
#include "capi/call.h"
#include "settings/binding.h"

using namespace reprise;

namespace {

struct World {
  World()
      : chat_template(text::ChatTemplate::compile("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
                                                  OrderedJson::object())
                          .value()) {
    model.tokenizer = text::Tokenizer::from_json(apps::byte_tokenizer()).value();
    model.chat_template = &chat_template;
    model.eos_tokens = {0};
    model.context_length = 4096;
    model.vocab_size = 256;
    grammars.emplace(text::grammar::TokenTable::from_tokenizer(*model.tokenizer, model.eos_tokens, 256).value());
    model.grammars = &*grammars;
  }
  text::ChatTemplate chat_template;
  server::ServedModel model;
  std::optional<server::AnswerGrammars> grammars;
};

std::vector<reprise_text> parts_of(std::string_view input) {
  std::vector<reprise_text> out;
  for (size_t begin = 0; begin <= input.size() && out.size() < 4;) {
    const size_t end = std::min(input.find('\0', begin), input.size());
    out.push_back({input.data() + begin, end - begin});
    begin = end + 1;
  }
  out.resize(4, {"", 0});
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  static Hooks silent;
  const HookScope scope(&silent);
  if (size < 2) return 0;
  const auto parts = parts_of({reinterpret_cast<const char*>(data) + 2, size - 2});
  reprise_sampling sampling = capi::default_sampling();
  sampling.form = data[0] % 8;
  sampling.form_text = parts[2];
  sampling.stop = &parts[3];
  sampling.stop_count = parts[3].size ? 1 : 0;
  reprise_request request{};
  request.size = sizeof request;
  request.sampling = &sampling;
  request.answers = data[1];
  (data[0] & 8 ? request.prompt : request.messages) = parts[0];
  request.chat = parts[1];
  capi::Call call;
  const capi::Failure failure = capi::read_call(call, &request, world.model, 0);
  if (!failure.is_ok()) {
    if (failure.status.message().empty()) std::abort();
    return 0;
  }
  const auto& prompts = call.call.prompts;
  if (prompts.size() != 1 || prompts.front().empty() || prompts.front().size() >= 4096 || call.call.n < 1) std::abort();
  (void)settings::values_of_json({parts[1].data, parts[1].size});
  return 0;
}
