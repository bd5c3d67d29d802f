// Profiles: what is recorded, what the file says, and what happens when there is no room for it.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "server/api_fixture.h"

namespace reprise::server::profile_test {
namespace {

namespace fs = std::filesystem;

class ProfileTest : public ApiTest {
 protected:
  ProfileTest() {
    static int count = 0;
    folder_ = fs::path(testing::TempDir()) / fmt::format("reprise_profile_{}_{}", ::getpid(), count++);
    fs::create_directories(folder_);
    profile_dir_ = folder_.string();
  }
  ~ProfileTest() override { fs::remove_all(folder_); }

  Json read(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return Json::parse(text.str());
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

struct Span {
  std::string name;
  double begin = 0, end = 0;
  Json args;
};
// The spans of each track: {group, track} -> spans.
std::map<std::pair<int, uint64_t>, std::vector<Span>> spans_of(const Json& trace) {
  std::map<std::pair<int, uint64_t>, std::vector<Span>> out;
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const double begin = e["ts"], length = e["dur"];
    EXPECT_GE(begin, 0);
    EXPECT_GE(length, 0);
    out[{e["pid"], e["tid"]}].push_back({e["name"], begin, begin + length, e["args"]});
  }
  return out;
}
// Viewers draw spans of one track as a tree: two either nest or lie apart. Times are written to a nanosecond.
void expect_nested(const std::vector<Span>& track) {
  constexpr double kRounding = 0.0021;
  for (const Span& a : track)
    for (const Span& b : track) {
      const bool apart = a.end <= b.begin + kRounding || b.end <= a.begin + kRounding;
      const bool inside = (a.begin <= b.begin + kRounding && b.end <= a.end + kRounding) ||
                          (b.begin <= a.begin + kRounding && a.end <= b.end + kRounding);
      EXPECT_TRUE(apart || inside) << a.name << " " << a.begin << ".." << a.end << " and " << b.name << " " << b.begin
                                   << ".." << b.end;
    }
}
int64_t sum_of(const std::vector<Span>& track, const std::string& name, const char* arg) {
  int64_t sum = 0;
  for (const Span& s : track)
    if (s.name == name) sum += s.args[arg].get<int64_t>();
  return sum;
}

TEST_F(ProfileTest, TellsOfStepsAndRequests) {
  start();
  EXPECT_EQ(post("/start_profile", Json::object())["success"], true);
  EXPECT_EQ(post("/start_profile", Json::object(), 409)["error"]["message"],
            "a profile is running; /stop_profile ends it");
  Json body = ids_call(sched::count_up(150), 12);
  body["n"] = 3;
  const Json answer = post("/v1/completions", body);
  post("/v1/completions", ids_call(sched::count_up(9, 4), 5));
  const Json stopped = post("/stop_profile", Json::object());
  const Json trace = read(stopped["file"]);
  EXPECT_EQ(trace["otherData"]["dropped_spans"], 0);

  int64_t taking_part = 0, parts = 0, requests = 0;
  for (const auto& [track, spans] : spans_of(trace)) {
    expect_nested(spans);
    if (track.first == 1) {
      taking_part += sum_of(spans, "step", "sequences");
      continue;
    }
    const auto whole = std::find_if(spans.begin(), spans.end(), [](const Span& s) { return s.name == "request"; });
    ASSERT_NE(whole, spans.end());
    ++requests;
    const int64_t prompt = whole->args["prompt_tokens"], cached = whole->args["cached_tokens"];
    EXPECT_EQ(sum_of(spans, "prefill", "tokens"), prompt - cached);
    // The first token comes with the last piece of the prompt.
    EXPECT_EQ(sum_of(spans, "decode", "tokens"), whole->args["completion_tokens"].get<int64_t>() - 1);
    EXPECT_EQ(std::count_if(spans.begin(), spans.end(), [](const Span& s) { return s.name == "queued"; }), 1);
    for (const Span& s : spans) {
      parts += s.name == "prefill" || s.name == "decode";
      EXPECT_GE(s.begin, whole->begin - 0.0021);
      EXPECT_LE(s.end, whole->end + 0.0021);
    }
  }
  EXPECT_EQ(requests, 4);
  EXPECT_EQ(parts, taking_part);
  std::map<std::string, int> marks;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "i" || e["name"] == "thread_name") ++marks[e["ph"] == "i" ? e["name"] : e["args"]["name"]];
  EXPECT_EQ(marks["finish"], 4);
  EXPECT_EQ(marks["first token"], 4);
  EXPECT_EQ(marks[answer["id"]], 3) << "tracks have the names that clients know";
  EXPECT_EQ(files(), 1u);
}

TEST_F(ProfileTest, EndsByItselfAfterItsSteps) {
  start();
  post("/start_profile", {{"num_steps", 5}, {"activities", {"CPU"}}});
  post("/v1/completions", ids_call(sched::count_up(10), 30));
  EXPECT_TRUE(soon([&] { return files() == 1; }));
  const Json trace = read(post("/stop_profile", Json::object())["file"]);
  EXPECT_EQ(trace["otherData"]["dropped_spans"], 0);
  const auto all = spans_of(trace);
  const auto& steps = all.at({1, 1});
  EXPECT_EQ(std::count_if(steps.begin(), steps.end(), [](const Span& s) { return s.name == "step"; }), 5);
  // The next one is a new file.
  post("/start_profile", Json::object());
  post("/stop_profile", Json::object());
  EXPECT_EQ(files(), 2u);
}

TEST_F(ProfileTest, RequestsChooseNoPathAndMistakesAreNamed) {
  start();
  EXPECT_EQ(post("/start_profile", {{"output_dir", "/tmp"}}, 400)["error"]["param"], "output_dir");
  EXPECT_EQ(post("/start_profile", {{"num_steps", -1}}, 400)["error"]["param"], "num_steps");
  EXPECT_EQ(post("/stop_profile", Json::object(), 400)["error"]["message"],
            "no profile is running; /start_profile starts one");
  HttpClient c(http_->port());
  EXPECT_EQ(c.post("/start_profile", "").status, 200) << "a body is not needed";
  EXPECT_EQ(c.post("/stop_profile", "").status, 200);
}

TEST_F(ProfileTest, WithoutAFolderThereAreNone) {
  profile_dir_ = "";
  start();
  EXPECT_NE(post("/start_profile", Json::object(), 400)["error"]["message"].get<std::string>().find("--profile-dir"),
            std::string::npos);
}

TEST_F(ProfileTest, AFullDiskIsSaidAndHarmsNobody) {
  start();
  const Json want = post("/v1/completions", ids_call({2, 3}, 8))["choices"];
  post("/start_profile", Json::object());
  post("/v1/completions", ids_call(sched::count_up(60), 40));
  // No file of this process may grow beyond this.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Json failed = post("/stop_profile", Json::object(), 500);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old);
  EXPECT_NE(failed["error"]["message"].get<std::string>().find("File too large"), std::string::npos) << failed;
  EXPECT_EQ(files(), 0u) << "nothing half written is left";
  EXPECT_EQ(post("/v1/completions", ids_call({2, 3}, 8))["choices"], want);
  // There is room again.
  post("/start_profile", Json::object());
  EXPECT_TRUE(read(post("/stop_profile", Json::object())["file"]).is_object());
  // The folder goes away meanwhile.
  post("/start_profile", Json::object());
  fs::remove_all(folder_);
  post("/stop_profile", Json::object(), 500);
  post("/start_profile", Json::object(), 400);
}

TEST_F(ProfileTest, WhatRunsAtTheEndIsWritten) {
  start();
  post("/start_profile", Json::object());
  post("/v1/completions", ids_call({2, 3}, 8));
  profiler_.reset();
  ASSERT_EQ(files(), 1u);
  EXPECT_FALSE(spans_of(read(fs::directory_iterator(folder_)->path().filename())).empty());
}

TEST(SpanTrace, NamesTheGraphsOfAStepAndKeepsTheNewest) {
  GraphNumbers numbers;
  numbers.phases = {{"decode", "whole", {{8, 5}}, {}, 0}, {"prefill", "piecewise", {}, {{"too \"large\"", 1}}, 0}};
  SpanTrace trace([&] { return numbers; }, {4, 1});
  trace.start(0, {});
  sched::StepRecord step;
  for (int i = 0; i < 4; ++i) {
    step.begin = step.end = sched::Clock::now();
    step.sequences = i;
    trace.stepped(step);
  }
  ++numbers.phases[0].replays[8];
  ++numbers.phases[1].fallbacks["too \"large\""];
  const sched::StepPart part{7, 3, true};
  step.parts = {&part, 1};
  trace.stepped(step);
  sched::RequestResult result;
  result.arrived = result.finished = sched::Clock::now();
  for (uint64_t id : {1, 2}) {
    result.id = id;
    sched::Request request;
    request.name = fmt::format("name \"{}\"\n", id);
    trace.finished(request, result);
  }
  const Json out = Json::parse(trace.take());
  EXPECT_FALSE(trace.recording());
  EXPECT_EQ(out["otherData"]["dropped_spans"], 3);  // two of five steps and a part, one of two requests
  const auto all = spans_of(out);
  std::vector<std::string> graphs;
  for (const Span& s : all.at({1, 1}))
    if (s.name == "step") graphs.push_back(s.args.value("graphs", ""));
  EXPECT_EQ(graphs, (std::vector<std::string>{"", "", "decode whole 8, prefill eager (too \"large\")"}));
  EXPECT_TRUE(all.contains({2, 7}) && all.contains({2, 2}) && !all.contains({2, 1}));
}

TEST(SpanTrace, EndsBehindAStepWhoseRequestsAreBeingTold) {
  SpanTrace trace([] { return GraphNumbers(); });
  trace.start(0, {});
  trace.completing();
  std::string text;
  std::thread taker([&] { text = trace.take(); });
  // Time enough for a take() that does not wait to end without the step.
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const sched::StepPart part{7, 3, true};
  sched::StepRecord step;
  step.begin = step.end = sched::Clock::now();
  step.parts = {&part, 1};
  trace.stepped(step);
  taker.join();
  EXPECT_TRUE(spans_of(Json::parse(text)).contains({2, 7}));
}

}  // namespace
}  // namespace reprise::server::profile_test
