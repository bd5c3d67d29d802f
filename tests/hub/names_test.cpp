// Names of models, revisions and files, and the settings of a hub.
#include <map>
#include <random>

#include "folder.h"
#include "hub/digest.h"
#include "hub/model_name.h"

namespace reprise::hub::names_test {
namespace {

TEST(ModelNames, HaveARepositoryARevisionAndAFile) {
  const auto plain = parse_model_name("Qwen/Qwen3-0.6B");
  ASSERT_TRUE(plain.is_ok()) << plain.status().message();
  EXPECT_EQ(plain->repo, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(plain->revision + plain->file, "");
  const auto all = parse_model_name("org/name_1@refs/pr/7:sub/model-Q4_K_M.gguf");
  ASSERT_TRUE(all.is_ok()) << all.status().message();
  EXPECT_EQ(all->repo, "org/name_1");
  EXPECT_EQ(all->revision, "refs/pr/7");
  EXPECT_EQ(all->file, "sub/model-Q4_K_M.gguf");
  EXPECT_EQ(all->text(), "org/name_1@refs/pr/7:sub/model-Q4_K_M.gguf");
  // An '@' may be in a file's name.
  EXPECT_EQ(parse_model_name("a/b:c@d.gguf")->file, "c@d.gguf");
}

TEST(ModelNames, ArePathsWhenTheyLookLikeThem) {
  for (const char* name : {"Qwen/Qwen3-0.6B", "a/b", "a/b@main", "a/b:Q4_K_M", "a/b@v1:x/y.gguf", "a/b:x.gguf"})
    EXPECT_TRUE(looks_like_model_name(name)) << name;
  for (const char* path : {"", "a", "/a/b", "./a/b", "../a", "a/b/c", "~/a", "a/", "/a", "a/b.gguf",
                           "a/model.safetensors", "a b/c", "a/..", ".a/b", "a/b.", "a--b/c", "a/b.git", "a\n/b"})
    EXPECT_FALSE(looks_like_model_name(path)) << path;
}

TEST(ModelNames, WrongPartsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"gpt2", "expected org/name[@revision][:file], for example Qwen/Qwen3-0.6B"},
      {"a/b/c", "expected org/name"},
      {"a/b@", "revision \"\": expected a branch, tag or commit"},
      {"a/b@../../etc", "revision \"../../etc\""},
      {"a/b@x..y", "revision"},
      {"a/b@-x", "revision"},
      {"a/b:", "a name is expected"},
      {"a/b:../x.gguf", "without \"..\" and not absolute"},
      {"a/b:/etc/passwd", "without \"..\" and not absolute"},
      {"a/b:x\\y.gguf", "'\\' is not allowed"},
      {"a/b:x\x1b[31m.gguf", "file \"x\\x1b[31m.gguf\": control characters"},
      {"a/b:" + std::string(300, 'x'), "allowed: 255 bytes"},
      {"a/b:" + std::string(2000, 'x'), "allowed: 1024 bytes"},
  };
  for (const auto& [text, part] : cases) {
    const auto parsed = parse_model_name(text);
    ASSERT_FALSE(parsed.is_ok()) << text;
    EXPECT_TRUE(holds(parsed.status().message(), part)) << parsed.status().message();
    EXPECT_EQ(parsed.status().message().find('\x1b'), std::string::npos);
  }
}

// Whatever is let through stays inside the folder it is put into, and reads back as it was.
TEST(ModelNames, AnyBytesAreSafeOrRefused) {
  std::mt19937 random(7);
  const std::string alphabet = "ab.AB09-_/@:\\\n\x01\x7f\xc2\x85~% .";
  int names = 0, files = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string text(random() % 14, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    if (const auto name = parse_model_name(text)) {
      ++names;
      EXPECT_EQ(name->text(), text);
      EXPECT_EQ(name->repo.find(".."), std::string::npos);
    }
    if (check_file_path(text).is_ok() || check_revision(text).is_ok()) {
      ++files;
      const std::filesystem::path inside = (std::filesystem::path("/some/folder") / text).lexically_normal();
      ASSERT_TRUE(inside.string().starts_with("/some/folder/")) << printable(text);
      for (const char c : text) ASSERT_GE(static_cast<unsigned char>(c), 0x20u);
    }
    for (const char c : printable(text)) ASSERT_TRUE(c >= 0x20 && c < 0x7f);
  }
  EXPECT_GT(names, 50);
  EXPECT_GT(files, 1000);
}

class Variables {
 public:
  Variables(std::initializer_list<std::pair<const std::string, std::string>> v) : values_(v) {}
  Environment get() const {
    return [this](const char* name) {
      const auto it = values_.find(name);
      return it == values_.end() ? nullptr : it->second.c_str();
    };
  }

 private:
  std::map<std::string, std::string> values_;
};

TEST(HubSettings, FollowTheToolsOfTheField) {
  const auto plain = hub_settings(Variables{{"HOME", "/h"}}.get());
  ASSERT_TRUE(plain.is_ok()) << plain.status().message();
  EXPECT_EQ(plain->endpoint, "https://huggingface.co");
  EXPECT_EQ(plain->endpoint_words(), "https://huggingface.co");
  EXPECT_EQ(plain->cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(plain->token + plain->offline, "");
  EXPECT_EQ(hub_settings(Variables{{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}.get())->cache, "/x/huggingface/hub");
  EXPECT_EQ(hub_settings(Variables{{"HOME", "/h"}, {"HF_HOME", "~/f"}}.get())->cache, "/h/f/hub");
  EXPECT_EQ(hub_settings(Variables{{"HF_HOME", "/f"}, {"HF_HUB_CACHE", "/c"}}.get())->cache, "/c");
  const auto mirror = hub_settings(
      Variables{{"HF_HOME", "/f"}, {"HF_ENDPOINT", "https://mirror.example/hf/"}, {"HF_TOKEN", " hf_x\n"}}.get());
  EXPECT_EQ(mirror->endpoint_words(), "https://mirror.example/hf (HF_ENDPOINT)");
  EXPECT_EQ(mirror->token, "hf_x");
  for (const char* yes : {"1", "ON", "true", "Yes"}) {
    EXPECT_EQ(hub_settings(Variables{{"HF_HOME", "/f"}, {"TRANSFORMERS_OFFLINE", yes}}.get())->offline,
              std::string("TRANSFORMERS_OFFLINE=") + yes);
  }
  // As in huggingface_hub, the first that is set decides.
  EXPECT_EQ(
      hub_settings(Variables{{"HF_HOME", "/f"}, {"HF_HUB_OFFLINE", "0"}, {"TRANSFORMERS_OFFLINE", "1"}}.get())->offline,
      "");
}

TEST(HubSettings, ModelScopeIsChosenByName) {
  for (const char* name : {"VLLM_USE_MODELSCOPE", "SGLANG_USE_MODELSCOPE"})
    EXPECT_EQ(hub_settings(Variables{{"HOME", "/h"}, {name, "True"}}.get())->kind, HubKind::ModelScope);
  const auto s = hub_settings(Variables{
      {"HOME", "/h"},
      {"REPRISE_HUB", "modelscope"},
      {"MODELSCOPE_ENDPOINT", "www.modelscope.ai"},
      {"MODELSCOPE_API_TOKEN", "t"},
      {"HF_TOKEN", "other"}}.get());
  ASSERT_TRUE(s.is_ok()) << s.status().message();
  EXPECT_EQ(s->endpoint, "https://www.modelscope.ai");
  EXPECT_EQ(s->cache, "/h/.cache/modelscope");
  EXPECT_EQ(s->token, "t");
  EXPECT_EQ(s->default_revision(), "master");
}

TEST(HubSettings, TheTokenOfALoginIsFound) {
  const TestFolder folder;
  folder.write("token", "hf_of_the_file\n");
  EXPECT_EQ(hub_settings(Variables{{"HF_HOME", folder.path()}}.get())->token, "hf_of_the_file");
  EXPECT_EQ(hub_settings(Variables{{"HF_HOME", folder.path()}, {"HF_TOKEN", "mine"}}.get())->token, "mine");
  EXPECT_EQ(hub_settings(Variables{{"HF_HOME", folder.path()}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}.get())->token,
            "");
  folder.write("token", "two\nlines");
  EXPECT_TRUE(
      holds(hub_settings(Variables{{"HF_HOME", folder.path()}}.get()).status().message(), "/token: a token is"));
}

TEST(HubSettings, WrongOnesAreNamed) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases{
      {"REPRISE_HUB", "gitlab", "REPRISE_HUB=gitlab: not known; allowed: huggingface, modelscope"},
      {"HF_ENDPOINT", "ftp://x", "HF_ENDPOINT=ftp://x: expected a URL that starts with https:// or http://"},
      {"HF_ENDPOINT", "https://", "expected a URL"},
      {"HF_ENDPOINT", "https://user:secret@x", "a token goes into HF_TOKEN"},
      {"HF_TOKEN", "two words", "HF_TOKEN: a token is one word"},
      {"HF_HUB_DOWNLOAD_TIMEOUT", "soon", "allowed: 1 to 3600"},
  };
  for (const auto& [name, value, part] : cases) {
    const auto s = hub_settings(Variables{{"HOME", "/h"}, {name, value}}.get());
    ASSERT_FALSE(s.is_ok()) << name;
    EXPECT_TRUE(holds(s.status().message(), part)) << s.status().message();
    EXPECT_FALSE(holds(s.status().message(), "secret"));
  }
  EXPECT_TRUE(holds(hub_settings(Variables{}.get()).status().message(), "HOME is not set"));
}

// FIPS 180-4 and git.
TEST(Digests, AreThePublishedOnes) {
  const auto sha256 = [](const std::string& text) {
    auto d = Digest::make(Digest::Kind::Sha256);
    EXPECT_TRUE(d.is_ok()) << d.status().message();
    for (const char c : text) d->add({&c, 1});
    return d->hex();
  };
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  auto sha1 = Digest::make(Digest::Kind::Sha1);
  sha1->add("abc");
  EXPECT_EQ(sha1->hex(), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(Digest::git_blob(0)->hex(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  auto doc = Digest::git_blob(16);
  doc->add("what is up, doc?");
  EXPECT_EQ(doc->hex(), "bd9dbf5aae1a3862dd1526723246b20206e5fc37");
}

}  // namespace
}  // namespace reprise::hub::names_test
