// Ranks that mpirun starts, on one host and on two: the same tokens, clear errors, and an end for everybody when one is
// lost. Two hosts are namespaces (two_hosts.sh).
#include "apps/client_load.h"
#include "apps/processes.h"
#include "apps/serving.h"

namespace reprise::apps::hosts_test {
namespace {

using testing_support::HttpClient;

// What is missing for these tests; "" when nothing is.
std::string missing() {
  if (!std::filesystem::exists(std::filesystem::path(REPRISE_BINARY).parent_path() / "../lib/libreprise-mpi.so"))
    return "libreprise-mpi.so was not built: there is no mpi.h (Debian: libopenmpi-dev)";
  if (std::system("mpirun --version >/dev/null 2>&1") != 0) return "there is no mpirun (Debian: openmpi-bin)";
  return "";
}

class Hosts : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = missing();
    if (why.empty()) return;
    if (std::getenv("CI")) FAIL() << why;
    GTEST_SKIP() << why;
  }
};

std::string mpirun(int ranks, const std::string& more = "") {
  return fmt::format(
      "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
      "mpirun --bind-to none --oversubscribe -n {} {}",
      ranks, more);
}

// A thread per rank.
struct OneThread : Model {
  OneThread() { threads = 1; }
};

std::string generate(const std::string& model_flags, const std::string& more) {
  return fmt::format("generate {} --prompt-ids 1,2,3,4,5,6,7 --max-new-tokens 12 --ignore-eos --json {}", model_flags,
                     more);
}

std::string tokens_of(const Outcome& o) {
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  return o.exit_code == 0 ? OrderedJson::parse(o.out)["output"]["token_ids"].dump() : o.err;
}

std::string experts_model() { return "--threads 1 --dtype float32 --model-path " + model_folder("mixtral_top2"); }

// Processes of the program that a launcher's process has started, by rank.
std::vector<pid_t> ranks_of(pid_t launcher, size_t count) {
  std::vector<pid_t> out(count, 0);
  for (const pid_t p : children_of(launcher)) {
    std::smatch found;
    const std::string variables = content_of(fmt::format("/proc/{}/environ", p));
    if (std::regex_search(variables, found, std::regex("OMPI_COMM_WORLD_RANK=([0-9]+)")))
      out.at(std::stoul(found[1])) = p;
  }
  return out;
}

TEST_F(Hosts, RanksOfALauncherGiveTheSameTokens) {
  const OneThread model;
  const std::string one = tokens_of(run_binary(generate(model.flags(), "")));
  EXPECT_EQ(tokens_of(run_binary(generate(model.flags(), "--tp-size 2"), mpirun(2))), one);
  EXPECT_EQ(tokens_of(run_binary(generate(model.flags(), "--tp-size 4 --dist-launcher mpi"), mpirun(4))), one);
  // Without the launcher's words the program starts its own ranks, once per process of mpirun.
  EXPECT_EQ(tokens_of(run_binary(generate(model.flags(), "--tp-size 2 --dist-launcher self"), mpirun(1))), one);
  const std::string mixed = tokens_of(run_binary(generate(experts_model(), "")));
  EXPECT_EQ(tokens_of(run_binary(generate(experts_model(), "--tp-size 2 --ep-size 2 --dist-launcher mpi"), mpirun(2))),
            mixed);
}

TEST_F(Hosts, OtherCommandsRunOverALaunchersRanks) {
  const OneThread model;
  const Outcome verified = run_binary(
      fmt::format("graph verify {} --quick --largest 2 --tp-size 2 --max-total-tokens 4096 --dist-launcher mpi",
                  model.flags()),
      mpirun(2));
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_TRUE(holds(verified.out, "over 2 ranks, against one rank run eagerly")) << verified.out;
  EXPECT_TRUE(holds(verified.out, " 0 mismatches")) << verified.out;
  const Outcome measured = run_binary(
      fmt::format("bench one-batch {} --tp-size 2 --batch-size 1 --input-len 8 --output-len 4 --json", model.flags()),
      mpirun(2));
  EXPECT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_TRUE(holds(measured.out, "rank_wait_us")) << measured.out;
}

TEST_F(Hosts, SizesThatDisagreeAreOneLine) {
  const OneThread model;
  for (const auto& [flags, said] :
       {std::pair{"--tp-size 4", "mpirun started 2 processes (OMPI_COMM_WORLD_SIZE) but --tp-size 4 asks for 4"},
        std::pair{"", "mpirun started 2 processes (OMPI_COMM_WORLD_SIZE) but --tp-size 1 asks for 1"}}) {
    const Outcome o = run_binary(generate(model.flags(), flags), mpirun(2, "--quiet"));
    EXPECT_EQ(o.exit_code, 2) << o.err;
    EXPECT_EQ(o.err, fmt::format("error: {}\n", said));
  }
  const Outcome nodes = run_binary(generate(model.flags(), "--tp-size 2 --nnodes 2"));
  EXPECT_EQ(nodes.exit_code, 2);
  EXPECT_TRUE(holds(nodes.err, "--nnodes 2 on the CPU needs MPI")) << nodes.err;
  EXPECT_TRUE(holds(nodes.err, "mpirun -n 2 -host HOST1:1,HOST2:... reprise generate --tp-size 2")) << nodes.err;
  EXPECT_EQ(std::count(nodes.err.begin(), nodes.err.end(), '\n'), 1) << nodes.err;
}

TEST_F(Hosts, WithoutTheLibraryThereIsOneLine) {
  const OneThread model;
  const Folder empty;
  const Outcome o = run_binary(generate(model.flags(), "--tp-size 2 --dist-launcher mpi"),
                               mpirun(2, "--quiet -x REPRISE_MPI_DIR=" + empty.path()));
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_TRUE(holds(o.err, "several hosts need libreprise-mpi.so")) << o.err;
  EXPECT_TRUE(holds(o.err, "libopenmpi-dev")) << o.err;
}

// Over MPI each process is a host of its own, so that both roads are here: one region, and a link.
TEST_F(Hosts, AServerEndsInOrder) {
  const OneThread model;
  for (const char* launcher : {"env", "mpi"}) {
    Server server(model, fmt::format("--tp-size 2 --dist-launcher {}", launcher), "", mpirun(2));
    ASSERT_NE(server.port(), 0) << server.said();
    const std::vector<pid_t> ranks = ranks_of(server.pid(), 2);
    EXPECT_EQ(HttpClient(server.port()).post("/v1/completions", R"({"prompt": "once", "max_tokens": 4})").status, 200);
    ::kill(ranks[0], SIGTERM);
    EXPECT_EQ(server.wait(), 0) << server.said();
    for (const pid_t r : ranks) EXPECT_TRUE(soon([&] { return is_gone(r); }));
    EXPECT_FALSE(holds(server.said(), "error")) << server.said();
  }
}

TEST_F(Hosts, AKilledRankEndsTheServerWithItsName) {
  const OneThread model;
  for (const char* launcher : {"env", "mpi"})
    for (const bool busy : {false, true}) {
      Server server(model, fmt::format("--tp-size 2 --dist-launcher {}", launcher), "", mpirun(2));
      ASSERT_NE(server.port(), 0) << server.said();
      const std::vector<pid_t> ranks = ranks_of(server.pid(), 2);
      std::optional<ClientLoad> load;
      if (busy) load.emplace(server.port());
      std::this_thread::sleep_for(std::chrono::milliseconds(busy ? 200 : 0));
      ::kill(ranks[1], SIGKILL);
      EXPECT_NE(server.wait(), 0);
      EXPECT_TRUE(holds(server.said(), fmt::format("rank 1 (process {}", ranks[1]))) << server.said();
      for (const pid_t r : ranks) EXPECT_TRUE(soon([&] { return is_gone(r); }));
      if (load) load->expect_all_answered();
    }
}

// Other models on the two hosts are told apart before a step.
TEST_F(Hosts, AnotherModelIsOneLine) {
  const OneThread model;
  const std::string other = "--load-format dummy --threads 1 --model-path " + model_folder("llama_gqa4_sharded");
  const std::string end = "--tp-size 2 --dist-launcher mpi --prompt-ids 1,2";
  const Outcome o =
      run_binary(fmt::format("generate {} {} : -n 1 {} generate {} {}", model.flags(), end, REPRISE_BINARY, other, end),
                 mpirun(1, "--quiet"));
  EXPECT_EQ(o.exit_code, 1) << o.err;
  EXPECT_TRUE(holds(o.err, "model: rank 1 has LlamaForCausalLM")) << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
}

// Shell text on the first of two hosts; `mpirun2` reaches both.
Outcome on_two_hosts(const std::string& command) {
  const Folder folder;
  const std::string script = std::string(REPRISE_SOURCE_DIR) + "/tests/apps/two_hosts.sh";
  const std::string line = fmt::format("{} '{}' >{} 2>{}", script, command, folder / "out", folder / "err");
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, content_of(folder / "out"), content_of(folder / "err")};
}
constexpr int kNoNamespaces = 77;

// Devices of two hosts: HCCL between them, and the steps' inputs by the link. Each process of --dist-launcher mpi is a
// host of its own.
TEST_F(Hosts, AscendDevicesOfTwoHostsGiveTheTokensOfOne) {
  const auto flags = [](const std::string& model) {
    return "--device ascend --ascend-runtime sim --dtype bfloat16 --log-level error --model-path " +
           model_folder(model);
  };
  const auto on_hosts = [&](const std::string& model, int ranks, const std::string& more) {
    return tokens_of(run_binary(generate(flags(model), fmt::format("--tp-size {} --dist-launcher mpi {}", ranks, more)),
                                mpirun(ranks)));
  };
  const auto on_one = [&](const std::string& model, const std::string& more) {
    return tokens_of(run_binary(generate(flags(model), more)));
  };
  const std::string one = on_one("qwen3_untied", "");
  EXPECT_EQ(on_hosts("qwen3_untied", 2, ""), one);
  EXPECT_EQ(on_hosts("qwen3_untied", 2, "--verify-replay 1"), one);
  const std::string experts = on_one("mixtral_top2", "");
  EXPECT_EQ(on_hosts("mixtral_top2", 2, "--ep-size 2"), experts);
  EXPECT_EQ(on_hosts("mixtral_top2", 2, "--ep-size 2 --moe-a2a-backend deepep"), experts);
}

TEST_F(Hosts, TwoHostsGiveTheSameTokens) {
  const OneThread model;
  const auto two = [&](int ranks, const std::string& flags, const std::string& how) {
    return on_two_hosts(fmt::format("mpirun2 -n {} {} {}", ranks, REPRISE_BINARY, generate(flags, how)));
  };
  const Outcome first = two(2, model.flags(), "--tp-size 2 --nnodes 2");
  if (first.exit_code == kNoNamespaces) GTEST_SKIP() << first.out;
  const std::string one = tokens_of(run_binary(generate(model.flags(), "")));
  EXPECT_EQ(tokens_of(first), one);
  EXPECT_EQ(tokens_of(two(4, model.flags(), "--tp-size 4")), one);
  EXPECT_EQ(tokens_of(two(2, experts_model(), "--tp-size 2 --ep-size 2")),
            tokens_of(run_binary(generate(experts_model(), ""))));
}

// An idle server whose other host cannot be reached any more: one line, and no rank is left. The launcher may wait for
// its own connection longer than the test does.
TEST_F(Hosts, ACableThatIsPulledEndsTheServer) {
  const OneThread model;
  const Outcome o = on_two_hosts(
      fmt::format("log=$(mktemp); mpirun2 --mca oob_tcp_keepalive_time 1 --mca oob_tcp_keepalive_intvl 1 "
                  "--mca oob_tcp_keepalive_probes 1 -n 2 {} serve {} --tp-size 2 --port 0 --dist-timeout 1 2>$log & "
                  "for i in {{1..600}}; do grep -q serving $log && break; sleep 0.1; done; pull_the_cable; "
                  "for i in {{1..300}}; do pgrep reprise >/dev/null || break; sleep 0.1; done; pgrep reprise; "
                  "for i in {{1..50}}; do kill -0 $! 2>/dev/null || break; sleep 0.1; done; kill -9 $! 2>/dev/null; "
                  "wait $!; status=$?; cat $log; rm $log; exit $status",
                  REPRISE_BINARY, model.flags()));
  if (o.exit_code == kNoNamespaces) GTEST_SKIP() << o.out;
  EXPECT_NE(o.exit_code, 0);
  EXPECT_TRUE(holds(o.out, "host second (rank 1) has not been heard of for")) << o.out << o.err;
  EXPECT_TRUE(holds(o.out, "this server has to be started again")) << o.out << o.err;
  EXPECT_FALSE(std::regex_search(o.out, std::regex("(^|\n)[0-9]+\n"))) << "somebody is left: " << o.out;
}

}  // namespace
}  // namespace reprise::apps::hosts_test
