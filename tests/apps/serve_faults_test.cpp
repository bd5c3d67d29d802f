// `reprise serve` under abuse: hostile bodies, forms and clients, and an end in the middle of it. Afterwards it has
// what it had before: pages, descriptors, memory, and its answers.
#include <sys/wait.h>

#include <optional>

#include "apps/serving.h"
#include "base/sanitizer.h"
#include "support/http_client.h"

namespace reprise::apps::serve_faults_test {
namespace {

using testing_support::HttpAnswer;
using testing_support::HttpClient;

// What freed memory may still count as the process's: sanitizers keep it to see late accesses.
#if REPRISE_ASAN
constexpr int64_t kKeptMib = 600;
#else
constexpr int64_t kKeptMib = 0;
#endif

// A server, and what it holds and answers.
class ServeFaults : public testing::Test {
 protected:
  void start(const std::string& flags = "") {
    server_.emplace(model_, flags);
    ASSERT_NE(server_->port(), 0) << server_->said();
    want_ = greedy();
    ASSERT_FALSE(want_.empty());
  }

  int64_t resident_mib() const { return server_->resident_bytes() >> 20; }
  double metric(const std::string& name) const {
    HttpClient c(server_->port());
    const std::string text = "\n" + c.get("/metrics").body;
    const size_t at = text.find("\n" + name + "{");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + text.find("} ", at) + 2);
  }
  // Nothing runs or waits, and every page is free or could be.
  bool at_rest() const {
    return metric("vllm:num_requests_running") == 0 && metric("vllm:num_requests_waiting") == 0 &&
           metric("reprise:kv_pages_free") + metric("reprise:kv_pages_evictable") == metric("reprise:kv_pages");
  }
  std::string greedy() const {
    HttpClient c(server_->port());
    const HttpAnswer a = c.post("/v1/completions", R"({"prompt": "once upon", "max_tokens": 20, "temperature": 0})");
    return a.status == 200 ? OrderedJson::parse(a.body)["choices"].dump() : "";
  }

  const Model model_;
  std::optional<Server> server_;
  std::string want_;  // what greedy() gave at first
};

std::string repeated(const std::string& text, int times) {
  std::string out;
  out.reserve(text.size() * static_cast<size_t>(times));
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::string completion(const OrderedJson& more) {
  OrderedJson body = {{"prompt", "x"}, {"max_tokens", 4}};
  body.update(more);
  return body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

const char* const kPosts[] = {"/v1/completions", "/v1/chat/completions", "/generate",      "/tokenize",
                              "/detokenize",     "/v1/embeddings",       "/abort_request", "/start_profile"};

std::vector<std::string> hostile_bodies() {
  std::vector<std::string> out = {repeated("[", 100000),
                                  repeated("{\"a\":", 100000),
                                  "{\"prompt\": " + repeated("[", 100000) + repeated("]", 100000) + "}",
                                  "",
                                  "null",
                                  "[]",
                                  "\"x\"",
                                  "{",
                                  "{\"prompt\": \"\xff\xfe\xc0\x80\", \"messages\": [{\"role\": \"user\", \"content\": "
                                  "\"\xed\xa0\x80\"}], \"text\": \"\xf8\"}",
                                  "{\"prompt\": \"\\ud800\", \"text\": \"\\udc00\"}",
                                  std::string("{\"prompt\": \"a\0b", 14),
                                  "{\"prompt\": 1e999, \"text\": -1e999, \"rid\": 1e999, \"tokens\": [1e999]}"};
  const auto hostile = [&](const OrderedJson& more) { out.push_back(completion(more)); };
  for (const OrderedJson& n : {OrderedJson(int64_t{1} << 62), OrderedJson(1000000), OrderedJson(-1), OrderedJson(1e300),
                               OrderedJson("9"), OrderedJson(UINT64_MAX)}) {
    hostile({{"n", n}, {"best_of", n}});
    hostile({{"top_k", n}, {"logprobs", n}, {"seed", n}});
    out.push_back(OrderedJson{{"text", "x"}, {"sampling_params", {{"n", n}}}, {"top_logprobs_num", n}}.dump());
  }
  hostile({{"prompt", std::vector<std::string>(100000, "x")}});
  hostile({{"prompt", std::vector<int>(1000000, 1)}});
  hostile({{"stop", std::vector<std::string>(100000, "x")}});
  hostile({{"stop_token_ids", std::vector<int>(100000, 1)}});
  OrderedJson bias = OrderedJson::object();
  for (int i = 0; i < 20000; ++i) bias[std::to_string(i)] = 1;
  hostile({{"logit_bias", bias}});
  out.push_back(
      OrderedJson{{"messages", std::vector<OrderedJson>(20000, {{"role", "user"}, {"content", "x"}})}}.dump());
  out.push_back(OrderedJson{{"messages", {{{"role", "user"}, {"content", "x"}}}},
                            {"tools", std::vector<OrderedJson>(10000, {{"type", "function"}})}}
                    .dump());
  return out;
}

std::vector<std::string> hostile_forms() {
  std::vector<std::string> out;
  for (const std::string& regex :
       {std::string("(a*)*b"), std::string("((((a?)*)*)*)*b"), repeated("(", 20000),
        repeated("(", 300) + "a" + repeated(")*", 300), repeated("(a*)*", 400) + "b",
        std::string("((a{1,50}){1,50}){1,50}"), std::string("(a|b|ab)*c{0,1000}"), repeated("(a|b)*a(a|b){9}", 3),
        repeated("x?", 3000) + repeated("x", 3000), std::string("a{0,1000000000}"),
        std::string("[^\\x00-\\x7f]{0,500}.*é"), repeated(".*a", 200), repeated("a|", 50000) + "b"})
    out.push_back(completion({{"regex", regex}}));
  OrderedJson texts = OrderedJson::array(), constants = OrderedJson::array();
  for (int i = 0; i < 100000; ++i) {
    texts.push_back(fmt::format("text {}", i * 7919));
    constants.push_back({{"const", i}});
  }
  const auto schema = [&](const OrderedJson& s) { out.push_back(completion({{"json_schema", s}})); };
  out.push_back(completion({{"structured_outputs", {{"choice", texts}}}}));
  schema({{"enum", texts}});
  schema({{"anyOf", constants}});
  schema({{"type", "string"}, {"maxLength", int64_t{1} << 40}});
  schema({{"type", "array"}, {"items", {{"type", "string"}}}, {"minItems", 1000000000}});
  schema({{"$ref", "#"}});
  schema({{"$defs",
           {{"a", {{"anyOf", {{{"$ref", "#/$defs/b"}}, {{"$ref", "#/$defs/a"}}}}}}, {"b", {{"$ref", "#/$defs/a"}}}}},
          {"$ref", "#/$defs/a"}});
  OrderedJson wide = {{"type", "object"}, {"properties", OrderedJson::object()}, {"additionalProperties", false}};
  for (int i = 0; i < 5000; ++i) wide["properties"][fmt::format("p{}", i)] = {{"type", "integer"}};
  schema(wide);
  OrderedJson deep = {{"type", "integer"}};
  for (int i = 0; i < 60; ++i)
    deep = {{"type", "object"}, {"properties", {{"a", deep}, {"b", deep.size() > 50 ? deep : OrderedJson(true)}}}};
  schema(deep);
  OrderedJson both = {{"type", "integer"}};
  for (int i = 0; i < 24; ++i) both = {{"allOf", {both, {{"minimum", i}}}}};
  schema(both);
  schema({{"type", "number"}, {"minimum", -1e300}, {"maximum", 1e300}});
  schema({{"type", "integer"}, {"minimum", INT64_MIN}, {"maximum", INT64_MAX}, {"multipleOf", 999983}});
  return out;
}

TEST_F(ServeFaults, HostileBodiesAreRefusedAndCostNothing) {
  ASSERT_NO_FATAL_FAILURE(start());
  const auto bodies = hostile_bodies();
  const auto round = [&] {
    for (const char* route : kPosts)
      for (const std::string& body : bodies) {
        HttpClient c(server_->port());
        const HttpAnswer a = c.post(route, body);
        EXPECT_TRUE(a.status == 200 || (a.status >= 400 && a.status < 500 && a.status != 404))
            << a.status << " " << route << " " << body.substr(0, 200) << "\n"
            << a.body << server_->said();
        EXPECT_TRUE(OrderedJson::accept(a.body)) << a.body;
      }
    EXPECT_TRUE(soon([&] { return at_rest(); }));
  };
  round();
  const int64_t descriptors = server_->descriptors();
  const int64_t memory = resident_mib();
  round();
  EXPECT_LE(server_->descriptors(), descriptors + 2);
  EXPECT_LE(resident_mib(), memory + 32 + kKeptMib);
  EXPECT_EQ(greedy(), want_);
}

TEST_F(ServeFaults, HugeBodiesAreCutOff) {
  ASSERT_NO_FATAL_FAILURE(start());
  const int64_t memory = resident_mib();
  constexpr size_t kHuge = 100 << 20, kPiece = 1 << 20;
  for (const bool chunked : {false, true}) {
    HttpClient c(server_->port());
    c.send(chunked
               ? "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
               : fmt::format("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", kHuge));
    const std::string piece =
        chunked ? fmt::format("{:x}\r\n{}\r\n", kPiece, std::string(kPiece, 'x')) : std::string(kPiece, 'x');
    size_t sent = 0;
    while (sent < kHuge && c.send(piece)) sent += kPiece;
    EXPECT_LT(sent, kHuge) << "the server took all of it";
  }
  EXPECT_LE(resident_mib(), memory + 64 + kKeptMib);
  EXPECT_EQ(greedy(), want_);
}

TEST_F(ServeFaults, HostileFormsAreBoundedInTimeAndMemory) {
  ASSERT_NO_FATAL_FAILURE(start());
  const auto forms = hostile_forms();
  int64_t memory = 0, taken = 0, refused = 0;
  for (int round = 0; round < 2; ++round) {
    for (const std::string& body : forms) {
      HttpClient c(server_->port(), 60);
      const auto begin = std::chrono::steady_clock::now();
      const HttpAnswer a = c.post("/v1/completions", body);
      const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      EXPECT_TRUE(a.status == 200 || a.status == 400) << a.status << " " << body.substr(0, 200) << "\n" << a.body;
      EXPECT_LT(took, 30) << body.substr(0, 200);
      ++(a.status == 200 ? taken : refused);
    }
    EXPECT_TRUE(soon([&] { return at_rest(); }));
    if (round == 0) memory = resident_mib();
  }
  // Some of them are only unusual, and some are too much; a server that compiles no form would refuse them all.
  EXPECT_GE(taken, 10);
  EXPECT_GE(refused, 10);
  EXPECT_LE(resident_mib(), memory + 64 + kKeptMib);
  EXPECT_EQ(greedy(), want_);
}

TEST_F(ServeFaults, ClientsThatAreKilledLeaveNothing) {
  ASSERT_NO_FATAL_FAILURE(start());
  const int64_t descriptors = server_->descriptors();
  const std::string body =
      OrderedJson{{"prompt", "abc"}, {"max_tokens", 480}, {"ignore_eos", true}, {"stream", true}, {"n", 2}}.dump();
  for (int round = 0; round < 4; ++round) {
    std::vector<pid_t> clients;
    for (int i = 0; i < 8; ++i) {
      const pid_t pid = ::fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        HttpClient c(server_->port());
        c.send(fmt::format("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}",
                           body.size(), body));
        c.receive();
        if (i % 2 == 0)
          while (!c.receive().empty()) continue;  // the others read nothing more
        ::pause();
      }
      clients.push_back(pid);
    }
    EXPECT_TRUE(soon([&] { return metric("vllm:num_requests_running") > 0; }));
    for (const pid_t pid : clients) ::kill(pid, SIGKILL);
    for (const pid_t pid : clients) ::waitpid(pid, nullptr, 0);
    EXPECT_TRUE(soon([&] { return at_rest(); })) << server_->said();
  }
  EXPECT_TRUE(soon([&] { return server_->descriptors() <= descriptors + 1; })) << server_->descriptors();
  EXPECT_EQ(greedy(), want_);
}

TEST_F(ServeFaults, ATermSignalUnderLoadEndsEveryAnswerProperly) {
  ASSERT_NO_FATAL_FAILURE(start("--shutdown-timeout 1 --max-running-requests 4"));
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 60; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server_->port()));
    const std::string body = OrderedJson{
        {"prompt", fmt::format("{} abc", i)},
        {"max_tokens", 480},
        {"ignore_eos", true},
        {"stream", i % 3 != 0}}.dump();
    clients.back()->send(fmt::format("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{}",
                                     body.size(), body));
  }
  EXPECT_TRUE(soon([&] { return metric("vllm:num_requests_running") > 0; }));
  server_->signal(SIGTERM);
  for (size_t i = 0; i < clients.size(); ++i) {
    const HttpAnswer a = clients[i]->read();
    EXPECT_TRUE(a.complete) << i << ": status " << a.status << "\n" << server_->said();
    if (i % 3 != 0 && a.status == 200)
      EXPECT_TRUE(a.body.ends_with("data: [DONE]\n\n"))
          << a.body.substr(a.body.size() - std::min<size_t>(a.body.size(), 200));
    else
      EXPECT_TRUE(OrderedJson::accept(a.body)) << a.body;
  }
  EXPECT_EQ(server_->wait(), 0) << server_->said();
}

}  // namespace
}  // namespace reprise::apps::serve_faults_test
