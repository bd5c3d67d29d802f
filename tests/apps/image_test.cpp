// `reprise generate --image` and images over HTTP, against what transformers answers to the same conversations
// (tests/data/vision/qwen3_vl/answers.json, tools/golden/make_vision_answers.py).
#include <gtest/gtest.h>

#include <cmath>

#include "apps/serving.h"
#include "evaluation/text_file.h"
#include "support/http_client.h"

namespace reprise::apps::image_test {
namespace {

using testing_support::HttpAnswer;
using testing_support::HttpClient;

const std::string kData = std::string(REPRISE_SOURCE_DIR) + "/tests/data/";
const std::string kModel = fmt::format("--model-path {}vision/qwen3_vl --threads 2", kData);
const std::string kFlags = kModel + " --log-level warning";
const std::string kGenerate = "generate " + kFlags + " --temperature 0 --max-new-tokens 10 --json ";

std::string image(const std::string& name) { return kData + "images/" + name; }

std::string data_url(const std::string& name) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string bytes = content_of(image(name));
  std::string out = fmt::format("data:image/{};base64,", name.substr(name.rfind('.') + 1));
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : digits[three >> (18 - 6 * k) & 63];
  }
  return out;
}

Json answers() { return Json::parse(content_of(kData + "vision/qwen3_vl/answers.json")); }

TEST(Image, ChatsOverHttpAreAnsweredAsByTheReference) {
  const Model model(kModel);
  Server server(model, "");
  ASSERT_GT(server.port(), 0) << server.said();
  HttpClient client(server.port());
  for (const Json& want : answers()) {
    Json messages = want["messages"];
    for (Json& m : messages)
      for (Json& part : m["content"])
        if (part.is_object() && part["type"] == "image")
          part = {{"type", "image_url"}, {"image_url", {{"url", data_url(part["file"])}}}};
        else if (part.is_object())
          part["image_url"] = nullptr;  // as clients write what they leave out
    const Json body = {
        {"messages", messages}, {"temperature", 0}, {"max_tokens", 10}, {"logprobs", true}, {"return_token_ids", true}};
    for (const bool again : {false, true}) {  // the second time from the prefix cache
      const HttpAnswer a = client.post("/v1/chat/completions", body.dump());
      ASSERT_EQ(a.status, 200) << a.body;
      const Json got = Json::parse(a.body);
      EXPECT_EQ(got["usage"]["prompt_tokens"], want["prompt_tokens"]);
      EXPECT_EQ(got["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>() > 20, again) << got["usage"];
      EXPECT_EQ(got["choices"][0]["token_ids"], want["tokens"]) << a.body;
      const Json& content = got["choices"][0]["logprobs"]["content"];
      ASSERT_LE(content.size(), want["logprobs"].size());
      for (size_t i = 0; i < content.size(); ++i)
        // Logits of these weights are large, and held to 1e-4 of the largest (tests/models/vision_test.cpp).
        EXPECT_NEAR(content[i]["logprob"].get<double>(), want["logprobs"][i].get<double>(), 5e-3) << i;
    }
  }
  const Json shown = Json::parse(client.post("/api/show", R"({"model": "qwen3_vl"})").body);
  EXPECT_NE(std::find(shown["capabilities"].begin(), shown["capabilities"].end(), "vision"),
            shown["capabilities"].end());
}

// The raw form of a conversation of the reference, with places where its template writes them.
TEST(Image, TheCommandTakesImagesInTheirPlaces) {
  const OrderedJson want(answers()[0]);
  const std::string place = "<|vision_start|><|image_pad|><|vision_end|>";
  Folder folder;
  folder.write("prompt", fmt::format("<|im_start|>user\nfirst {} then {} which is larger?<|im_end|>\n<|im_start|>"
                                     "assistant\n",
                                     place, place));
  const std::string two = fmt::format("--image {} --image {}", image("rgb.png"), image("rgb.jpeg"));
  // The shell takes the last line ends of what it reads.
  const OrderedJson raw =
      json_of(run_binary(kGenerate + two + " -p \"${p%.}\"", "p=$(cat " + (folder / "prompt") + "; echo .);"));
  EXPECT_EQ(raw["prompt_tokens"], want["prompt_tokens"]);
  EXPECT_EQ(raw["output"]["token_ids"], want["tokens"]);
  const OrderedJson in_front(answers()[2]);
  const OrderedJson chat = json_of(run_binary(kGenerate + two + " --apply-chat-template -p 'which is larger?'"));
  EXPECT_EQ(chat["prompt_tokens"], in_front["prompt_tokens"]);
  EXPECT_EQ(chat["output"]["token_ids"], in_front["tokens"]);
}

// A text model and its tower as GGUF files (tools/golden/make_mmproj.py).
class Mmproj : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return kData + "vision/" + GetParam() + "_gguf/"; }
  std::string generate() const {
    const std::string words = answers()[0]["messages"][0]["content"][2]["text"];
    return fmt::format(
        "generate --threads 2 --log-level warning --dtype float32 --temperature 0 --max-new-tokens 10 "
        "--json --apply-chat-template -p '{}' --image {} --image {} --model-path {}",
        words, image("rgb.png"), image("rgb.jpeg"), folder() + "model.gguf");
  }
  Json answers() const { return Json::parse(content_of(folder() + "answers.json")); }
};

TEST_P(Mmproj, PicturesAreAnsweredAsByTheReference) {
  const OrderedJson want(answers()[0]);
  const OrderedJson chat = json_of(run_binary(generate() + " --mmproj " + folder() + "mmproj.gguf"));
  EXPECT_EQ(chat["prompt_tokens"], want["prompt_tokens"]);
  EXPECT_EQ(chat["output"]["token_ids"], want["tokens"]);
}

TEST_P(Mmproj, WithoutTheFileOfTheTowerPicturesAreRefused) {
  const Outcome o = run_binary(generate());
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_TRUE(holds(o.err, "reads no images without the GGUF file of its vision tower (--mmproj)")) << o.err;
}

INSTANTIATE_TEST_SUITE_P(Models, Mmproj, testing::Values("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5_vl"),
                         [](const auto& i) { return i.param; });

// tools/golden/make_video.py: places of frames and positions as transformers 4 has them.
class Video : public testing::TestWithParam<std::string> {
 protected:
  Json answers() const { return Json::parse(content_of(kData + "vision/" + GetParam() + "/video_answers.json")); }
  std::string model() const { return fmt::format("--model-path {}vision/{} --threads 2", kData, GetParam()); }
};

TEST_P(Video, ChatsOverHttpAreAnsweredAsByTheReference) {
  const Model model(this->model());
  Server server(model, "--chunked-prefill-size 32");  // cuts videos
  ASSERT_GT(server.port(), 0) << server.said();
  HttpClient client(server.port());
  for (const Json& want : answers()) {
    Json content = want["content"];
    for (Json& part : content) {
      if (part["type"] != "video") continue;
      part["video"] = Json::array();
      for (int i = 0; i < 5; ++i) part["video"].push_back(data_url(fmt::format("../videos/clip/{}.png", i)));
      part["fps"] = want["fps"];
    }
    const Json body = {{"messages", {{{"role", "user"}, {"content", content}}}},
                       {"temperature", 0},
                       {"max_tokens", 8},
                       {"logprobs", true},
                       {"return_token_ids", true}};
    for (const bool again : {false, true}) {
      const HttpAnswer a = client.post("/v1/chat/completions", body.dump());
      ASSERT_EQ(a.status, 200) << a.body;
      const Json got = Json::parse(a.body);
      EXPECT_EQ(got["usage"]["prompt_tokens"], want["prompt_tokens"]);
      EXPECT_EQ(got["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>() > 60, again) << got["usage"];
      EXPECT_EQ(got["choices"][0]["token_ids"], want["tokens"]) << a.body;
      const Json& said = got["choices"][0]["logprobs"]["content"];
      ASSERT_EQ(said.size(), want["logprobs"].size());
      for (size_t i = 0; i < said.size(); ++i)
        EXPECT_NEAR(said[i]["logprob"].get<double>(), want["logprobs"][i].get<double>(), 5e-3) << i;
    }
  }
}

TEST_P(Video, TheCommandTakesFrames) {
  for (const Json& want : answers()) {
    const std::string words = want["content"][2]["text"];
    const std::string flags =
        fmt::format("generate {} --log-level warning --temperature 0 --max-new-tokens 8 --json ", model());
    const std::string frames = fmt::format("--video {} --fps {}", kData + "videos/clip", want["fps"].get<double>());
    const OrderedJson raw = json_of(run_binary(
        flags + frames + " -p \"${p%.}\"",
        fmt::format("p=$(printf '<|im_start|>user\\nsee <|vision_start|><|video_pad|><|vision_end|>{}<|im_end|>\\n"
                    "<|im_start|>assistant\\n.');",
                    words)));
    EXPECT_EQ(Json(raw["prompt_tokens"]), want["prompt_tokens"]);
    EXPECT_EQ(Json(raw["output"]["token_ids"]), want["tokens"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Video, testing::Values("qwen2_5_vl", "qwen3_vl"),
                         [](const auto& i) { return i.param; });

TEST(Image, WrongUseOfTheCommandIsToldInOneLine) {
  for (const auto& [arguments, part] : std::vector<std::pair<std::string, std::string>>{
           {fmt::format("-p 'one <|image_pad|>' --image {} --image {}", image("rgb.png"), image("rgb.jpeg")),
            "2 images for a prompt with 1 places"},
           {"-p '<|video_pad|>' --video /nowhere --apply-chat-template", "/nowhere"},
           {fmt::format("-p none --video {}", kData + "videos/clip"), "3 parts of videos for a prompt with 0 places"},
           {fmt::format("-p none --image {}", image("rgb.png")), "1 images for a prompt with 0 places"},
           {fmt::format("-p '<|image_pad|>' --image {}", image("README.md")), "allowed: PNG, JPEG, WebP"},
           {"-p '<|image_pad|>' --image /nowhere.png", "/nowhere.png"}}) {
    const Outcome o = run_binary(kGenerate + arguments);
    EXPECT_EQ(o.exit_code, 1) << arguments;
    EXPECT_TRUE(holds(o.err, part)) << o.err;
  }
  EXPECT_TRUE(holds(run_binary("generate --model-path " + model_folder("llama_gqa3_tied") +
                               " --prompt-ids 1,2 --image " + image("rgb.png"))
                        .err,
                    "reads no images"));
}

TEST(Mmmu, TheCommandAsksInTheOrderOfIds) {
  const Folder folder;
  const OrderedJson j = json_of(run_binary("eval mmmu --json --num-questions 3 --max-new-tokens 4 --data-path " +
                                           kData + "mmmu --answers-file " + (folder / "a.jsonl ") + kFlags));
  EXPECT_EQ(j["questions"], 3);
  const auto answers = evaluation::read_json_lines(folder / "a.jsonl");
  ASSERT_TRUE(answers.is_ok());
  ASSERT_EQ(answers->size(), 3u);
  EXPECT_EQ((*answers)[0].json["id"], "validation_Art_1");
  EXPECT_EQ((*answers)[2].json["id"], "validation_Math_1");
  double right = 0;
  for (const evaluation::JsonLine& a : *answers) right += a.json["right"] == true;
  EXPECT_EQ(j["accuracy"], right / 3);
  EXPECT_EQ(j["subjects"]["Art"]["questions"], 2);
  EXPECT_TRUE(holds(run_binary("eval mmmu --data-path /nowhere " + kFlags).err, "/nowhere/questions.jsonl"));
}

// A server is asked the same, and says the same.
TEST(Mmmu, AServerIsScoredAsAnEngineIs) {
  const Folder folder;
  const std::string command =
      "eval mmmu --json --num-questions 3 --max-new-tokens 4 --data-path " + kData + "mmmu --answers-file ";
  const OrderedJson own = json_of(run_binary(command + (folder / "own.jsonl ") + kFlags));
  const Model model(kModel);
  Server server(model, "");
  ASSERT_GT(server.port(), 0) << server.said();
  const OrderedJson served = json_of(run_binary(command + (folder / "served.jsonl") + " --base-url " + server.url()));
  EXPECT_EQ(content_of(folder / "own.jsonl"), content_of(folder / "served.jsonl"));
  for (const char* key : {"questions", "accuracy", "cut", "subjects"}) EXPECT_EQ(own[key], served[key]) << key;
  EXPECT_TRUE(holds(run_binary("eval mmmu --model-path x --data-path y --base-url " + server.url()).err, "leave out"));
}

}  // namespace
}  // namespace reprise::apps::image_test
