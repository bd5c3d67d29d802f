// Commands that answer through a LoRA adapter, against the logits that PEFT gave (tests/data/lora).
#include <algorithm>

#include "apps/byte_tokenizer.h"
#include "apps/serving.h"
#include "support/goldens.h"

namespace reprise::apps::adapter_test {
namespace {

std::string adapter_folder(const std::string& name) {
  return std::string(REPRISE_SOURCE_DIR) + "/tests/data/lora/llama_gqa3_tied." + name;
}
std::string module_of(const std::string& name) { return name + "=" + adapter_folder(name); }

constexpr const char* kModel = "llama_gqa3_tied";

Outcome next_token(const std::vector<int32_t>& prompt, const std::string& flags) {
  return run_binary(
      fmt::format("generate --model-path {} --dtype float32 --threads 1 --json --temperature 0 "
                  "--ignore-eos --max-new-tokens 1 --logprobs 0 --prompt-ids {} {}",
                  model_folder(kModel), fmt::join(prompt, ","), flags));
}

// The token after the whole prompt, by the reference.
int32_t likeliest(const testing_support::Golden& g) {
  const size_t vocab = g.logits.size() / g.positions.size();
  const auto last = g.logits.end() - static_cast<std::ptrdiff_t>(vocab);
  EXPECT_EQ(static_cast<size_t>(g.positions.back()), g.tokens.size() - 1);
  return static_cast<int32_t>(std::max_element(last, g.logits.end()) - last);
}

TEST(Adapter, GenerateGivesTheTokensOfPeft) {
  const std::string both = fmt::format("--lora-modules {} {}", module_of("style"), module_of("tone"));
  for (const std::string name : {"style", "tone"}) {
    const auto goldens = testing_support::read_goldens(adapter_folder(name));
    const auto& g = goldens.begin()->second;
    const OrderedJson alone = json_of(next_token(g.tokens, "--lora-modules " + module_of(name)));
    const OrderedJson chosen = json_of(next_token(g.tokens, both + " --adapter " + name));
    EXPECT_EQ(alone["output"]["token_ids"], OrderedJson{likeliest(g)}) << name;
    EXPECT_EQ(alone["output"], chosen["output"]) << name;
  }
  const auto prompt = testing_support::read_goldens(model_folder(kModel)).begin()->second;
  const OrderedJson model = json_of(next_token(prompt.tokens, ""));
  EXPECT_EQ(model["output"]["token_ids"], OrderedJson{likeliest(prompt)});
  EXPECT_EQ(json_of(next_token(prompt.tokens, both + " --adapter none"))["output"], model["output"]);
  EXPECT_NE(json_of(next_token(prompt.tokens, both + " --adapter tone"))["output"], model["output"]);
}

TEST(Adapter, EvaluationsAndChatsGoThroughIt) {
  Folder folder;
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(model_folder(kModel) + "/" + file, folder / file);
  folder.write("tokenizer.json", byte_tokenizer().dump());
  folder.write("text.txt", "The miller had three sons, a mill, a donkey and a cat.");
  folder.write("choices.jsonl", R"({"context": "It is", "choices": [" hot.", " cold."], "answer": 1})");
  folder.write("questions.jsonl", R"({"question": "1+1?", "answer": "#### 2"})");
  folder.write("chat.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  const auto said = [&](const std::string& command, const std::string& flags, const std::string& before = {}) {
    const Outcome o = run_binary(fmt::format("{} --model-path {} --dtype float32 --threads 1 --log-level warning {}",
                                             command, folder.path(), flags),
                                 before);
    EXPECT_EQ(o.exit_code, 0) << command << o.err;
    return o.out;
  };
  const std::string both = fmt::format("--lora-modules {} {}", module_of("style"), module_of("tone"));
  const auto perplexity = [&](const std::string& flags) {
    const std::string out = said("eval perplexity --json --window 32 --text-file " + (folder / "text.txt"), flags);
    return parse_ordered_json(out, "perplexity").value()["mean_nll"].get<double>();
  };
  const double model = perplexity("");
  EXPECT_EQ(perplexity(both + " --adapter none"), model);
  EXPECT_NE(perplexity(both + " --adapter style"), model);
  EXPECT_EQ(perplexity(both + " --adapter tone"), perplexity("--lora-modules " + module_of("tone")));

  const auto choices = [&](const std::string& flags) {
    const std::string answers = folder / "answers.jsonl";
    said(fmt::format("eval choice --data-path {} --answers-file {}", folder / "choices.jsonl", answers), flags);
    return content_of(answers);
  };
  EXPECT_EQ(choices(both + " --adapter none"), choices(""));
  EXPECT_NE(choices(both + " --adapter tone"), choices(""));
  // Strong enough to change what the model repeats.
  std::filesystem::create_directories(folder / "strong");
  std::filesystem::copy(adapter_folder("style") + "/adapter_model.safetensors",
                        folder / "strong/adapter_model.safetensors");
  Json config = Json::parse(content_of(adapter_folder("style") + "/adapter_config.json"));
  config["lora_alpha"] = 400;
  folder.write("strong/adapter_config.json", config.dump());
  const std::string strong = "--lora-modules strong=" + (folder / "strong");
  const auto answers = [&](const std::string& flags) {
    const std::string file = folder / "answers.jsonl";
    said(fmt::format("eval gsm8k --num-shots 0 --max-new-tokens 8 --data-path {} --answers-file {}",
                     folder / "questions.jsonl", file),
         flags);
    return content_of(file);
  };
  EXPECT_NE(answers(strong), answers(""));
  const auto chat = [&](const std::string& flags) {
    return said(
        fmt::format("chat --temperature 0 --max-new-tokens 8 --history off --chat-template {}", folder / "chat.jinja"),
        flags, "echo hello |");
  };
  EXPECT_NE(chat(strong), chat(""));
}

TEST(Adapter, OneThatIsNotNamedIsOneClearError) {
  const std::string both = fmt::format("--lora-modules {} {}", module_of("style"), module_of("tone"));
  const auto wrong = [&](const std::string& flags) {
    const Outcome o = next_token({2, 3}, flags);
    EXPECT_EQ(o.exit_code, 2) << o.err;
    return o.err;
  };
  EXPECT_TRUE(holds(wrong(both), "--lora-modules names 2 adapters; --adapter chooses one; allowed: style, tone, none"));
  EXPECT_TRUE(
      holds(wrong(both + " --adapter tune"), "--adapter tune: --lora-modules names no such adapter; allowed: "));
  EXPECT_TRUE(holds(wrong("--adapter style"), "allowed: none"));
}

}  // namespace
}  // namespace reprise::apps::adapter_test
