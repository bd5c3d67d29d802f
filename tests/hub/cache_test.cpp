// Models that other tools left on disk, and what is missing of them.
#include "hub/cache.h"

#include "folder.h"
#include "hub/hub.h"

namespace reprise::hub::cache_test {
namespace {

const std::string kCommit(40, 'c');

// As huggingface_hub leaves it.
void keep(const TestFolder& folder, const std::string& repo, const std::string& commit, const std::string& file,
          const std::string& content) {
  const std::string flat = "models--" + repo;
  const std::string blob = std::to_string(std::hash<std::string>()(file + content));
  folder.write(flat + "/blobs/" + blob, content);
  const std::filesystem::path link = folder / (flat + "/snapshots/" + commit + "/" + file);
  std::filesystem::create_directories(link.parent_path());
  std::string up = "../../blobs/";
  for (const char c : file)
    if (c == '/') up = "../" + up;
  std::filesystem::create_symlink(up + blob, link);
}

Hub hub_at(const TestFolder& folder, HubKind kind = HubKind::HuggingFace) {
  return Hub(test_settings("http://127.0.0.1:1", folder.path(), kind));
}

std::string missing(const Hub& hub, const std::string& name) {
  const auto m = hub.find(*parse_model_name(name));
  return m ? "there" : m.status().message();
}

TEST(HubCache, FindsWhatHuggingFaceKeeps) {
  const TestFolder folder;
  keep(folder, "org--name", kCommit, "config.json", "{}");
  keep(folder, "org--name", kCommit, "model.safetensors", "weights");
  keep(folder, "org--name", kCommit, "sub/other.json", "{}");
  folder.write("models--org--name/refs/main", kCommit);
  folder.write("models--org--name/refs/refs/pr/1", kCommit + "\n");
  const Hub hub = hub_at(folder);
  for (const std::string name :
       {"org/name", "org/name@main", "org/name@refs/pr/1", "org/name@cccccccccccccccccccccccccccccccccccccccc"}) {
    const auto m = hub.find(*parse_model_name(name));
    ASSERT_TRUE(m.is_ok()) << m.status().message();
    EXPECT_EQ(m->path, folder / ("models--org--name/snapshots/" + kCommit)) << name;
    EXPECT_EQ(m->bytes, 9u);
  }
  EXPECT_EQ(missing(hub, "org/name@v2"), "org/name@v2 is not in " + folder.path());
  EXPECT_EQ(missing(hub, "org/other"), "org/other is not in " + folder.path());
  folder.write("models--org--name/refs/main", "../../../etc");
  EXPECT_EQ(missing(hub, "org/name"), "org/name is not in " + folder.path());
}

TEST(HubCache, SaysWhatIsMissing) {
  const TestFolder folder;
  const Hub hub = hub_at(folder);
  keep(folder, "a--config", kCommit, "config.json", "{}");
  folder.write("models--a--config/refs/main", kCommit);
  EXPECT_TRUE(holds(missing(hub, "a/config"), "has no weights that can be read here"));
  // A link whose blob is gone.
  keep(folder, "a--gone", kCommit, "config.json", "{}");
  keep(folder, "a--gone", kCommit, "model.safetensors", "weights");
  folder.write("models--a--gone/refs/main", kCommit);
  EXPECT_EQ(missing(hub, "a/gone"), "there");
  std::filesystem::remove(
      folder / "models--a--gone/blobs" /
      std::filesystem::read_symlink(folder / ("models--a--gone/snapshots/" + kCommit + "/model.safetensors"))
          .filename());
  EXPECT_TRUE(holds(missing(hub, "a/gone"), "a/gone is not wholly in ")) << missing(hub, "a/gone");
  EXPECT_TRUE(holds(missing(hub, "a/gone"), ": model.safetensors is missing")) << missing(hub, "a/gone");
  // A shard of the index.
  keep(folder, "a--shards", kCommit, "config.json", "{}");
  keep(folder, "a--shards", kCommit, "model.safetensors.index.json",
       R"({"weight_map": {"x": "m1.safetensors", "y": "m2.safetensors"}})");
  keep(folder, "a--shards", kCommit, "m1.safetensors", "x");
  folder.write("models--a--shards/refs/main", kCommit);
  EXPECT_TRUE(holds(missing(hub, "a/shards"), ": m2.safetensors is missing")) << missing(hub, "a/shards");
  keep(folder, "a--shards", kCommit, "m2.safetensors", "y");
  EXPECT_EQ(missing(hub, "a/shards"), "there");
  // A listing that huggingface_hub kept knows more than the files do.
  folder.write("models--a--shards/trees/" + kCommit + ".json",
               R"({"format_version": 1, "files": {"config.json": {"size": 2, "blob_id": ""},
                   "model.safetensors.index.json": {"size": 62, "blob_id": ""}, "m1.safetensors": {"size": 1},
                   "m2.safetensors": {"size": 1}, "tokenizer.json": {"size": 9}, "README.md": {"size": 3}}})");
  EXPECT_TRUE(holds(missing(hub, "a/shards"), ": tokenizer.json is missing")) << missing(hub, "a/shards");
}

TEST(HubCache, GgufFilesGoByTheSameRule) {
  const TestFolder folder;
  const Hub hub = hub_at(folder);
  keep(folder, "a--b", kCommit, "m-Q8_0.gguf", "eight");
  keep(folder, "a--b", kCommit, "mmproj-f16.gguf", "eye");
  folder.write("models--a--b/refs/main", kCommit);
  const std::string there = folder / ("models--a--b/snapshots/" + kCommit + "/");
  EXPECT_EQ(hub.find(*parse_model_name("a/b"))->path, there + "m-Q8_0.gguf");
  EXPECT_EQ(hub.find(*parse_model_name("a/b:q8_0"))->path, there + "m-Q8_0.gguf");
  EXPECT_TRUE(holds(missing(hub, "a/b:Q4_K_M"), "a/b has no GGUF file \"Q4_K_M\"; it has m-Q8_0.gguf"));
}

TEST(HubCache, FindsWhatModelScopeKeeps) {
  const TestFolder folder;
  const Hub hub = hub_at(folder, HubKind::ModelScope);
  for (const std::string at : {"models/new--one/snapshots/master/", "models/new--one/snapshots/v2/",
                               "hub/models/old/one___5/", "models/older/two/"}) {
    folder.write(at + "config.json", "{}");
    folder.write(at + "model.safetensors", "w");
  }
  EXPECT_EQ(hub.find(*parse_model_name("new/one"))->path, folder / "models/new--one/snapshots/master");
  EXPECT_EQ(hub.find(*parse_model_name("new/one@v2"))->path, folder / "models/new--one/snapshots/v2");
  EXPECT_EQ(hub.find(*parse_model_name("old/one.5"))->path, folder / "hub/models/old/one___5");
  EXPECT_EQ(hub.find(*parse_model_name("older/two"))->path, folder / "models/older/two");
  std::vector<std::string> names;
  for (const auto& e : hub.cache().entries()) names.push_back(e.name.text());
  EXPECT_EQ(names, (std::vector<std::string>{"new/one", "new/one@v2", "older/two", "old/one.5"}));
}

TEST(HubCache, ListsWhatIsThereWholeOrNot) {
  const TestFolder folder;
  keep(folder, "a--b", kCommit, "config.json", "{}");
  folder.write("models--a--b/refs/main", kCommit);
  keep(folder, "a--b", std::string(40, 'd'), "config.json", "{}");
  folder.write("models--a--b/blobs/x.incomplete", "12345");
  folder.write("models--a--killed/blobs/y.incomplete", "1");
  folder.write("datasets--a--b/refs/main", kCommit);
  folder.write("models--no-org/refs/main", kCommit);
  folder.write("models--a--..--b/refs/main", kCommit);
  std::vector<std::string> names;
  uint64_t partial = 0;
  for (const auto& e : HubCache(HubKind::HuggingFace, folder.path()).entries()) {
    names.push_back(e.name.text());
    partial += e.partial_bytes;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a/b", "a/b@" + std::string(40, 'd'), "a/killed"}));
  EXPECT_EQ(partial, 6u);
  EXPECT_TRUE(HubCache(HubKind::HuggingFace, folder / "none").entries().empty());
}

}  // namespace
}  // namespace reprise::hub::cache_test
