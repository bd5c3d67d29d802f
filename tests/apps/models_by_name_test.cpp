// `reprise pull org/name`, `--model-path org/name` and `reprise models`, against a stand-in for a hub.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "checkpoint/helpers.h"
#include "run_binary.h"
#include "support/hub_server.h"

namespace reprise::apps::models_by_name_test {
namespace {

using testing_support::HubReply;
using testing_support::HubRequest;
using testing_support::HubServer;

bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

void keep_model(HubServer& server, const std::string& repo, const std::string& name) {
  auto& files = server.repos[repo].files;
  for (const auto& entry : std::filesystem::directory_iterator(model_folder(name)))
    if (const std::string file = entry.path().filename(); file != "golden.safetensors")
      files[file] = content_of(entry.path());
}

class ModelsByName : public testing::Test {
 protected:
  ModelsByName() {
    keep_model(server, "tiny/llama", "llama_mha_untied");
    keep_model(server, "tiny/sharded", "llama_gqa4_sharded");
  }
  // Nothing of the machine's own settings, caches and proxies.
  std::string before(const std::string& more = "") const {
    return "env -i PATH=\"$PATH\" no_proxy='*' HOME=" + home.path() + " HF_ENDPOINT=" + server.url() + " " + more;
  }
  Outcome run(const std::string& arguments, const std::string& more = "") const {
    return run_binary(arguments, before(more));
  }
  std::string hub() const { return home / ".cache/huggingface/hub"; }

  const std::string ids = " --prompt-ids 1,2,3 --max-new-tokens 4 --threads 1";
  Folder home;
  HubServer server;
};

TEST_F(ModelsByName, AreFetchedAndRun) {
  for (const std::string name : {"llama", "sharded"}) {
    const std::string local = model_folder(name == "llama" ? "llama_mha_untied" : "llama_gqa4_sharded");
    const Outcome by_path = run("generate --model-path " + local + ids);
    ASSERT_EQ(by_path.exit_code, 0) << by_path.err;
    const Outcome first = run("generate --model-path tiny/" + name + ids);
    EXPECT_EQ(first.exit_code, 0) << first.err;
    EXPECT_EQ(first.out, by_path.out);
    EXPECT_TRUE(says(first.err, "fetching tiny/" + name + ": ")) << first.err;
    EXPECT_TRUE(
        says(first.err, "from " + server.url() + " (HF_ENDPOINT) into " + hub() + " (HF_HUB_OFFLINE=1 forbids it)"))
        << first.err;
    const size_t asked = server.requests().size();
    const Outcome second = run("generate --model-path tiny/" + name + ids);
    EXPECT_EQ(second.out, by_path.out);
    EXPECT_FALSE(says(second.err, "fetching")) << second.err;
    EXPECT_EQ(server.requests().size(), asked) << "what is there is used without asking";
  }
}

TEST_F(ModelsByName, OfGgufFilesOneIsRun) {
  const std::string file = std::string(REPRISE_SOURCE_DIR) + "/tests/data/gguf/qwen3_moe_norm.gguf";
  server.repos["tiny/moe-GGUF"].files = {{"moe-Q4_K_M.gguf", "no model"}, {"moe-F16.gguf", content_of(file)}};
  const Outcome by_path = run("generate --model-path " + file + ids);
  ASSERT_EQ(by_path.exit_code, 0) << by_path.err;
  const Outcome by_tag = run("generate --model-path tiny/moe-GGUF:f16" + ids);
  EXPECT_EQ(by_tag.out, by_path.out) << by_tag.err;
  EXPECT_EQ(server.asked("moe-Q4_K_M.gguf"), 0);
  // By rule it would be the other one; alone on disk, it is the model.
  const Outcome kept = run("generate --model-path tiny/moe-GGUF" + ids, "HF_HUB_OFFLINE=1");
  EXPECT_EQ(kept.out, by_path.out) << kept.err;
  EXPECT_TRUE(says(kept.err, "tiny/moe-GGUF: moe-F16.gguf (the only GGUF file); tiny/moe-GGUF:FILE chooses another"));
}

TEST_F(ModelsByName, PullSaysWhereItIs) {
  const Outcome o = run("pull tiny/llama");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  const std::string path = hub() + "/models--tiny--llama/snapshots/" + server.repos["tiny/llama"].commit;
  EXPECT_TRUE(says(o.err, "tiny/llama is stored: " + path + " (2 files, 279 kB)")) << o.err;
  EXPECT_TRUE(says(run("pull tiny/llama").err, "tiny/llama is there already: " + path));
  EXPECT_EQ(run("pull tiny/llama --download-dir " + (home / "other")).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(home / "other/models--tiny--llama/refs/main"));
  EXPECT_TRUE(says(run("pull tiny/llama --revision v3").err, "has no revision \"v3\" of tiny/llama"));
  const Outcome offline = run("pull tiny/sharded", "HF_HUB_OFFLINE=1");
  EXPECT_EQ(offline.exit_code, 1);
  EXPECT_TRUE(says(offline.err, "error: HF_HUB_OFFLINE=1 forbids to fetch tiny/sharded")) << offline.err;
}

TEST_F(ModelsByName, ErrorsAreOneLineWithTheNextStep) {
  const std::vector<std::tuple<std::string, int, std::string>> cases{
      {"pull gpt2", 2,
       "model \"gpt2\" is not known; allowed: smollm2, minilm, or org/name[@revision][:file] as on a hub"},
      {"pull a/b/c", 2, "expected org/name[@revision][:file], for example Qwen/Qwen3-0.6B"},
      {"pull 'a/b:../c'", 2, "without \"..\" and not absolute"},
      {"pull a/b@v1 --revision v2", 2, "--revision v2 contradicts a/b@v1"},
      {"generate --prompt-ids 1 --model-path 'a/b@../x'", 2, "revision \"../x\": expected a branch, tag or commit"},
      {"generate --prompt-ids 1 --model-path tiny/none", 1,
       " has no model tiny/none (404); check the spelling, or name another hub by REPRISE_HUB or HF_ENDPOINT; nor is "
       "there a file or folder tiny/none here"},
      {"generate --prompt-ids 1 --model-path tiny/llama:Q4_0", 1, "has no GGUF file, and so no \"Q4_0\""},
      {"generate --prompt-ids 1 --model-path tiny/model.gguf", 1, "tiny/model.gguf: No such file"},
  };
  for (const auto& [arguments, code, part] : cases) {
    SCOPED_TRACE(arguments);
    const Outcome o = run(arguments);
    EXPECT_EQ(o.exit_code, code) << o.err;
    EXPECT_EQ(o.err.rfind("error: ", 0), 0u) << o.err;
    EXPECT_EQ(o.err.find('\n'), o.err.size() - 1) << o.err;
    EXPECT_TRUE(says(o.err, part)) << o.err;
  }
  EXPECT_TRUE(says(run("pull tiny/llama", "REPRISE_HUB=github").err, "REPRISE_HUB=github: not known; allowed: "));
  const Outcome offline = run("generate --prompt-ids 1 --model-path tiny/llama", "HF_HUB_OFFLINE=1");
  EXPECT_EQ(offline.exit_code, 1);
  EXPECT_TRUE(says(offline.err, "tiny/llama is not in " + hub() + ", and HF_HUB_OFFLINE=1 forbids to fetch it"));
}

TEST_F(ModelsByName, APathOnDiskComesFirst) {
  std::filesystem::create_directories(home / "tiny");
  std::filesystem::copy(model_folder("llama_mha_untied"), home / "tiny/llama");
  const Outcome o = run("generate --model-path tiny/llama --revision v9" + ids,
                        "sh -c 'cd " + home.path() + " && exec \"$0\" \"$@\"'");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(says(o.err, "notice: --revision v9: the model is read from this machine, as it is there")) << o.err;
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(ModelsByName, CtrlCLeavesWhatArrived) {
  // Half of the file comes; asked for the rest, the server sends nothing until the signal has come.
  std::atomic<int> asked{0};
  std::atomic<bool> interrupted{false};
  server.hook = [&](const HubRequest& r, int) -> std::optional<HubReply> {
    if (interrupted || !r.path.ends_with("model.safetensors")) return std::nullopt;
    HubReply half = server.of_bytes(r, *server.file_of(r.path));
    half.cut_after = asked++ == 0 ? 100'000 : 0;
    return half;
  };
  home.write("interrupt.sh",
             "set -m\n"  // a job of a shell without it ignores the signal
             "\"$@\" &\n"
             "until [ \"$(stat -c %s \"$HOME\"/.cache/huggingface/hub/*/blobs/*.incomplete)\" = 100000 ]\n"
             "do sleep 0.02; kill -0 $! || break; done 2>/dev/null\n"
             "kill -INT $!; wait $!\n");
  const Outcome o = run_binary("pull tiny/llama", before("sh " + (home / "interrupt.sh")));
  interrupted = true;
  EXPECT_EQ(o.exit_code, 130) << o.err;
  EXPECT_TRUE(says(o.err, "error: interrupted; what has arrived is kept, and the same command goes on from there"))
      << o.err;
  const Outcome again = run("pull tiny/llama");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(says(again.err, "fetching tiny/llama: 1 file, 178 kB")) << again.err;
  EXPECT_EQ(server.requests().back().header("range"), "bytes=100000-");
}

TEST_F(ModelsByName, AreListedWithWhatIsWrong) {
  EXPECT_TRUE(says(run("models").out, "no models yet; fetch one: reprise pull smollm2"));
  server.repos["tiny/llama-GGUF"].files = {{"m-Q4_K_M.gguf", "no model at all"}};
  for (const std::string name : {"tiny/llama", "tiny/sharded", "tiny/llama-GGUF"})
    ASSERT_EQ(run("pull " + name).exit_code, 0);
  std::filesystem::remove(std::filesystem::canonical(hub() + "/models--tiny--sharded/snapshots/" +
                                                     server.repos["tiny/sharded"].commit +
                                                     "/model-00003-of-00004.safetensors"));
  home.write(".cache/huggingface/hub/models--tiny--sharded/blobs/x.incomplete", "12345");
  const OrderedJson all = json_of(run("models --json"));
  EXPECT_EQ(keys_of(all), (std::vector<std::string>{"memory_bytes", "memory_fraction", "models"}));
  ASSERT_EQ(all["models"].size(), 3u) << all.dump();
  const OrderedJson good = all["models"][0], broken = all["models"][1], half = all["models"][2];
  EXPECT_EQ(good["name"], "tiny/llama");
  EXPECT_EQ(good["architecture"], "LlamaForCausalLM");
  EXPECT_EQ(good["weights"], "f32");
  EXPECT_EQ(good["fits"], true);
  EXPECT_EQ(good["context_length"], 512);
  EXPECT_EQ(good["cache_tokens"], 512);
  EXPECT_EQ(good["kv_bytes_per_token"], 2 * 2 * 5 * 10 * 4);  // K and V, layers, heads, their size, fp32
  EXPECT_TRUE(good["problem"].is_null());
  EXPECT_EQ(broken["name"], "tiny/llama-GGUF:Q4_K_M");
  EXPECT_EQ(broken["complete"], true);
  EXPECT_TRUE(says(broken["problem"], "m-Q4_K_M.gguf: ")) << broken.dump();
  EXPECT_EQ(half["name"], "tiny/sharded");
  EXPECT_EQ(half["complete"], false);
  EXPECT_EQ(half["problem"],
            "model-00003-of-00004.safetensors is missing; 5 bytes have arrived of unfinished files; to go on: reprise "
            "pull tiny/sharded");
  const std::string table = run("models").out;
  EXPECT_TRUE(says(table, "tiny/llama              279 kB    LlamaForCausalLM  f32      fits, 512 tokens\n")) << table;
  EXPECT_TRUE(says(table, "incomplete: model-00003-of-00004.safetensors is missing")) << table;
  EXPECT_TRUE(says(table, "cannot be run: ")) << table;
}

// In memory a block of Q4_K has 148 bytes for 256 numbers, 144 in the file; rows come in panels of 64.
TEST_F(ModelsByName, PackedWeightsAreCountedAsTheyLieInMemory) {
  checkpoint::GgufBuilder b;
  b.str("general.architecture", "llama").u32("llama.block_count", 1).u32("llama.context_length", 256);
  b.u32("llama.embedding_length", 256).u32("llama.feed_forward_length", 256);
  b.u32("llama.attention.head_count", 8).u32("llama.attention.head_count_kv", 1);
  b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  constexpr uint32_t kQ4_K = 12;
  for (const auto& [name, rows] : std::map<std::string, uint64_t>{{"token_embd", 131},
                                                                  {"blk.0.attn_q", 256},
                                                                  {"blk.0.attn_k", 32},
                                                                  {"blk.0.attn_v", 32},
                                                                  {"blk.0.attn_output", 256},
                                                                  {"blk.0.ffn_gate", 256},
                                                                  {"blk.0.ffn_up", 256},
                                                                  {"blk.0.ffn_down", 256}})
    b.tensor(name + ".weight", {256, rows}, kQ4_K, std::string(rows * 144, '\0'));
  for (const char* name : {"blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"})
    b.f32_tensor(std::string(name) + ".weight", {256}, std::vector<float>(256, 1.0f));
  server.repos["tiny/k-GGUF"].files = {{"k-Q4_K_M.gguf", b.finish()}};
  ASSERT_EQ(run("pull tiny/k-GGUF").exit_code, 0);
  const OrderedJson model = json_of(run("models --json"))["models"][0];
  ASSERT_TRUE(model["problem"].is_null()) << model.dump();
  // K and V of one head of 32; 16 bits where the processor has a bf16 dot product.
  const int64_t number = model["kv_bytes_per_token"].get<int64_t>() / 64;
  EXPECT_TRUE(number == 2 || number == 4) << number;
  constexpr int64_t kRows = 192 + 5 * 256 + 2 * 64;
  EXPECT_EQ(model["weight_bytes"], kRows * 148 + 3 * 256 * number);
}

TEST_F(ModelsByName, ModelScopeIsAnotherHub) {
  const std::string modelscope = "REPRISE_HUB=modelscope MODELSCOPE_ENDPOINT=" + server.url();
  const Outcome o = run("generate --model-path tiny/llama" + ids, modelscope);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(std::filesystem::exists(home / ".cache/modelscope/models/tiny--llama/snapshots/master/config.json"));
  EXPECT_EQ(json_of(run("models --json"))["models"][0]["source"], "modelscope");
}

// The table of features of docs/model-coverage.md, by row: how many cells name tests.
std::map<std::string, int> tested_features() {
  const std::string page = content_of(std::string(REPRISE_SOURCE_DIR) + "/docs/model-coverage.md");
  std::istringstream lines(page.substr(page.find("## Features")));
  std::map<std::string, int> out;
  for (std::string line; std::getline(lines, line) && (out.empty() || !line.starts_with("## "));) {
    if (!line.starts_with("| `")) continue;
    int tested = -1;  // the first cell is the name
    for (size_t at = 0; (at = line.find("| ", at)) != std::string::npos; at += 2)
      tested += line.compare(at, 5, "| no ") != 0;
    out[line.substr(3, line.find('`', 3) - 3)] = tested;
  }
  return out;
}

TEST(Families, HaveTheTestsThatThePageNames) {
  const Outcome told = run_binary("models --families --json");
  ASSERT_EQ(told.exit_code, 0) << told.err;
  const Json families = Json::parse(told.out);
  const std::map<std::string, int> page = tested_features();
  EXPECT_EQ(families.size(), page.size());
  for (const Json& f : families) {
    const std::string name = f["architecture"];
    ASSERT_TRUE(page.contains(name)) << name;
    EXPECT_EQ(f["features"].size(), static_cast<size_t>(page.at(name))) << name;
    EXPECT_EQ(f["features"].size() + f["untested"].size(), 9u) << name;
    EXPECT_FALSE(f["graph_modes"]["cpu"].empty()) << name;
  }
  const auto llama = std::find_if(families.begin(), families.end(),
                                  [](const Json& f) { return f["architecture"] == "LlamaForCausalLM"; });
  ASSERT_NE(llama, families.end());
  EXPECT_EQ((*llama)["features"]["lora"][0], "lora/models_test LoraGoldenTest.LogitsAreThoseOfPeft");
  EXPECT_EQ((*llama)["untested"]["images"], "the family reads no images");
  const Outcome table = run_binary("models --families");
  EXPECT_TRUE(says(table.out, "parts prefix drafts lora grammar ranks int8-kv\n")) << table.out;
}

}  // namespace
}  // namespace reprise::apps::models_by_name_test
