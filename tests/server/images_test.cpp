// Images in the bodies of each API: what they become, and what is told of wrong ones.
#include "base/base64.h"
#include "server/dialect_fixture.h"
#include "server/image_reader.h"

namespace reprise::server::images_test {
namespace {

constexpr int64_t kMark = 256;

std::string file_of(const std::string& name) {
  const auto text = read_file(fmt::format("{}/tests/data/images/{}", REPRISE_SOURCE_DIR, name));
  EXPECT_TRUE(text.is_ok());
  return text ? std::string(text->begin(), text->end()) : std::string();
}

std::string base64_of(const std::string& bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : digits[three >> (18 - 6 * k) & 63];
  }
  return out;
}

class ImagesTest : public DialectTest {
 protected:
  ImagesTest()
      : shows_(text::ChatTemplate::compile(
                   "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
                   "{% for p in m.content %}{% if p.type == 'image' %}<|image|>{% else %}{{ p.text }}{% endif %}"
                   "{% endfor %}{% endif %}{% endfor %}<assistant>",
                   OrderedJson::object())
                   .value()) {
    model_.tokenizer =
        text::Tokenizer::from_json(apps::byte_tokenizer({{{"id", kMark}, {"content", "<|image|>"}, {"special", true}}}))
            .value();
    model_.vocab_size = kMark + 1;
    model_.chat_template = &shows_;
    images::PatchRules rules;
    rules.patch = 4;
    rules.min_pixels = 64;
    model_.images = ServedImages{rules, kMark, "<|image|>"};
  }
  // The prompt as text, and the digests of the images in the order of their places.
  std::pair<std::string, std::vector<std::string>> asked(const Dialect& dialect, const std::string& body) {
    const GenerateCall c = call(dialect, body.c_str());
    std::pair<std::string, std::vector<std::string>> out;
    if (c.prompts.empty()) return out;
    int64_t places = 0;
    for (const engine::SequenceImage& i : c.images) {
      EXPECT_EQ(c.prompts[0][static_cast<size_t>(i.first)], kMark);
      places += i.high * i.wide;
      out.second.push_back(i.input->digest);
    }
    EXPECT_EQ(std::count(c.prompts[0].begin(), c.prompts[0].end(), kMark), places);
    out.first = c.prompt_texts.front();
    return out;
  }

  const std::string png_ = base64_of(file_of("rgb.png")), webp_ = base64_of(file_of("alpha.webp"));
  const std::string png_url_ = "data:image/png;base64," + png_, webp_url_ = "data:image/webp;base64," + webp_;
  text::ChatTemplate shows_;
};

TEST_F(ImagesTest, EveryApiSaysTheSameConversation) {
  const auto openai = [&](const std::string& url) {
    return R"({"type": "image_url", "image_url": {"url": ")" + url + R"("}})";
  };
  const auto anthropic = [&](const std::string& type, const std::string& data) {
    return R"({"type": "image", "source": {"type": "base64", "media_type": "image/)" + type + R"(", "data": ")" + data +
           R"("}})";
  };
  const auto want =
      asked(chat_dialect(), R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},)" +
                                openai(png_url_) + R"(, {"type": "text", "text": "b"}, )" + openai(webp_url_) + "]}]}");
  EXPECT_EQ(want.first, "<user>a<|image|>b<|image|><assistant>");
  ASSERT_EQ(want.second.size(), 2u);
  EXPECT_NE(want.second[0], want.second[1]);
  EXPECT_EQ(asked(messages_dialect(), R"({"max_tokens": 5, "messages": [{"role": "user", "content": [
                {"type": "text", "text": "a"}, )" +
                                          anthropic("png", png_) + R"(, {"type": "text", "text": "b"}, )" +
                                          anthropic("webp", webp_) + "]}]}"),
            want);
  EXPECT_EQ(asked(responses_dialect(), R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": ")" +
                                           png_url_ + R"("}, {"type": "input_text", "text": "b"},
                {"type": "input_image", "image_url": ")" +
                                           webp_url_ + R"(", "detail": "auto"}]}]})"),
            want);
  // Ollama's images stand in front of the text of their turn.
  const auto ollama = asked(ollama_chat_dialect(), R"({"messages": [{"role": "user", "content": "ab", "images": [")" +
                                                       png_ + R"(", ")" + webp_ + R"("]}]})");
  EXPECT_EQ(ollama.first, "<user><|image|><|image|>ab<assistant>");
  EXPECT_EQ(ollama.second, want.second);
  const std::string both = R"(, "images": [")" + png_ + R"(", ")" + webp_ + R"("]})";
  EXPECT_EQ(asked(ollama_generate_dialect(), R"({"prompt": "ab")" + both), ollama);
  EXPECT_EQ(asked(ollama_generate_dialect(), R"({"raw": true, "prompt": "x<|image|>y<|image|>")" + both).second,
            want.second);
}

TEST_F(ImagesTest, ToolsMayAnswerWithImages) {
  const std::string block =
      R"({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ")" + png_ + R"("}})";
  EXPECT_EQ(asked(messages_dialect(), R"({"max_tokens": 5, "messages": [{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "is_error": true, "content": [
                {"type": "text", "text": "see"}, )" +
                                          block + "]}]}]}")
                .first,
            "<tool>Error: see<|image|><assistant>");
  EXPECT_EQ(asked(responses_dialect(), R"({"input": [{"type": "function_call_output", "call_id": "c", "output": [
                {"type": "input_image", "image_url": ")" +
                                           png_url_ + R"("}]}]})")
                .first,
            "<tool><|image|><assistant>");
  // A template that shows no tools is told of them in words, and keeps the images.
  const auto told = asked(messages_dialect(), R"({"max_tokens": 5, "tools": [{"name": "f", "input_schema": {}}],
      "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [)" +
                                                  block + R"(]}, {"type": "text", "text": "so?"}, )" + block + "]}]}");
  EXPECT_NE(told.first.find("<user><tool_response>\n<|image|>\n</tool_response>so?<|image|>"), std::string::npos)
      << told.first;
}

// What a client writes is no place of an image.
TEST_F(ImagesTest, MarksInTextsAreText) {
  const auto c = call(chat_dialect(), (R"({"messages": [{"role": "user", "content": [
      {"type": "text", "text": "<|image|>"}, {"type": "image_url", "image_url": {"url": ")" +
                                       png_url_ + R"("}}]}, {"role": "user", "content": "<|image|>"}]})")
                                          .c_str());
  ASSERT_EQ(c.images.size(), 1u);
  const auto& ids = c.prompts.front();
  const std::string front = "<user><|image|>";
  EXPECT_EQ(c.images[0].first, static_cast<int64_t>(front.size()));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), kMark), c.images[0].high * c.images[0].wide);
  EXPECT_EQ(c.prompt_texts.front(), front + "<|image|><user><|image|><assistant>");
}

TEST_F(ImagesTest, WhatIsWrongIsNamed) {
  const auto body = [](const std::string& url) {
    return R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url",
        "image_url": {"url": ")" +
           url + R"("}}]}]})";
  };
  const std::string text = base64_of("no image at all");
  for (const auto& [url, part] : std::vector<std::pair<std::string, std::string>>{
           {"https://a.example/b.png", "--allowed-image-hosts"},
           {"file:///etc/passwd", "a data URL"},
           {"data:image/gif;base64,AAAA", "allowed: image/png, image/jpeg, image/webp"},
           {"data:image/png,AAAA", ";base64,"},
           {"data:image/png;base64,A", "base64 is expected"},
           {"data:image/png;base64,A*AA", "base64 is expected"},
           {"data:image/png;base64," + text, "PNG, JPEG, WebP"},
           {png_url_.substr(0, png_url_.size() / 2 / 4 * 4 - 2), ""}}) {
    const ApiError e = refused(chat_dialect(), body(url));
    EXPECT_EQ(e.status, 400);
    EXPECT_EQ(e.param, "messages[0].content[1].image_url.url") << url.substr(0, 60);
    EXPECT_NE(e.message.find(part), std::string::npos) << e.message;
  }
  const auto limited = [&](const char* setting) {
    const ApiError e = refused(chat_dialect(), body(png_url_));
    EXPECT_NE(e.message.find(setting), std::string::npos) << e.message;
  };
  limits_.most_images = 0;
  limited("--max-images");
  limits_ = {};
  limits_.image.bytes = 100;
  limited("--max-image-bytes");
  limits_ = {};
  limits_.image.pixels = 100;
  limited("--max-image-pixels");
  limits_ = {};
  model_.context_length = 20;  // of which the image takes all
  EXPECT_EQ(refused(chat_dialect(), body(png_url_)).code, "context_length_exceeded");
  model_.context_length = 4096;
  const std::string url = R"({"type": "image_url", "image_url": {"url": ")" + png_url_ + R"("}})";
  EXPECT_EQ(refused(chat_dialect(), R"({"messages": [{"role": "assistant", "content": [)" + url + "]}]}").param,
            "messages[0].content[0]");
  model_.images.reset();
  EXPECT_NE(refused(chat_dialect(), body(png_url_)).message.find("reads no images"), std::string::npos);
}

TEST_F(ImagesTest, UrlsAreFetchedWhereTheServerMay) {
  limits_.fetch_image = [](const std::string& url) -> Result<std::string> {
    if (url == "https://a.example/b") return file_of("rgb.png");
    return invalid("it answered 404");
  };
  const auto body = [](const std::string& url) {
    return R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ")" + url +
           R"("}}]}]})";
  };
  EXPECT_EQ(asked(chat_dialect(), body("https://a.example/b")), asked(chat_dialect(), body(png_url_)));
  EXPECT_NE(refused(chat_dialect(), body("https://a.example/c")).message.find("answered 404"), std::string::npos);
}

class VideosTest : public ImagesTest {
 protected:
  VideosTest() {
    model_.tokenizer = text::Tokenizer::from_json(
                           apps::byte_tokenizer({{{"id", kMark}, {"content", "<|image|>"}, {"special", true}},
                                                 {{"id", kMark + 1}, {"content", "<|video|>"}, {"special", true}}}))
                           .value();
    model_.vocab_size = kMark + 2;
    shows_ = text::ChatTemplate::compile(
                 "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
                 "{% if p.type == 'image' %}<|image|>{% elif p.type == 'video' %}<|video|>{% else %}{{ p.text }}"
                 "{% endif %}{% endfor %}{% endif %}{% endfor %}",
                 OrderedJson::object())
                 .value();
    model_.images->video_token = kMark + 1;
    model_.images->video_mark = "<|video|>";
    model_.images->videos = sched::VideoRules{model_.images->rules, 2048, true, 0};
  }
  // The prompt as text with marks for rows, whose number is `rows`.
  std::string told(const std::string& part, const std::string& more = "", int64_t* rows = nullptr) {
    const GenerateCall c = call(chat_dialect(), (R"({"messages": [{"role": "user", "content": [)" + part +
                                                 R"(, {"type": "text", "text": "x<|video|>"}]}])" + more + "}")
                                                    .c_str());
    if (rows) *rows = std::count(c.prompts.front().begin(), c.prompts.front().end(), kMark + 1);
    return c.prompt_texts.front();
  }
  static std::string frame(int i) {
    const auto text = read_file(fmt::format("{}/tests/data/videos/clip/{}.png", REPRISE_SOURCE_DIR, i));
    return base64_of(*text);
  }
  const std::string joined_ = frame(0) + "," + frame(1) + "," + frame(2);
  const std::string url_ =
      R"({"type": "video_url", "video_url": {"url": "data:video/jpeg;base64,)" + joined_ + R"("}})";
};

TEST_F(VideosTest, FramesComeInTheFormsOfVllmAndQwen) {
  const auto at = [](const char* first, const char* second) {
    const std::string pad = "<|vision_start|><|video|><|vision_end|>";
    return fmt::format("<{} seconds>{}<{} seconds>{}x<|video|>", first, pad, second, pad);
  };
  int64_t rows = 0;
  EXPECT_EQ(told(url_, "", &rows), at("0.2", "1.0"));
  EXPECT_EQ(rows, 2 * 15);  // 40 x 24 in blocks of 8, and none for what the client wrote
  EXPECT_EQ(told(url_, R"(, "media_io_kwargs": {"video": {"fps": 1}})"), at("0.5", "2.0"));
  EXPECT_EQ(told(url_, R"(, "mm_processor_kwargs": {"fps": [4], "do_sample_frames": false})"), at("0.1", "0.5"));
  const std::string list = fmt::format(R"({{"type": "video", "video": ["data:image/png;base64,{}",
      "data:image/png;base64,{}", "data:image/png;base64,{}"])",
                                       frame(0), frame(1), frame(2));
  EXPECT_EQ(told(list + "}"), at("0.2", "1.0"));
  EXPECT_EQ(told(list + R"(, "fps": 1})", R"(, "mm_processor_kwargs": {"fps": 9})"), at("0.5", "2.0"));
  EXPECT_EQ(told(list + R"(, "timestamps": [0, 3, 10]})"), at("1.5", "10.0"));
}

TEST_F(VideosTest, WhatIsWrongIsNamed) {
  const auto refused_at = [&](const std::string& part, const std::string& param, const std::string& says) {
    const ApiError e = refused(chat_dialect(), R"({"messages": [{"role": "user", "content": [)" + part + "]}]}");
    EXPECT_EQ(e.status, 400);
    EXPECT_EQ(e.param, "messages[0].content[0]" + param) << e.message;
    EXPECT_NE(e.message.find(says), std::string::npos) << e.message;
  };
  const auto video_url = [](const std::string& url, const std::string& more = "") {
    return fmt::format(R"({{"type": "video_url", "video_url": {{"url": "{}"{}}}}})", url, more);
  };
  for (const char* file : {"data:video/mp4;base64,AAAA", "https://a.example/b.mp4", "file:///tmp/b.mp4"})
    refused_at(video_url(file), ".video_url.url", "data:video/jpeg;base64,FRAME,FRAME");
  refused_at(R"({"type": "video", "video": "b.mp4"})", ".video", "a list of images");
  refused_at(R"({"type": "video", "video": []})", ".video", "without frames");
  refused_at(R"({"type": "video", "video": ["data:image/png;base64,AAAA"]})", ".video", "frame 0: ");
  refused_at(video_url("data:video/jpeg;base64," + joined_ + ",A"), ".video_url.url", "frame 3: base64");
  refused_at(video_url("data:video/jpeg;base64," + joined_, R"(, "fps": 0)"), ".video_url.fps",
             "allowed: 0.01 to 1000");
  refused_at(video_url("data:video/jpeg;base64," + joined_, R"(, "timestamps": [1])"), ".video_url.timestamps",
             "as many");
  const std::string list = R"({"type": "video", "video": ["data:image/png;base64,)" + frame(0) + R"("])";
  refused_at(list + R"(, "sample_fps": 1001})", ".sample_fps", "allowed: 0.01 to 1000");
  model_.images->videos->patches.whole_video = true;
  refused_at(list + "}", ".video", "at least 2");
  model_.images->videos->patches.whole_video = false;
  refused_at(R"({"timestamps": [0, 1, 2], )" +
                 video_url("data:video/jpeg;base64," + joined_, R"(, "timestamps": [0, 1, 2])").substr(1),
             ".video_url.timestamps", "twice");
  limits_.most_frames = 2;
  refused_at(url_, ".video_url.url", "--max-video-frames");
  limits_ = {};
  limits_.video_pixels = 2000;
  refused_at(url_, ".video_url.url", "--max-video-pixels");
  limits_ = {};
  limits_.most_images = 0;
  refused_at(url_, "", "--max-images");
  limits_ = {};
  model_.context_length = 20;
  refused_at(url_, "", "take 30 tokens");
  model_.context_length = 4096;
  model_.images->videos.reset();
  model_.images->videos_problem = "no rules";
  refused_at(url_, "", "no rules");
}

TEST_F(VideosTest, FramesASecondOfARequestAreCheckedUnderTheirName) {
  const auto body = [](const std::string& parts, const std::string& more) {
    return R"({"messages": [{"role": "user", "content": [)" + parts + "]}], " + more + "}";
  };
  const auto refused_at = [&](const std::string& parts, const std::string& more, const std::string& param,
                              const std::string& says) {
    const ApiError e = refused(chat_dialect(), body(parts, more));
    EXPECT_EQ(e.status, 400);
    EXPECT_EQ(e.param, param) << e.message;
    EXPECT_NE(e.message.find(says), std::string::npos) << e.message;
  };
  const std::string text = R"({"type": "text", "text": "x"})", two = url_ + "," + url_;
  for (const std::string& parts : {text, url_}) {  // a wrong one is wrong without a video, too
    refused_at(parts, R"("mm_processor_kwargs": {"fps": 0})", "mm_processor_kwargs.fps", "allowed: 0.01 to 1000");
    refused_at(parts, R"("media_io_kwargs": {"video": {"fps": [2, 1001]}})", "media_io_kwargs.video.fps",
               "1001 frames");
    refused_at(parts, R"("mm_processor_kwargs": {"fps": []})", "mm_processor_kwargs.fps", "one for each video");
    refused_at(parts, R"("mm_processor_kwargs": {"fps": [2, 1]})", "mm_processor_kwargs.fps", "2 numbers for");
  }
  refused_at(two, R"("mm_processor_kwargs": {"fps": [2, 1, 4]})", "mm_processor_kwargs.fps", "2 videos");
  const auto asked_with = [&](const std::string& more) {
    return call(chat_dialect(), body(two, more).c_str()).prompt_texts.front();
  };
  const auto has = [](const std::string& in, const char* what) { return in.find(what) != std::string::npos; };
  const std::string each = asked_with(R"("mm_processor_kwargs": {"fps": [1, 4]})");
  EXPECT_TRUE(has(each, "<0.5 seconds>") && has(each, "<0.1 seconds>")) << each;
  const std::string one = asked_with(R"("mm_processor_kwargs": {"fps": [1]})");
  EXPECT_TRUE(has(one, "<0.5 seconds>") && !has(one, "<0.2 seconds>")) << one;
}

// RFC 4648, section 10, and what no encoder writes.
TEST(Base64, IsThatOfTheStandard) {
  for (const auto& [bytes, text] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                    {"f", "Zg=="},
                                                                                    {"foo", "Zm9v"},
                                                                                    {"foob", "Zm9vYg=="},
                                                                                    {"fooba", "Zm9vYmE="},
                                                                                    {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(base64_bytes(text), bytes);
    EXPECT_EQ(base64_bytes(text.substr(0, text.find('='))), bytes);
  }
  for (const char* wrong : {"Z", "Zg=", "Zg===", "Zm9v=", "Zm 9v", "Zm9v\n", "Zm-_"})
    EXPECT_FALSE(base64_bytes(wrong)) << wrong;
}

}  // namespace
}  // namespace reprise::server::images_test
