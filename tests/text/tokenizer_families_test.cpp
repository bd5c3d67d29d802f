// One tokenizer for every way in which the published files of the supported families differ (tests/data/tokenizer,
// families): ids and decoded text of 21,000 strings against HF tokenizers, from tokenizer.json and from GGUF metadata.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/file.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_data.h"

namespace reprise::text::tokenizer_families_test {
namespace {

constexpr EncodeOptions kPlain{.add_special_tokens = false};

const Json& families() {
  static const Json json =
      parse_json(read_file(golden_folder() + "/families/families.json").value(), "families.json").value();
  return json;
}

const Json& vocabularies() {
  static const Json json =
      parse_json(read_gzip(golden_folder() + "/families/vocabularies.json.gz").value(), "vocabularies").value();
  return json;
}

const Json& vocabulary_of(const Json& kind) { return vocabularies()[kind["vocabulary"].get<std::string>()]; }

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const Json& kind : families()["kinds"]) names.push_back(kind["kind"].get<std::string>());
  return names;
}

const Json& kind_of(const std::string& name) {
  for (const Json& kind : families()["kinds"])
    if (kind["kind"] == name) return kind;
  ADD_FAILURE() << name;
  return families();
}

// 16 bits for each string. Those of a later kind are stored as the xor with the first one of its vocabulary.
std::vector<uint16_t> checks_of(const std::string& name, size_t strings) {
  static const std::string bytes = read_gzip(golden_folder() + "/families/checks.gz").value();
  std::map<std::string, size_t> first;
  size_t index = 0;
  for (const Json& kind : families()["kinds"]) {
    const size_t base = first.emplace(kind["vocabulary"].get<std::string>(), index).first->second;
    if (kind["kind"] != name) {
      ++index;
      continue;
    }
    std::vector<uint16_t> out(strings), of_first(strings);
    std::memcpy(out.data(), bytes.data() + index * strings * 2, strings * 2);
    std::memcpy(of_first.data(), bytes.data() + base * strings * 2, strings * 2);
    for (size_t i = 0; base != index && i < strings; ++i) out[i] ^= of_first[i];
    EXPECT_EQ(bytes.size(), families()["kinds"].size() * strings * 2);
    return out;
  }
  ADD_FAILURE() << name;
  return {};
}

Result<Tokenizer> from_json(const Json& kind) {
  Json json = kind["tokenizer"];
  const Json& vocabulary = vocabulary_of(kind);
  int64_t id = 0;
  for (const Json& token : vocabulary["tokens"]) json["model"]["vocab"][token.get<std::string>()] = id++;
  json["model"]["merges"] = vocabulary["merges"];
  return Tokenizer::from_json_text(json.dump());
}

// As a converter writes it. `name` is a value of tokenizer.ggml.pre, or behind a colon one of tokenizer.ggml.model.
GgufTokenizer metadata_of(const Json& kind, const std::string& name) {
  const Json& vocabulary = vocabulary_of(kind);
  GgufTokenizer gguf;
  gguf.tokens = vocabulary["tokens"].get<std::vector<std::string>>();
  gguf.token_types.assign(gguf.tokens.size(), 1);
  if (name.starts_with(':')) {
    gguf.model = name.substr(1);
    gguf.add_space_prefix = kind["tokenizer"]["normalizer"].dump().find("Prepend") != std::string::npos;
    constexpr size_t kFirst = 260;  // behind four control tokens and those of the bytes
    for (size_t i = 0; i < gguf.tokens.size(); ++i) {
      gguf.scores.push_back(i < kFirst ? 0 : -static_cast<float>(i - kFirst));
      if (i < kFirst) gguf.token_types[i] = 6;
    }
  } else {
    gguf.model = "gpt2";
    gguf.pre = name;
    for (const Json& merge : vocabulary["merges"])
      gguf.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  for (const Json& added : kind["tokenizer"]["added_tokens"]) {
    const auto id = added["id"].get<size_t>();
    if (id >= gguf.tokens.size()) {
      gguf.tokens.resize(id + 1);
      gguf.token_types.resize(id + 1, 5);
    }
    gguf.tokens[id] = added["content"].get<std::string>();
    gguf.token_types[id] = added["special"].get<bool>() ? 3 : 4;
    if (name.starts_with(':')) gguf.scores.resize(gguf.tokens.size());
    if (gguf.tokens[id] == "<unk>") gguf.unk = static_cast<int64_t>(id);
  }
  return gguf;
}

class TokenizerFamilies : public testing::TestWithParam<std::string> {
 protected:
  // Strings in one piece and streamed.
  static void compare(const Tokenizer& tokenizer, const std::string& name, size_t every = 1) {
    static const std::vector<std::string> strings = read_golden_strings().value();
    const std::vector<uint16_t> checks = checks_of(name, strings.size());
    ASSERT_EQ(checks.size(), strings.size());
    size_t wrong = 0, wrong_stream = 0;
    std::string examples;
    IncrementalDetokenizer stream(tokenizer, false);
    for (size_t i = 0; i < strings.size(); i += every) {
      const auto ids = tokenizer.encode(strings[i], kPlain);
      ASSERT_TRUE(ids) << ids.status().message();
      const auto decoded = tokenizer.decode(*ids);
      ASSERT_TRUE(decoded) << decoded.status().message();
      std::string all(reinterpret_cast<const char*>(ids->data()), ids->size() * sizeof(int32_t));
      all += *decoded;
      if ((fnv1a(all.data(), all.size()) & 0xFFFF) != checks[i] && ++wrong <= 5)
        examples += fmt::format("{}: {}: [{}]\n", i, strings[i], fmt::join(*ids, ", "));
      std::string streamed;
      for (int32_t id : *ids) streamed += stream.push(id).value();
      streamed += stream.finish().value();
      wrong_stream += streamed != *decoded;
    }
    EXPECT_EQ(wrong, 0u) << examples;
    EXPECT_EQ(wrong_stream, 0u);
  }
};

TEST_P(TokenizerFamilies, IdsAndTextAreThoseOfHf) {
  const Json& kind = kind_of(GetParam());
  const auto tokenizer = from_json(kind);
  ASSERT_TRUE(tokenizer) << tokenizer.status().message();
  compare(*tokenizer, GetParam());
}

TEST_P(TokenizerFamilies, SpecialTokensAreFoundAndStandInFront) {
  const Json& kind = kind_of(GetParam());
  const auto tokenizer = from_json(kind);
  ASSERT_TRUE(tokenizer) << tokenizer.status().message();
  ASSERT_GE(kind["texts"].size(), 10u);
  for (const Json& entry : kind["texts"]) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids) << ids.status().message();
    EXPECT_EQ(*ids, entry["ids"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(tokenizer->decode(*ids, true).value(), entry["decoded"].get<std::string>()) << text;
  }
}

TEST_P(TokenizerFamilies, GgufNamesGiveTheSameIds) {
  const Json& kind = kind_of(GetParam());
  for (const Json& name : kind["gguf"]) {
    SCOPED_TRACE(name.get<std::string>());
    const GgufTokenizer gguf = metadata_of(kind, name.get<std::string>());
    const auto tokenizer = Tokenizer::from_gguf(gguf);
    ASSERT_TRUE(tokenizer) << tokenizer.status().message();
    // Further names differ from the first in one entry of a table.
    compare(*tokenizer, GetParam(), name == kind["gguf"].front() ? 3 : 9);
    if (gguf.model != "gpt2") continue;
    const auto json = tokenizer_json_from_gguf(gguf);
    ASSERT_TRUE(json) << json.status().message();
    const auto written = Tokenizer::from_json(*json);
    ASSERT_TRUE(written) << written.status().message();
    compare(*written, GetParam(), 9);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerFamilies, testing::ValuesIn(kind_names()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace reprise::text::tokenizer_families_test
