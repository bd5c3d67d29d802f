// Commands over several ranks as processes: the same tokens, and what is left of a world that loses a rank.
#include <sched.h>

#include <cstring>
#include <map>
#include <set>

#include "apps/client_load.h"
#include "apps/processes.h"
#include "apps/serving.h"
#include "backends/cpu/thread_pool.h"
#include "base/file.h"
#include "support/http_client.h"
#include "support/temporary_path.h"

namespace reprise::apps::ranks_test {
namespace {

using testing_support::HttpAnswer;
using testing_support::HttpClient;

constexpr const char* kPrompt = R"({"prompt": "once upon a time", "max_tokens": 24, "temperature": 0, "n": 2})";

std::string choices(int64_t port, const std::string& body = kPrompt) {
  HttpClient c(port);
  const HttpAnswer a = c.post("/v1/completions", body);
  return a.status == 200 ? OrderedJson::parse(a.body)["choices"].dump() : fmt::format("{} {}", a.status, a.body);
}

// A thread per rank.
struct OneThread : Model {
  OneThread() { threads = 1; }
};

void expect_end(Server& server, const std::vector<pid_t>& followers, const std::string& reason) {
  EXPECT_EQ(server.wait(), 1) << server.said();
  EXPECT_TRUE(holds(server.said(), reason)) << server.said();
  for (const pid_t f : followers) EXPECT_TRUE(soon([&] { return is_gone(f); })) << f;
}

TEST(Ranks, GenerateGivesTheSameTokens) {
  const OneThread model;
  const std::string ids =
      fmt::format("generate {} --prompt-ids 1,2,3,4,5,6,7 --max-new-tokens 12 --ignore-eos --json ", model.flags());
  const auto tokens = [&](const std::string& flags) {
    const Outcome o = run_binary(ids + flags);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    return o.exit_code == 0 ? OrderedJson::parse(o.out)["output"]["token_ids"].dump() : o.err;
  };
  const std::string one = tokens("");
  EXPECT_EQ(tokens("--tp-size 2"), one);
  EXPECT_EQ(tokens("-tp 4"), one);
  EXPECT_EQ(tokens("--tensor-parallel-size 2 --graph off"), one);
  EXPECT_EQ(tokens("--tp-size 2 --temperature 0.7 --seed 5"), tokens("--temperature 0.7 --seed 5"));
}

TEST(Ranks, ANumberThatDoesNotFitTheModelNamesThoseThatDo) {
  const OneThread model;
  for (const int size : {3, 8}) {
    const Outcome o = run_binary(fmt::format("generate {} --prompt-ids 1,2 --tp-size {}", model.flags(), size));
    EXPECT_EQ(o.exit_code, 1);
    EXPECT_TRUE(holds(
        o.err, fmt::format("--tp-size {}: LlamaForCausalLM has 4 query heads in 2 groups; allowed: 1, 2, 4", size)))
        << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
  // A check, which compares any number of ranks with one.
  const Outcome verified =
      run_binary(fmt::format("graph verify {} --quick --largest 4 --tp-size 2 --max-total-tokens 4096", model.flags()));
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_TRUE(holds(verified.out, "over 2 ranks, against one rank run eagerly")) << verified.out;
  EXPECT_TRUE(holds(verified.out, " 0 mismatches")) << verified.out;
}

// One rank has all experts, whatever the ranks that it is compared with share out.
TEST(Ranks, PartsOfExpertsAreComparedWithOneRank) {
  for (const char* parts : {"--ep-size 2", "--enable-expert-parallel"}) {
    const Outcome o = run_binary(fmt::format(
        "graph verify --model-path {} --threads 1 --quick --largest 4 --tp-size 2 {} --max-total-tokens 4096",
        model_folder("qwen3_moe_norm"), parts));
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_TRUE(holds(o.out, " 0 mismatches")) << o.out;
  }
}

OrderedJson trace_events(const std::string& path) {
  const auto text = read_file(path);
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  std::filesystem::remove(path);
  return text.is_ok() ? OrderedJson::parse(*text)["traceEvents"] : OrderedJson::array();
}

// One process a rank in the trace, on one clock: what all ranks meet in overlaps in time, and each meeting is a span.
TEST(Ranks, AProfileShowsEachRank) {
  const OneThread model;
  const std::string trace = testing_support::temporary_path("ranks_profile.json");
  const std::string base = fmt::format("graph profile {} --tp-size 2 --repeat 3 ", model.flags());
  const OrderedJson all = json_of(run_binary(fmt::format("{} --rank all --json --output {}", base, trace)));
  EXPECT_EQ(all["of"], 2);
  ASSERT_EQ(all["profiles"].size(), 2u);
  for (const int rank : {0, 1}) {
    const OrderedJson& p = all["profiles"][static_cast<size_t>(rank)];
    EXPECT_EQ(p["rank"], rank);
    int64_t gathers = 0;
    for (const OrderedJson& op : p["ops"])
      if (op["op"] == "all_gather") {
        gathers = op["count"];
        EXPECT_GT(op["meet_us"].get<double>(), 0) << op;
        EXPECT_LE(op["meet_us"].get<double>(), op["busy_us"].get<double>()) << op;
      }
    EXPECT_GE(gathers, 2 * 4);  // four a layer, at least
  }
  // Of both ranks: the span of each collective's meeting.
  std::map<int64_t, std::map<int64_t, std::pair<double, double>>> meetings;
  std::set<std::string> processes;
  for (const OrderedJson& e : trace_events(trace)) {
    if (e["name"] == "process_name") processes.insert(e["args"]["name"].get<std::string>().substr(0, 7));
    if (!e.contains("cat") || e["cat"] != "meeting") continue;
    const double begin = e["ts"], length = e["dur"];
    meetings[e["args"]["number"].get<int64_t>()][e["pid"].get<int64_t>()] = {begin, begin + length};
  }
  EXPECT_EQ(processes, (std::set<std::string>{"rank 0:", "rank 1:"}));
  EXPECT_GE(meetings.size(), 9u);
  for (const auto& [node, spans] : meetings) {
    ASSERT_EQ(spans.size(), 2u) << node;
    // Nobody leaves before the other one has come; clocks are read a microsecond apart at most.
    EXPECT_LT(spans.at(1).first, spans.at(2).second + 50) << node;
    EXPECT_LT(spans.at(2).first, spans.at(1).second + 50) << node;
  }
  const Outcome one = run_binary(base + "--rank 1");
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_TRUE(holds(one.out, "rank 1 of 2: decode step")) << one.out;
  EXPECT_TRUE(holds(one.out, "of these, waiting for other ranks")) << one.out;
  for (const char* rank : {"2", "none", "0,1"}) {
    const Outcome bad = run_binary(fmt::format("{} --rank {}", base, rank));
    EXPECT_EQ(bad.exit_code, 2);
    EXPECT_TRUE(holds(bad.err, "allowed: 0 to 1")) << bad.err;
  }
}

// Nothing is computed: every rank plans, captures and runs its steps, and meets the others in collectives.
TEST(Ranks, TheNullDeviceRunsOverRanks) {
  const OneThread model;
  const std::string base = fmt::format(
      "generate {} --device null --prompt-ids 1,2,3 --max-new-tokens 4 --ignore-eos --json --max-total-tokens 1024 ",
      model.flags());
  for (const char* flags : {"--tp-size 2 --graph required", "--tp-size 4 --graph required --temperature 0.8 --seed 3",
                            "--tp-size 2 --graph off"}) {
    const OrderedJson j = json_of(run_binary(base + flags));
    EXPECT_EQ(j["output"]["token_ids"], (std::vector<int>{0, 0, 0, 0})) << flags;
    EXPECT_EQ(j["graph"]["decode"]["replays"].get<int>() > 0, std::string_view(flags).find("off") == std::string::npos)
        << j["graph"];
  }
  const Outcome o = run_binary(base + "--tp-size 3");
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_TRUE(holds(o.err, "allowed: 1, 2, 4")) << o.err;
  const Outcome dump = run_binary(
      fmt::format("graph dump {} --device null --tp-size 2 --rank 1 --max-total-tokens 1024", model.flags()));
  EXPECT_TRUE(holds(dump.out, "mlp.down_proj.weight[32+32/64]")) << dump.out << dump.err;
}

TEST(Ranks, ExplainAndDumpShowOneRank) {
  const OneThread model;
  const auto explain = [&](const std::string& flags) {
    return json_of(run_binary(fmt::format("graph explain {} --json --max-total-tokens 4096 {}", model.flags(), flags)));
  };
  EXPECT_FALSE(explain("").contains("rank"));
  for (const int rank : {0, 1}) {
    const OrderedJson j = explain(fmt::format("--tp-size 2 --rank {}", rank))["rank"];
    EXPECT_EQ(j["rank"], rank);
    EXPECT_EQ(j["of"], 2);
    // 64 hidden columns of f32, of which a rank gives one half: the attention result, and three more a layer.
    int64_t gathers = 0;
    for (const OrderedJson& c : j["collectives"])
      if (c["op"] == "all_gather" && c["row_bytes"] == 256 && c["own_row_bytes"] == 128) gathers = c["count"];
    EXPECT_EQ(gathers, 2 * 3) << j;
  }
  const auto dump = [&](int rank) {
    const Outcome o =
        run_binary(fmt::format("graph dump {} --max-total-tokens 4096 --tp-size 2 --rank {}", model.flags(), rank));
    EXPECT_EQ(o.exit_code, 0) << o.err;
    return o.out;
  };
  EXPECT_TRUE(holds(dump(0), "mlp.down_proj.weight[0+32/64]")) << dump(0);
  EXPECT_TRUE(holds(dump(1), "mlp.down_proj.weight[32+32/64]"));
  // As a page: what the rank holds, and what it exchanges, timed or not.
  for (const char* timing : {"--no-timing", "--repeat 3"}) {
    const Outcome page =
        run_binary(fmt::format("graph dump {} --max-total-tokens 4096 --tp-size 2 --rank 1 --format "
                               "html {}",
                               model.flags(), timing));
    EXPECT_EQ(page.exit_code, 0) << page.err;
    EXPECT_TRUE(holds(page.out, "<h2 id=\"ranks\">Rank 1 of 2</h2>"));
    EXPECT_TRUE(holds(page.out,
                      "<td class=\"mono\">model.layers.N.mlp.down_proj.weight</td><td class=\"mono\">"
                      "[32+32/64]</td><td class=\"n\">2</td>"));
    EXPECT_TRUE(holds(page.out, "<td class=\"mono\">all_gather</td><td class=\"n\">6</td><td class=\"n\">256</td>"));
  }
  const Outcome none = run_binary(fmt::format("graph dump {} --tp-size 2 --rank 2", model.flags()));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_TRUE(holds(none.err, "--rank 2 with --tp-size 2: allowed: 0 to 1")) << none.err;
}

TEST(Ranks, DoctorTestsWhatRanksExchange) {
  const OrderedJson j = json_of(run_binary("doctor --tp-size 2 --json"));
  EXPECT_EQ(j["size"], 2);
  EXPECT_EQ(j["on_this_host"], 2);
  std::vector<std::string> names;
  for (const OrderedJson& t : j["times"]) {
    names.push_back(fmt::format("{} {}", t["name"].get<std::string>(), t["bytes"].get<int64_t>()));
    EXPECT_GT(t["us"].get<double>(), 0);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"all_gather 4096", "all_gather 65536", "all_gather 1048576",
                                             "all_reduce 65536", "step 16384"}));
}

TEST(Ranks, AServerOverRanksAnswersAsOneRankDoes) {
  const OneThread model;
  const std::string drawn =
      R"({"prompt": "abc", "max_tokens": 16, "temperature": 0.9, "seed": 3, "frequency_penalty": 0.7,
          "repetition_penalty": 1.2, "logit_bias": {"7": 2.5}, "min_tokens": 9})";
  std::string greedy, sampled;
  {
    const Server one(model, "");
    ASSERT_NE(one.port(), 0) << one.said();
    greedy = choices(one.port());
    sampled = choices(one.port(), drawn);
  }
  Server two(model, "--tp-size 2");
  ASSERT_NE(two.port(), 0) << two.said();
  EXPECT_EQ(children_of(two.pid()).size(), 1u);
  EXPECT_EQ(choices(two.port()), greedy);
  EXPECT_EQ(choices(two.port(), drawn), sampled);
  EXPECT_EQ(choices(two.port()), greedy);  // from the cache of prefixes
  const std::string metrics = HttpClient(two.port()).get("/metrics").body;
  EXPECT_TRUE(holds(metrics, "reason=\"penalties\"} 0")) << metrics;  // all of them were drawn by the ranks
  EXPECT_TRUE(std::regex_search(metrics, std::regex("reprise:logits_gathered_total\\{[^}]*\\} [0-9]"))) << metrics;
  for (const char* name : {"collectives_total", "rank_wait_seconds_total"})
    for (const int rank : {0, 1}) {
      const std::regex sample(fmt::format("reprise:{}\\{{[^}}]*rank=\"{}\"\\}} [0-9]", name, rank));
      EXPECT_TRUE(std::regex_search(metrics, sample)) << metrics;
    }
  EXPECT_TRUE(holds(HttpClient(two.port()).get("/server_info").body, "\"tp_size\":2"));
  EXPECT_TRUE(holds(two.said(), "ranks: 2 on this host; rank 0 holds ")) << two.said();
  // In order: nobody is left, and nothing is said of a loss.
  const std::vector<pid_t> followers = children_of(two.pid());
  ::kill(two.pid(), SIGTERM);
  EXPECT_EQ(two.wait(), 0) << two.said();
  for (const pid_t f : followers) EXPECT_TRUE(soon([&] { return is_gone(f); }));
  EXPECT_FALSE(holds(two.said(), "error")) << two.said();
}

// Two replicas answer as one server does, each with its threads, cache and counters.
TEST(Ranks, ReplicasAnswerAsOneServer) {
  const OneThread model;
  std::string greedy;
  {
    Server one(model, "");
    ASSERT_NE(one.port(), 0) << one.said();
    greedy = choices(one.port());
  }
  Server two(model, "--dp-size 2 --load-balance-method round_robin");
  ASSERT_NE(two.port(), 0) << two.said();
  EXPECT_TRUE(children_of(two.pid()).empty());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(choices(two.port()), greedy);
  const std::string metrics = HttpClient(two.port()).get("/metrics").body;
  for (const int replica : {0, 1}) {
    const std::regex steps(fmt::format("reprise:dp_steps_total\\{{[^}}]*dp_rank=\"{}\"\\}} [1-9]", replica));
    EXPECT_TRUE(std::regex_search(metrics, steps)) << metrics;
  }
  const Json info = Json::parse(HttpClient(two.port()).get("/server_info").body);
  EXPECT_EQ(info["dp_size"], 2);
  EXPECT_EQ(info["load_balance_method"], "round_robin");
  EXPECT_EQ(info["internal_states"].size(), 2u);
  EXPECT_TRUE(holds(two.said(), "replicas: 2; a request goes to one of them")) << two.said();
  HttpClient admin(two.port());
  EXPECT_TRUE(holds(admin.post("/flush_cache", "").body, "\"success\":true"));
  ::kill(two.pid(), SIGTERM);
  EXPECT_EQ(two.wait(), 0) << two.said();
  EXPECT_FALSE(holds(two.said(), "error")) << two.said();
}

// Two ranks share out requests: the same answers, each from its own cache, in steps that both take.
TEST(Ranks, RanksThatShareOutRequestsAnswerAsOneServer) {
  const OneThread model;
  std::string greedy;
  {
    Server one(model, "");
    ASSERT_NE(one.port(), 0) << one.said();
    greedy = choices(one.port());
  }
  Server two(model, "--tp-size 2 --dp-size 2 --enable-dp-attention --load-balance-method round_robin");
  ASSERT_NE(two.port(), 0) << two.said();
  const std::vector<pid_t> followers = children_of(two.pid());
  EXPECT_EQ(followers.size(), 1u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(choices(two.port()), greedy);
  // One request at a time leaves the other part without rows.
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(holds(choices(two.port(), R"({"prompt": "Two", "max_tokens": 4, "ignore_eos": true})"), "\"length\""));
  const std::string metrics = HttpClient(two.port()).get("/metrics").body;
  for (const int part : {0, 1})
    for (const char* name : {"dp_steps_total", "dp_idle_steps_total"}) {
      const std::regex sample(fmt::format("reprise:{}\\{{[^}}]*dp_rank=\"{}\"\\}} [1-9]", name, part));
      EXPECT_TRUE(std::regex_search(metrics, sample)) << metrics;
    }
  HttpClient admin(two.port());
  EXPECT_TRUE(holds(admin.post("/flush_cache", "").body, "\"success\":true"));
  ::kill(two.pid(), SIGTERM);
  EXPECT_EQ(two.wait(), 0) << two.said();
  for (const pid_t f : followers) EXPECT_TRUE(soon([&] { return is_gone(f); }));
  EXPECT_FALSE(holds(two.said(), "error")) << two.said();
}

// Each replica over two ranks; all followers are there before the first thread is.
TEST(Ranks, ReplicasOfSeveralRanksAnswerAsOneServer) {
  const OneThread model;
  std::string greedy;
  {
    Server one(model, "");
    ASSERT_NE(one.port(), 0) << one.said();
    greedy = choices(one.port());
  }
  Server server(model, "--dp-size 2 --tp-size 2 --load-balance-method round_robin");
  ASSERT_NE(server.port(), 0) << server.said();
  const std::vector<pid_t> followers = children_of(server.pid());
  EXPECT_EQ(followers.size(), 2u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(choices(server.port()), greedy);
  const std::string metrics = HttpClient(server.port()).get("/metrics").body;
  for (const char* sample :
       {"dp_steps_total\\{[^}]*dp_rank=\"1\"\\} [1-9]", "collectives_total\\{[^}]*rank=\"3\"\\} [1-9]"})
    EXPECT_TRUE(std::regex_search(metrics, std::regex(sample))) << metrics;
  ::kill(server.pid(), SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.said();
  for (const pid_t f : followers) EXPECT_TRUE(soon([&] { return is_gone(f); }));
  EXPECT_FALSE(holds(server.said(), "error")) << server.said();
}

TEST(Ranks, ALostRankOfAReplicaEndsTheServerWithItsName) {
  const OneThread model;
  for (const bool busy : {false, true}) {
    Server server(model, "--dp-size 2 --tp-size 2");
    ASSERT_NE(server.port(), 0) << server.said();
    const auto followers = children_of(server.pid());
    ASSERT_EQ(followers.size(), 2u);
    std::optional<ClientLoad> load;
    if (busy) load.emplace(server.port());
    std::this_thread::sleep_for(std::chrono::milliseconds(busy ? 200 : 0));
    ::kill(followers[1], SIGKILL);
    expect_end(server, followers, fmt::format("replica 1, rank 1 (process {}) ended: signal 9", followers[1]));
    if (load) load->expect_all_answered();
  }
}

TEST(Ranks, ReplicasAreForServers) {
  const OneThread model;
  const Outcome o = run_binary(fmt::format("generate {} --prompt-ids 1,2 --dp-size 2", model.flags()));
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_TRUE(holds(o.err, "--dp-size 2: replicas answer requests of `serve` alone; allowed here: 1")) << o.err;
}

TEST(Ranks, AFollowerThatIsKilledEndsTheServerWithItsName) {
  const OneThread model;
  for (const bool busy : {false, true}) {
    Server server(model, "--tp-size 4");
    ASSERT_NE(server.port(), 0) << server.said();
    const auto followers = children_of(server.pid());
    ASSERT_EQ(followers.size(), 3u);
    std::optional<ClientLoad> load;
    if (busy) load.emplace(server.port());
    std::this_thread::sleep_for(std::chrono::milliseconds(busy ? 200 : 0));
    ::kill(followers[1], SIGKILL);
    expect_end(server, followers, fmt::format("(process {}) ended: signal 9", followers[1]));
    if (load) load->expect_all_answered();
  }
}

TEST(Ranks, AFollowerThatStopsEndsTheServerAfterTheTimeout) {
  const OneThread model;
  Server server(model, "--tp-size 2 --dist-timeout 1");
  ASSERT_NE(server.port(), 0) << server.said();
  const auto followers = children_of(server.pid());
  ASSERT_EQ(followers.size(), 1u);
  ClientLoad load(server.port());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(followers[0], SIGSTOP);
  expect_end(server, followers, "--dist-timeout");
  EXPECT_TRUE(holds(server.said(), "rank 1")) << server.said();
  load.expect_all_answered();
}

// On cards steps are in flight when the rank is lost, or none is.
TEST(Ranks, ACardThatIsLostEndsTheServerWithItsName) {
  const OneThread model;
  for (const bool busy : {false, true}) {
    Server server(model, "--device ascend --ascend-runtime sim --dtype bfloat16 --tp-size 2 --dist-timeout 20");
    ASSERT_NE(server.port(), 0) << server.said();
    const auto followers = children_of(server.pid());
    ASSERT_EQ(followers.size(), 1u);
    std::optional<ClientLoad> load;
    if (busy) load.emplace(server.port());
    std::this_thread::sleep_for(std::chrono::milliseconds(busy ? 200 : 0));
    ::kill(followers[0], SIGKILL);
    expect_end(server, followers, fmt::format("rank 1 (process {}) ended: signal 9", followers[0]));
    if (load) load->expect_all_answered();
  }
}

// Others wait for it, and the counters name it. A stopped rank is slow for as long as it is stopped, so a machine that
// has other work, too, needs no more than a longer stop.
TEST(Ranks, ASlowRankIsWaitedForAndNamed) {
  const OneThread model;
  Server server(model, "--tp-size 2 --dist-timeout 20");
  ASSERT_NE(server.port(), 0) << server.said();
  const std::string answer = choices(server.port());
  const auto followers = children_of(server.pid());
  ASSERT_EQ(followers.size(), 1u);
  const auto waited = [&](int rank) {
    const std::string metrics = HttpClient(server.port()).get("/metrics").body;
    std::smatch found;
    const std::regex sample(fmt::format("reprise:rank_wait_seconds_total\\{{[^}}]*rank=\"{}\"\\}} ([0-9.e+-]+)", rank));
    return std::regex_search(metrics, found, sample) ? std::stod(found[1]) : -1.0;
  };
  bool named = false;
  for (std::chrono::milliseconds stop{250}; !named && stop <= std::chrono::seconds(8); stop *= 2) {
    const double front = waited(0), other = waited(1);
    ASSERT_GE(front, 0);
    ASSERT_GE(other, 0);
    ::kill(followers[0], SIGSTOP);
    EXPECT_TRUE(soon([&] { return state_of(followers[0]).starts_with('T'); }));
    auto late = std::async(std::launch::async, [&] { return choices(server.port()); });
    EXPECT_EQ(late.wait_for(stop), std::future_status::timeout) << "the front waits for the slow one";
    ::kill(followers[0], SIGCONT);
    EXPECT_EQ(late.get(), answer);
    named = waited(0) - front > waited(1) - other;
  }
  EXPECT_TRUE(named);
  EXPECT_EQ(HttpClient(server.port()).get("/health").status, 200);
}

// A replay that never ends on one rank alone, as a lost device's would.
TEST(Ranks, AStepThatHangsOnOneRankEndsTheServerWithItsName) {
  const OneThread model;
  Server server(model, "--tp-size 2 --dist-timeout 1 --inject-fault hang@3/1");
  ASSERT_NE(server.port(), 0) << server.said();
  const auto followers = children_of(server.pid());
  ASSERT_EQ(followers.size(), 1u);
  const std::string answer = choices(server.port());
  EXPECT_TRUE(answer.starts_with("503 ")) << answer;
  expect_end(server, followers, "--dist-timeout");
  EXPECT_TRUE(holds(server.said(), "rank 1")) << server.said();
}

TEST(Ranks, ProcessorsThatAreAskedForAreTaken) {
  const OneThread model;
  const std::string ids = fmt::format("generate {} --prompt-ids 1,2 --max-new-tokens 2 ", model.flags());
  const auto refused = [&](const std::string& flags, const std::string& why) {
    const Outcome o = run_binary(ids + flags);
    EXPECT_EQ(o.exit_code, 2) << o.err;
    EXPECT_TRUE(holds(o.err, why)) << o.err;
  };
  refused("--tp-size 2 --cpu-bind 0",
          "--cpu-bind 0: processors of 1 rank, and this host has 2; allowed: a list for each");
  refused("--tp-size 2 --numa-node 0", "--numa-node 0: allowed: a memory node for each rank of this host, 2 numbers");
  refused("--tp-size 2 --numa-node 0 0 x", "--numa-node 0,0,x: \"x\" is no number of a memory node");
  // vLLM's variable may be meant for vLLM.
  const Outcome other = run_binary(ids + "--tp-size 2", "VLLM_CPU_OMP_THREADS_BIND=0");
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_TRUE(holds(other.err, "VLLM_CPU_OMP_THREADS_BIND 0: processors of 1 rank, and this host has 2")) << other.err;
  const Outcome free = run_binary(ids + "--tp-size 2", "VLLM_CPU_OMP_THREADS_BIND=nobind");
  EXPECT_EQ(free.exit_code, 0) << free.err;
  EXPECT_FALSE(holds(free.err, "VLLM_CPU_OMP_THREADS_BIND")) << free.err;
  // A test may have been given one processor alone (support/one_processor.cpp); this one wants two.
  cpu_set_t before, every;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  std::memset(&every, 0xff, sizeof every);
  ASSERT_EQ(::sched_setaffinity(0, sizeof every, &every), 0);
  const std::vector<int> mine = cpu::ThreadPool::allowed_processors();
  if (mine.size() < 2) GTEST_SKIP() << "one processor";
  const Server server(model, fmt::format("--tp-size 2 --cpu-bind \"{}|{}\"", mine.front(), mine.back()));
  ASSERT_NE(server.port(), 0) << server.said();
  const auto followers = children_of(server.pid());
  ASSERT_EQ(followers.size(), 1u);
  for (const auto& [process, processor] : {std::pair{server.pid(), mine.front()}, {followers[0], mine.back()}}) {
    cpu_set_t set;
    ASSERT_EQ(::sched_getaffinity(process, sizeof set, &set), 0);
    EXPECT_EQ(CPU_COUNT(&set), 1) << process;
    EXPECT_TRUE(CPU_ISSET(processor, &set)) << process;
  }
  ::sched_setaffinity(0, sizeof before, &before);
}

TEST(Ranks, FollowersEndWithTheirFront) {
  const OneThread model;
  Server server(model, "--tp-size 4");
  ASSERT_NE(server.port(), 0) << server.said();
  const auto followers = children_of(server.pid());
  ASSERT_EQ(followers.size(), 3u);
  ::kill(server.pid(), SIGKILL);
  for (const pid_t f : followers) EXPECT_TRUE(soon([&] { return is_gone(f); })) << f;
}

}  // namespace
}  // namespace reprise::apps::ranks_test
