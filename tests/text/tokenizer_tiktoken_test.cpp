// Tokenizers of tiktoken.model beside tiktoken's own, and what is refused of such files. The ids of all strings are in
// tokenizer_golden_test.
#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/file.h"
#include "text/tokenizer.h"
#include "text/tokenizer_data.h"

namespace reprise::text::tokenizer_tiktoken_test {
namespace {

std::string ranks_text() { return read_file(golden_folder() + "/tiktoken/tiktoken.model").value(); }

Json config_json() {
  return parse_json(read_file(golden_folder() + "/tiktoken/tokenizer_config.json").value(), "config").value();
}

TEST(Tiktoken, SpecialTokensAndBytesAreThoseOfTiktoken) {
  const auto made = Tokenizer::from_tiktoken(ranks_text(), config_json());
  ASSERT_TRUE(made) << made.status().message();
  const auto golden = parse_json(read_file(golden_folder() + "/tiktoken/special.json").value(), "golden");
  ASSERT_TRUE(golden) << golden.status().message();
  ASSERT_GE((*golden)["texts"].size(), 8u);
  for (const Json& entry : (*golden)["texts"]) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = made->encode(text);
    ASSERT_TRUE(ids) << ids.status().message();
    EXPECT_EQ(*ids, entry["ids"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(made->decode(*ids).value(), text);
    // What stands in answers for programs is no special token to HF either: it is always found.
    if (text.find("<|tool_call") != std::string::npos) continue;
    const auto plain = made->encode(text, {.parse_special = false});
    ASSERT_TRUE(plain) << plain.status().message();
    EXPECT_EQ(*plain, entry["as_text"].get<std::vector<int32_t>>()) << text;
  }
  for (const auto& [id, bytes] : (*golden)["bytes"].items()) {
    const auto wanted = bytes.get<std::vector<uint8_t>>();
    EXPECT_EQ(made->token_bytes(std::stoi(id)).value(), std::string(wanted.begin(), wanted.end())) << id;
  }
  EXPECT_EQ(made->vocab_size(), 1456);
  EXPECT_EQ(made->id_to_token(made->bos_id()), "[BOS]");
  EXPECT_EQ(made->id_to_token(made->eos_id()), "[EOS]");
  EXPECT_EQ(made->id_to_token(made->pad_id()), "[PAD]");
  // And it is not left out of a text.
  const int32_t call = *made->token_to_id("<|tool_call_begin|>"), user = *made->token_to_id("<|im_user|>");
  const int32_t both[] = {call, user};
  EXPECT_EQ(made->decode(both, true).value(), "<|tool_call_begin|>");
}

std::string problem(const std::string& ranks, const Json& config) {
  const auto made = Tokenizer::from_tiktoken(ranks, config);
  return made ? "none" : made.status().message();
}

TEST(Tiktoken, WrongRanksNameTheLine) {
  const Json config = config_json();
  const std::string ranks = ranks_text();
  const auto with_first_line = [&](const std::string& line) { return line + ranks.substr(ranks.find('\n')); };
  const std::string shape = "tiktoken.model: line 1: must be a token in base64, a space and its rank";
  EXPECT_EQ(problem(with_first_line("+Q=="), config), shape);
  EXPECT_EQ(problem(with_first_line("+Q== x"), config), shape);
  EXPECT_EQ(problem(with_first_line("+Q== -1"), config), shape);
  EXPECT_EQ(problem(with_first_line("+Q== 0 0"), config), shape);
  EXPECT_EQ(problem(with_first_line("*** 0"), config), shape);
  EXPECT_EQ(problem(with_first_line(" 0"), config), shape);
  EXPECT_EQ(problem(with_first_line("+Q== 99999999999999999999"), config), shape);
  EXPECT_EQ(problem(with_first_line("+Q== 99999"), config),
            "tiktoken.model: line 1: rank 99999, but there are only 1201 lines");
  EXPECT_EQ(problem(with_first_line("+Q== 7"), config), "tiktoken.model: line 8: rank 7 occurs twice");
  EXPECT_EQ(problem(with_first_line("+Q== 1200"), config),
            "tiktoken.model: no token has rank 0, and others are higher");
  EXPECT_EQ(problem(with_first_line(base64_of(std::string(1025, 'x')) + " 0"), config),
            "tiktoken.model: line 1: a token of 1025 bytes; at most 1024 are allowed");
  EXPECT_EQ(problem(with_first_line("IA== 0"), config), "tiktoken.model: a token occurs twice");
  EXPECT_EQ(problem(with_first_line("eHh4eHh4eHg= 0"), config),
            "tiktoken.model: no token is the byte 0xF9 alone; each byte needs one");
  EXPECT_EQ(problem("", config), "tiktoken.model: no token is the byte 0x00 alone; each byte needs one");
  // As some editors leave it.
  std::string lines;
  for (const char c : ranks) lines += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_EQ(problem(lines + "\r\n", config), "none");
}

TEST(Tiktoken, WrongConfigsNameTheKey) {
  Json config = config_json();
  config["tokenizer_class"] = "QWenTokenizer";
  EXPECT_EQ(problem(ranks_text(), config),
            "tokenizer_config.json: tokenizer_class: \"QWenTokenizer\" is not known to read a tiktoken.model; known: "
            "TikTokenTokenizer");
  config.erase("tokenizer_class");
  EXPECT_NE(problem(ranks_text(), config).find("tokenizer_class: \"\" is not known"), std::string::npos);
  EXPECT_EQ(problem(ranks_text(), Json::array()), "tokenizer_config.json: must be an object");
  config = config_json();
  config["eos_token"] = "<eos>";
  EXPECT_NE(problem(ranks_text(), config).find("eos_token: \"<eos>\" is not a token"), std::string::npos);
  config = config_json();
  config["added_tokens_decoder"] = 3;
  EXPECT_NE(problem(ranks_text(), config).find("added_tokens_decoder: must be an object"), std::string::npos);
  // Without names all of them are reserved.
  config = {{"tokenizer_class", "TikTokenTokenizer"}};
  const auto made = Tokenizer::from_tiktoken(ranks_text(), config);
  ASSERT_TRUE(made) << made.status().message();
  EXPECT_EQ(made->id_to_token(1200), "<|reserved_token_1200|>");
  EXPECT_EQ(made->bos_id(), -1);
}

}  // namespace
}  // namespace reprise::text::tokenizer_tiktoken_test
