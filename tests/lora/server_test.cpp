// LoRA adapters over HTTP: chosen by `model` or lora_path, listed, loaded and unloaded while requests use them.
#include <gtest/gtest.h>

#include <future>

#include "server/api_fixture.h"
#include "support/adapter_memory.h"

namespace reprise::server::lora_test {
namespace {

using testing_support::AdapterMemory;

class LoraApiTest : public ApiTest {
 protected:
  void start_with_slots(FakeExecutor::Limits limits = {8, 64, 60, 1000}) {
    adapters_ = std::make_unique<sched::AdapterTable>(memory_.slots());
    workers_ = std::make_unique<WorkPool>(1, 8);
    start({}, {}, limits);
  }
  void TearDown() override {
    ApiTest::TearDown();
    workers_.reset();
  }
  Json load(const std::string& name, const std::string& folder, int status = 200) {
    return post("/load_lora_adapter", {{"lora_name", name}, {"lora_path", AdapterMemory::folder(folder)}}, status);
  }
  Json ask(const std::string& model, int status = 200) {
    Json body = ids_call({2, 3}, 2);
    body["model"] = model;
    return post("/v1/completions", body, status);
  }
  std::string get(const std::string& path) {
    HttpClient c(http_->port());
    return c.get(path).body;
  }

  AdapterMemory memory_{2};
};

TEST_F(LoraApiTest, IsChosenByModelAndByLoraPath) {
  start_with_slots();
  EXPECT_EQ(load("style", "style")["loaded_adapters"], (Json{{"style", AdapterMemory::folder("style")}}));
  HttpClient c(http_->port());
  const Json wish{{"lora_name", "tone"}, {"lora_path", AdapterMemory::folder("tone")}};
  const HttpAnswer vllm = c.post("/v1/load_lora_adapter", wish.dump());
  EXPECT_EQ(vllm.status, 200);
  EXPECT_EQ(vllm.body, "Success: LoRA adapter 'tone' added successfully.");

  EXPECT_EQ(ask("fake")["model"], "fake");
  EXPECT_EQ(ask("tone")["model"], "tone");
  EXPECT_EQ(ask("fake:tone")["model"], "tone");
  Json by_path = ids_call({2, 3}, 2);
  by_path["lora_path"] = "style";
  EXPECT_EQ(post("/v1/completions", by_path)["model"], "style");
  by_path["model"] = "tone";
  post("/v1/completions", by_path, 400);
  const Json native{{"input_ids", {{2, 3}, {4}}}, {"sampling_params", {{"max_new_tokens", 1}}}};
  for (const auto& [path, status] : std::vector<std::pair<Json, int>>{
           {"style", 200}, {{"style", "style"}, 200}, {{"style", "tone"}, 400}, {3, 400}, {"none", 404}}) {
    Json body = native;
    body["lora_path"] = path;
    post("/generate", body, status);
  }
  const Json refused = ask("other", 404);
  EXPECT_EQ(refused["error"]["message"],
            "the model \"other\" is not served here; there is \"fake\", \"style\", \"tone\"");

  const Json models = Json::parse(get("/v1/models"))["data"];
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0]["parent"], nullptr);
  EXPECT_EQ(models[1]["id"], "style");
  EXPECT_EQ(models[1]["parent"], "fake");
  EXPECT_EQ(models[1]["root"], AdapterMemory::folder("style"));
  EXPECT_EQ(Json::parse(get("/v1/models/tone"))["id"], "tone");
  const std::string metrics = get("/metrics");
  EXPECT_NE(metrics.find("reprise:lora_slots{model_name=\"fake\"} 2"), std::string::npos);
  EXPECT_NE(metrics.find("lora_name=\"tone\"} 2"), std::string::npos) << metrics.substr(metrics.find("lora_req"));
}

TEST_F(LoraApiTest, WhatCannotBeLoadedIsRefused) {
  start_with_slots();
  load("style", "style");
  EXPECT_NE(load("style", "tone", 400)["error"]["message"].get<std::string>().find("is loaded already"),
            std::string::npos);
  load("fake", "tone", 400);
  load("missing", "missing", 404);
  load("tone", "tone");
  EXPECT_NE(load("more", "style", 409)["error"]["message"].get<std::string>().find("`max_loras`"), std::string::npos);
  post("/v1/load_lora_adapter", {{"lora_name", "x"}}, 400);
  post("/v1/unload_lora_adapter", {{"lora_name", "x"}}, 404);
  post("/unload_lora_adapter", {{"lora_name", "tone"}});
  load("more", "style");
}

TEST_F(LoraApiTest, ServersWithoutSlotsSayHowToGetSome) {
  start();
  EXPECT_NE(load("style", "style", 400)["error"]["message"].get<std::string>().find("--enable-lora"),
            std::string::npos);
  post("/unload_lora_adapter", {{"lora_name", "style"}}, 400);
  Json body = ids_call({2, 3}, 2);
  body["lora_path"] = "style";
  post("/v1/completions", body, 404);
}

TEST_F(LoraApiTest, AnAdapterInUseGoesWhenItsRequestsHaveEnded) {
  start_with_slots();
  load("a", "style");
  load("b", "tone");
  std::promise<void> gate;
  executor_->during_step = [opened = gate.get_future().share()] { opened.wait(); };
  std::thread client([&] { EXPECT_EQ(ask("b")["model"], "b"); });
  ASSERT_TRUE(soon([&] { return scheduler_->stats().requests == 1; }));
  post("/unload_lora_adapter", {{"lora_name", "b"}});
  ask("b", 404);
  gate.set_value();
  client.join();
  // The last holder of the call goes on the HTTP thread, a little later.
  ASSERT_TRUE(soon([&] {
    HttpClient c(http_->port());
    const Json wish{{"lora_name", "c"}, {"lora_path", AdapterMemory::folder("style")}};
    return c.post("/load_lora_adapter", wish.dump()).status == 200;
  }));
}

}  // namespace
}  // namespace reprise::server::lora_test
