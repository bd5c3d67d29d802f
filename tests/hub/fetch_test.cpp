// Fetching from a stand-in for a hub: what arrives and where, and everything that can go wrong on the way.
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "base/log.h"
#include "folder.h"
#include "hub/hub.h"
#include "support/hub_server.h"

namespace reprise::hub::fetch_test {
namespace {

using testing_support::git_sha1_of;
using testing_support::HubReply;
using testing_support::HubRequest;
using testing_support::HubServer;
using testing_support::sha256_of;

// A repository of one model with bytes of no meaning, and the hub that has it.
class Fetching : public testing::Test {
 protected:
  Fetching() {
    ::setenv("no_proxy", "*", 1);  // the stand-in is on this machine
    log::set_level(log::Level::Error);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<char>(i * 2654435761u >> 13);
    server.repos["org/name"].files = {{"README.md", "# name"},
                                      {"config.json", "{}"},
                                      {"model.safetensors", weights},
                                      {"pytorch_model.bin", "no"},
                                      {"tokenizer.json", "{\"a\": 1}"}};
  }
  ~Fetching() override { log::set_level(log::Level::Info); }

  HubSettings settings() const {
    HubSettings s = test_settings(server.url(), folder.path());
    s.token = token;
    return s;
  }
  Result<FetchedModel> fetch(const std::string& name = "org/name", FetchOptions options = {}) const {
    options.progress = false;
    return Hub(settings()).fetch(*parse_model_name(name), options);
  }
  std::string problem(const std::string& name = "org/name") const {
    const auto m = fetch(name);
    return m ? "fetched" : m.status().message();
  }
  // A reply in place of the hub's to the weights, the first `times` that they are asked for.
  void spoil(int times, std::function<HubReply(HubReply good)> how) {
    server.hook = [this, times, how, count = 0](const HubRequest& r, int) mutable -> std::optional<HubReply> {
      if (!r.path.ends_with("model.safetensors") || count >= times) return std::nullopt;
      ++count;
      return how(server.of_bytes(r, *server.file_of(r.path)));
    };
  }
  std::vector<std::string> ranges() const {
    std::vector<std::string> out;
    for (const HubRequest& r : server.requests())
      if (r.path.ends_with("model.safetensors")) out.push_back(r.header("range"));
    return out;
  }

  const std::string commit = std::string(40, 'a');
  const std::string repo = "models--org--name/", snapshot = repo + "snapshots/" + commit + "/";
  std::string weights = std::string(300'000, '\0');
  std::string blob() const { return repo + "blobs/" + sha256_of(weights); }
  std::string token;
  TestFolder folder;
  HubServer server;
};

TEST_F(Fetching, FillsTheLayoutOfHuggingFace) {
  const auto m = fetch();
  ASSERT_TRUE(m.is_ok()) << m.status().message();
  EXPECT_EQ(m->path, folder / (repo + "snapshots/" + commit));
  EXPECT_EQ(m->files, 3u);
  EXPECT_EQ(m->fetched, weights.size() + 2 + 8);
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
  EXPECT_EQ(std::filesystem::read_symlink(folder / (snapshot + "model.safetensors")),
            "../../blobs/" + sha256_of(weights));
  EXPECT_EQ(std::filesystem::read_symlink(folder / (snapshot + "config.json")), "../../blobs/" + git_sha1_of("{}"));
  EXPECT_EQ(folder.read(repo + "refs/main"), commit);
  EXPECT_FALSE(folder.has(snapshot + "README.md"));
  EXPECT_FALSE(folder.has(snapshot + "pytorch_model.bin"));
  EXPECT_TRUE(folder.has(".locks/models--org--name/" + sha256_of(weights) + ".lock"));
  EXPECT_FALSE(folder.has(blob() + ".incomplete"));
  // A second time there is nothing to fetch; the hub is asked for the listing alone.
  const size_t asked = server.requests().size();
  const auto again = fetch();
  ASSERT_TRUE(again.is_ok()) << again.status().message();
  EXPECT_EQ(again->fetched, 0u);
  EXPECT_EQ(server.requests().size(), asked + 1);
  EXPECT_TRUE(Hub(settings()).find(*parse_model_name("org/name")).is_ok());
}

TEST_F(Fetching, TheTokenStaysWithTheHub) {
  HubServer cdn;
  cdn.repos = server.repos;
  server.cdn = &cdn;
  server.token = token = "hf_secret";
  const auto m = fetch();
  ASSERT_TRUE(m.is_ok()) << m.status().message();
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
  for (const HubRequest& r : server.requests()) EXPECT_EQ(r.header("authorization"), "Bearer hf_secret");
  ASSERT_EQ(cdn.requests().size(), 1u);
  EXPECT_EQ(cdn.requests()[0].query, "signed=yes");
  for (const HubRequest& r : cdn.requests())
    for (const auto& [name, value] : r.headers) EXPECT_FALSE(holds(value, "hf_secret")) << name;
}

TEST_F(Fetching, RedirectsAreBounded) {
  server.hook = [this](const HubRequest& r, int) -> std::optional<HubReply> {
    return HubReply{302, {{"Location", server.url() + r.path + "?again"}}, ""};
  };
  EXPECT_TRUE(holds(problem(), "more than 10 redirects")) << problem();
  server.hook = [](const HubRequest&, int) -> std::optional<HubReply> {
    return HubReply{302, {{"Location", "file:///etc/passwd"}}, ""};
  };
  EXPECT_TRUE(holds(problem(), "is no http or https URL")) << problem();
}

// A renamed repository: the hub leads on to itself, which may have the token.
TEST_F(Fetching, ARenamedRepositoryIsFollowed) {
  server.token = token = "hf_secret";
  server.repos["org/new"] = server.repos["org/name"];
  server.repos.erase("org/name");
  server.hook = [](const HubRequest& r, int) -> std::optional<HubReply> {
    const size_t at = r.path.find("/org/name/");
    if (at == std::string::npos) return std::nullopt;
    std::string to = r.path;
    to.replace(at, 10, "/org/new/");
    return HubReply{307, {{"Location", to + (r.query.empty() ? "" : "?" + r.query)}}, ""};
  };
  EXPECT_EQ(problem(), "fetched");
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
}

TEST_F(Fetching, CutsAreResumed) {
  spoil(3, [](HubReply r) {
    r.cut_after = 70'000;
    return r;
  });
  ASSERT_EQ(problem(), "fetched");
  EXPECT_EQ(ranges(), (std::vector<std::string>{"", "bytes=70000-", "bytes=140000-", "bytes=210000-"}));
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
}

TEST_F(Fetching, WhatAKillLeftIsGoneOnFrom) {
  folder.write(blob() + ".incomplete", weights.substr(0, 123'456));
  ASSERT_EQ(problem(), "fetched");
  EXPECT_EQ(ranges(), (std::vector<std::string>{"bytes=123456-"}));
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
  EXPECT_FALSE(folder.has(blob() + ".incomplete"));
}

TEST_F(Fetching, AKilledProcessCanBeTakenUp) {
  // The server is this process's, the fetch another's, which dies in the middle of the weights.
  std::atomic<bool> half{false};
  server.hook = [&](const HubRequest& r, int) -> std::optional<HubReply> {
    if (!r.path.ends_with("model.safetensors") || half.exchange(true)) return std::nullopt;
    HubReply cut = server.of_bytes(r, weights);
    cut.cut_after = 100'000;
    return cut;
  };
  const HubSettings s = [&] {
    HubSettings slow = settings();
    slow.first_wait = std::chrono::seconds(20);  // the wait in which it is killed
    return slow;
  }();
  const pid_t child = ::fork();
  if (child == 0) {
    FetchOptions quiet;
    quiet.progress = false;
    (void)Hub(s).fetch({"org/name", "", ""}, quiet).is_ok();
    ::_exit(0);
  }
  const auto arrived = [&] {
    std::error_code none;
    return std::filesystem::file_size(folder / (blob() + ".incomplete"), none) == 100'000 && !none;
  };
  for (int i = 0; i < 500 && !arrived(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(arrived());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(Hub(settings()).find(*parse_model_name("org/name")).is_ok());
  EXPECT_FALSE(folder.has(repo + "refs/main"));
  ASSERT_EQ(problem(), "fetched");
  EXPECT_EQ(ranges().back(), "bytes=100000-");
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
}

TEST_F(Fetching, AHubThatKnowsNoRangesIsAskedForAllOfIt) {
  server.knows_ranges = false;
  folder.write(blob() + ".incomplete", "something else");
  ASSERT_EQ(problem(), "fetched");
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
}

TEST_F(Fetching, ALeftoverOfOtherContentIsFetchedAnew) {
  folder.write(blob() + ".incomplete", std::string(200'000, 'x'));
  ASSERT_EQ(problem(), "fetched");
  EXPECT_EQ(ranges(), (std::vector<std::string>{"bytes=200000-", ""}));
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
  // One that is too long is of no use either.
  std::filesystem::remove(folder / blob());
  folder.write(blob() + ".incomplete", std::string(400'000, 'x'));
  ASSERT_EQ(problem(), "fetched");
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
}

TEST_F(Fetching, AnotherPartThanAskedForIsRefused) {
  folder.write(blob() + ".incomplete", weights.substr(0, 1000));
  spoil(9, [](HubReply r) {
    r.headers.back().second = "bytes 0-299999/300000";
    return r;
  });
  EXPECT_TRUE(holds(problem(), "sends another part than was asked for")) << problem();
}

TEST_F(Fetching, AWrongHashIsThrownAway) {
  spoil(9, [](HubReply r) {
    r.body[77] ^= 1;
    return r;
  });
  const std::string said = problem();
  EXPECT_TRUE(said.starts_with("model.safetensors: its hash is ")) << said;
  EXPECT_TRUE(holds(said, "but the hub's listing says " + sha256_of(weights) + "; it was thrown away; try again"))
      << said;
  EXPECT_FALSE(folder.has(blob()));
  EXPECT_FALSE(folder.has(blob() + ".incomplete"));
  EXPECT_FALSE(folder.has(repo + "refs/main"));
  EXPECT_EQ(ranges().size(), 1u) << "it came whole and was wrong: another try would be the same";
  // Small files are checked too.
  server.hook = [](const HubRequest& r, int) -> std::optional<HubReply> {
    if (!r.path.ends_with("config.json")) return std::nullopt;
    return HubReply{200, {}, "[]"};
  };
  std::filesystem::remove_all(folder.path());
  EXPECT_TRUE(problem().starts_with("config.json: its hash is ")) << problem();
}

TEST_F(Fetching, ABodyOfAnotherLengthIsTold) {
  spoil(99, [](HubReply r) {
    r.body.resize(r.body.size() > 100'000 ? 100'000 : r.body.size() / 2);
    return r;
  });
  EXPECT_TRUE(holds(problem(), "model.safetensors after ")) << problem();
  std::filesystem::remove_all(folder.path());
  spoil(99, [](HubReply r) {
    r.body += "more";
    return r;
  });
  EXPECT_TRUE(holds(problem(), "model.safetensors: more than the 300000 bytes of the hub's listing arrive"))
      << problem();
  // Without a length, a connection that ends early looks whole.
  std::filesystem::remove_all(folder.path());
  spoil(1, [](HubReply r) {
    r.tells_length = false;
    r.body.resize(1000);
    return r;
  });
  EXPECT_EQ(problem(), "fetched");
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
}

TEST_F(Fetching, BusyHubsAreTriedAgain) {
  int listings = 0;
  server.hook = [&](const HubRequest& r, int) -> std::optional<HubReply> {
    if (r.path.starts_with("/api/") && ++listings == 1) return HubReply{429, {{"Retry-After", "0"}}, "slow down"};
    if (r.path.starts_with("/api/") && listings == 2) return HubReply{502, {}, ""};
    return std::nullopt;
  };
  EXPECT_EQ(problem(), "fetched");
  EXPECT_EQ(listings, 3);
  std::filesystem::remove_all(folder.path());
  spoil(2, [](HubReply) { return HubReply{503, {}, "busy"}; });
  EXPECT_EQ(problem(), "fetched");
  std::filesystem::remove_all(folder.path());
  spoil(99, [](HubReply) { return HubReply{503, {}, "busy"}; });
  EXPECT_TRUE(holds(problem(), " answers 503 (tried 5 times); try again later: the same command goes on from here"))
      << problem();
  EXPECT_GE(server.asked("model.safetensors"), 5);
  spoil(99, [](HubReply) { return HubReply{429, {{"Retry-After", "3600"}}, ""}; });
  EXPECT_TRUE(holds(problem(), " answers 429, and asks to wait 3600 s; try again then")) << problem();
}

TEST_F(Fetching, RetryAfterIsKept) {
  spoil(1, [](HubReply) { return HubReply{429, {{"ratelimit", "\"api\";r=0;t=1"}}, ""}; });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(problem(), "fetched");
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_F(Fetching, RefusalsNameTheHubAndTheNextStep) {
  const std::string at = server.url() + " (HF_ENDPOINT)";
  EXPECT_EQ(problem("org/other-name"),
            at + " has no model org/other-name (404); check the spelling, or name another hub by REPRISE_HUB "
                 "or HF_ENDPOINT");
  EXPECT_EQ(problem("org/name@v9"), at + " has no revision \"v9\" of org/name; leave out @revision for \"main\"");
  server.token = "hf_other";
  EXPECT_EQ(problem(), at +
                           " shows no model org/name without a token (401); it does not exist, or is private or gated: "
                           "check the spelling, or set HF_TOKEN");
  token = "hf_mine";
  EXPECT_EQ(problem(),
            at + " shows no model org/name to this token (401); check the spelling, and that HF_TOKEN is valid "
                 "and may read it");
  server.token.clear();
  spoil(99, [](HubReply) {
    return HubReply{403, {{"X-Error-Code", "GatedRepo"}, {"X-Error-Message", "Ask first."}}, ""};
  });
  EXPECT_EQ(problem(),
            at + " does not give out org/name (403) (Ask first.); it is gated or private: ask for access at " +
                server.url() + "/org/name, and set HF_TOKEN to a token of that account");
  token.clear();
  EXPECT_TRUE(problem().ends_with("; none is set")) << problem();
  spoil(99, [](HubReply) { return HubReply{418, {}, ""}; });
  EXPECT_TRUE(holds(problem(), "answers 418 for org/name")) << problem();
  server.hook = [](const HubRequest&, int) -> std::optional<HubReply> { return HubReply{200, {}, "<html>hello"}; };
  EXPECT_TRUE(holds(problem(), "listing of org/name by " + at + ": ")) << problem();
}

TEST_F(Fetching, ARefusalOfTheOtherHostIsToldAsSuch) {
  HubServer cdn;
  server.cdn = &cdn;
  EXPECT_EQ(problem(), "model.safetensors: " + cdn.url().substr(7) + ", where the hub keeps it, answers 404");
}

TEST_F(Fetching, AHostThatIsNotThereIsSaidSoon) {
  HubSettings s = test_settings("http://127.0.0.1:1", folder.path());
  FetchOptions quiet;
  quiet.progress = false;
  const auto m = Hub(s).fetch({"org/name", "", ""}, quiet);
  ASSERT_FALSE(m.is_ok());
  EXPECT_EQ(m.status().message(),
            "127.0.0.1:1: Couldn't connect to server; check the network and HTTPS_PROXY, or name a hub that can be "
            "reached (HF_ENDPOINT)");
}

TEST_F(Fetching, AStalledTransferIsBegunAnew) {
  // Nothing comes, and no end of it either.
  std::atomic<bool> stalled{false};
  server.hook = [&](const HubRequest& r, int before) -> std::optional<HubReply> {
    if (!r.path.ends_with("model.safetensors") || stalled.exchange(true)) return std::nullopt;
    for (int i = 0; i < 80 && server.requests().size() <= static_cast<size_t>(before) + 1; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return std::nullopt;
  };
  HubSettings s = settings();
  s.stall_seconds = 1;
  FetchOptions quiet;
  quiet.progress = false;
  EXPECT_TRUE(Hub(s).fetch({"org/name", "", ""}, quiet).is_ok());
  EXPECT_EQ(ranges().size(), 2u);
}

TEST_F(Fetching, AFullDiskIsToldAndLosesNothing) {
  // Files of this process may not grow beyond this, which the system reports as it does a full disk.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{128 << 10, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string said = problem();
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, SIG_DFL);
  EXPECT_TRUE(holds(said, "File too large; 169 kB more are needed; make room, or set HF_HUB_CACHE")) << said;
  EXPECT_TRUE(holds(said, "the same command goes on from here")) << said;
  EXPECT_EQ(std::filesystem::file_size(folder / (blob() + ".incomplete")), 128u << 10);
  EXPECT_EQ(problem(), "fetched");
  EXPECT_EQ(ranges().back(), "bytes=131072-");
}

TEST_F(Fetching, MoreThanTheDiskHasIsNotBegun) {
  Json files = {{{"rfilename", "config.json"}, {"size", 2}, {"blobId", git_sha1_of("{}")}},
                {{"rfilename", "model.safetensors"},
                 {"size", 1},
                 {"lfs", {{"sha256", sha256_of(weights)}, {"size", 900'000'000'000'000}}}}};
  server.hook = [&](const HubRequest& r, int) -> std::optional<HubReply> {
    if (!r.path.starts_with("/api/")) return std::nullopt;
    return HubReply{200, {}, Json{{"sha", commit}, {"siblings", files}}.dump()};
  };
  EXPECT_TRUE(holds(problem(), "900000.0 GB are to be fetched, but only ")) << problem();
  EXPECT_EQ(server.asked("config.json"), 0);
}

TEST_F(Fetching, AFolderThatCannotBeWrittenIsNamed) {
  HubSettings s = settings();
  s.cache = "/proc/none";
  FetchOptions quiet;
  quiet.progress = false;
  const auto m = Hub(s).fetch({"org/name", "", ""}, quiet);
  ASSERT_FALSE(m.is_ok());
  EXPECT_EQ(m.status().message(),
            "/proc/none: No such file or directory; set HF_HUB_CACHE to a folder that can be written");
}

TEST_F(Fetching, StoppingKeepsWhatArrived) {
  std::atomic<int> asked{0};
  server.hook = [&](const HubRequest& r, int) -> std::optional<HubReply> {
    if (!r.path.ends_with("model.safetensors")) return std::nullopt;
    HubReply cut = server.of_bytes(r, weights);
    cut.cut_after = 50'000;
    ++asked;
    return cut;
  };
  FetchOptions options;
  options.stop = [&] { return asked > 0; };
  const auto m = fetch("org/name", options);
  ASSERT_FALSE(m.is_ok());
  EXPECT_EQ(m.status().code(), Code::Cancelled);
  server.hook = nullptr;
  EXPECT_EQ(problem(), "fetched");
}

TEST_F(Fetching, TwoAtOnceFetchEachFileOnce) {
  server.hook = [](const HubRequest& r, int) -> std::optional<HubReply> {
    if (r.path.ends_with("model.safetensors")) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return std::nullopt;
  };
  // Processes of their own, as flock is between open files.
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) ::_exit(problem() == "fetched" ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(server.asked("model.safetensors"), 1);
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
}

TEST_F(Fetching, ALockOfAnotherToolIsWaitedFor) {
  const std::string path = folder / (".locks/models--org--name/" + sha256_of(weights) + ".lock");
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  std::string said;
  std::thread fetcher([&] { said = problem(); });
  for (int i = 0; i < 300 && server.asked("config.json") == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(server.asked("model.safetensors"), 0);
  // The other one has fetched it meanwhile.
  folder.write(blob(), weights);
  ::close(fd);
  fetcher.join();
  EXPECT_EQ(said, "fetched");
  EXPECT_EQ(server.asked("model.safetensors"), 0);
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
}

TEST_F(Fetching, ListingsWithoutSizesAreCompletedByHeads) {
  server.repos["org/name"].tells_blobs = false;
  HubServer cdn;
  cdn.repos = server.repos;
  server.cdn = &cdn;
  ASSERT_EQ(problem(), "fetched");
  EXPECT_EQ(folder.read(snapshot + "model.safetensors"), weights);
  EXPECT_TRUE(folder.has(blob()));
  EXPECT_TRUE(folder.has(repo + "blobs/" + git_sha1_of("{}")));
  EXPECT_EQ(cdn.requests().size(), 1u) << "its HEAD is the hub's alone";
}

TEST_F(Fetching, GgufFilesByTagAndSplitOnes) {
  server.repos["org/name-GGUF"].files = {
      {"m-Q4_K_M.gguf", weights}, {"m-Q8_0-00001-of-00002.gguf", "one"}, {"m-Q8_0-00002-of-00002.gguf", "two"}};
  const auto m = fetch("org/name-GGUF");
  ASSERT_TRUE(m.is_ok()) << m.status().message();
  EXPECT_EQ(m->path, folder / ("models--org--name-GGUF/snapshots/" + commit + "/m-Q4_K_M.gguf"));
  EXPECT_EQ(m->by_rule, "Q4_K_M");
  EXPECT_EQ(server.asked("00001-of-00002.gguf"), 0);
  const auto split = fetch("org/name-GGUF:q8_0");
  ASSERT_TRUE(split.is_ok()) << split.status().message();
  EXPECT_EQ(split->files, 2u);
  EXPECT_EQ(split->path, folder / ("models--org--name-GGUF/snapshots/" + commit + "/m-Q8_0-00001-of-00002.gguf"));
  EXPECT_TRUE(folder.has("models--org--name-GGUF/snapshots/" + commit + "/m-Q8_0-00002-of-00002.gguf"));
}

TEST_F(Fetching, OfflineAsksNobody) {
  HubSettings s = settings();
  s.offline = "HF_HUB_OFFLINE=1";
  const auto m = Hub(s).fetch({"org/name", "", ""}, {});
  ASSERT_FALSE(m.is_ok());
  EXPECT_EQ(m.status().message(),
            "HF_HUB_OFFLINE=1 forbids to fetch org/name; unset it, or fetch the model elsewhere "
            "into " +
                folder.path());
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(Fetching, WithoutLibcurlThePackageIsNamed) {
  FetchOptions options;
  options.curl = "libno-such.so.4";
  EXPECT_EQ(fetch("org/name", options).status().message(),
            "libno-such.so.4 is missing, which fetching models needs; install it with: apt-get install libcurl4");
}

TEST_F(Fetching, AModelThatMovedOnIsBroughtUpToDate) {
  ASSERT_EQ(problem(), "fetched");
  server.repos["org/name"].commit = std::string(40, 'b');
  server.repos["org/name"].files["config.json"] = "{\"new\": 1}";
  const Hub hub(settings());
  EXPECT_TRUE(holds(hub.find({"org/name", "", ""})->path, commit)) << "what is there is used until a pull";
  const auto m = fetch();
  ASSERT_TRUE(m.is_ok()) << m.status().message();
  EXPECT_EQ(m->fetched, 10u) << "the weights are the same blob";
  EXPECT_EQ(folder.read(repo + "refs/main"), std::string(40, 'b'));
  EXPECT_EQ(folder.read(snapshot + "config.json"), "{}") << "the old snapshot stays";
  EXPECT_TRUE(hub.find({"org/name", commit, ""}).is_ok());
}

TEST_F(Fetching, ModelScopeHasItsOwnRoutesAndLayout) {
  HubSettings s = test_settings(server.url(), folder.path(), HubKind::ModelScope);
  s.token = "ms-token";
  const Hub hub(s);
  FetchOptions quiet;
  quiet.progress = false;
  const auto m = hub.fetch({"org/name", "", ""}, quiet);
  ASSERT_TRUE(m.is_ok()) << m.status().message();
  EXPECT_EQ(m->path, folder / "models/org--name/snapshots/master");
  EXPECT_EQ(folder.read("models/org--name/snapshots/master/model.safetensors"), weights);
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "models/org--name/snapshots/master/model.safetensors"));
  const auto requests = server.requests();
  EXPECT_EQ(requests[0].path, "/api/v1/models/org/name/repo/files");
  EXPECT_EQ(requests[0].query, "Revision=master&Recursive=True");
  EXPECT_EQ(requests[0].header("cookie"), "m_session_id=ms-token");
  EXPECT_EQ(requests.back().path, "/models/org/name/resolve/master/model.safetensors");
  EXPECT_TRUE(hub.find({"org/name", "", ""}).is_ok());
  // The branch moves on under the same name.
  server.repos["org/name"].files["config.json"] = "[]";
  const auto again = hub.fetch({"org/name", "", ""}, quiet);
  ASSERT_TRUE(again.is_ok()) << again.status().message();
  EXPECT_EQ(again->fetched, 2u);
  EXPECT_EQ(folder.read("models/org--name/snapshots/master/config.json"), "[]");
  EXPECT_TRUE(holds(hub.fetch({"org/none", "", ""}, quiet).status().message(), "has no model org/none (404)"));
}

}  // namespace
}  // namespace reprise::hub::fetch_test
