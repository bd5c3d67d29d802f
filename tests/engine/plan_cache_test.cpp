// The plan cache: a hit is what a miss makes, everything that matters is in the key, and whatever is wrong with a file
// costs a compilation and nothing else (F36).
#include "compile/plan_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backends/cpu/isa.h"
#include "backends/null/null_device.h"
#include "base/file.h"
#include "engine/make_program.h"
#include "graph/text.h"
#include "models/model.h"
#include "support/tiny_models.h"

namespace reprise::engine::plan_cache_test {
namespace {

namespace fs = std::filesystem;

struct Model {
  std::string name = "qwen3_tied";
  std::vector<std::string> overrides = {};
  models::TraceOptions trace = {.max_tokens = 40, .max_sequences = 5, .max_pages = 2, .pool_pages = 64};
  PipelineOptions pipeline = {};
  DeviceOptions device = {DeviceKind::Cpu, "auto", 2, false};
};

class PlanCacheTest : public testing::Test {
 protected:
  PlanCacheTest() {
    static int count = 0;
    folder_ = (fs::path(testing::TempDir()) / fmt::format("reprise_plans_{}_{}", ::getpid(), count++)).string();
  }
  ~PlanCacheTest() override { fs::remove_all(folder_); }

  static Platform platform(const Model& m) {
    auto p = make_platform(m.device);
    EXPECT_TRUE(p.is_ok()) << p.status().message();
    nn::register_fused_ops(*p->ops);
    return std::move(*p);
  }
  static models::ModelConfig config(const Model& m) {
    auto fields =
        checkpoint::read_model_config(testing_support::tiny_model_path(m.name), m.overrides, models::families(true));
    EXPECT_TRUE(fields.is_ok()) << fields.status().message();
    return {*fields, {}};
  }
  static PlanKey key(const Model& m) {
    const models::ModelConfig c = config(m);
    const Platform p = platform(m);
    auto k = program_key(**models::find_model(c.fields.architecture), c, m.trace, m.pipeline, p);
    EXPECT_TRUE(k.is_ok()) << k.status().message();
    return *k;
  }
  // The program's values point into the platform.
  struct Made {
    Platform platform;
    Program program;
  };
  static Made make(const Model& m, PlanCache& cache) {
    Made out{platform(m), {}};
    const models::ModelConfig c = config(m);
    auto p = make_program(**models::find_model(c.fields.architecture), c, m.trace, m.pipeline, out.platform, cache);
    EXPECT_TRUE(p.is_ok()) << p.status().message();
    if (p.is_ok()) out.program = std::move(*p);
    return out;
  }
  std::string file(const Model& m) const { return PlanCache(folder_).path(key(m)); }
  static std::string content(const std::string& path) { return *read_file(path); }
  static void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

  std::string folder_;
};

std::vector<std::string> kernels_of(const Program& p) {
  std::vector<std::string> out;
  for (const Node* n = p.graph.first(); n; n = n->next)
    if (auto it = p.selection.kernel.find(n); it != p.selection.kernel.end()) out.push_back(it->second->name);
  return out;
}

void expect_same(const Program& a, const Program& b) {
  EXPECT_EQ(print(a.graph), print(b.graph));
  EXPECT_EQ(kernels_of(a), kernels_of(b));
  ASSERT_EQ(a.selection.params.size(), b.selection.params.size());
  for (size_t i = 0; i < a.selection.params.size(); ++i) {
    EXPECT_EQ(a.selection.params[i].name, b.selection.params[i].name);
    EXPECT_EQ(a.selection.params[i].bytes, b.selection.params[i].bytes);
  }
  EXPECT_EQ(a.plan.arena_bytes, b.plan.arena_bytes);
  EXPECT_EQ(a.plan.workspace_of.size(), b.plan.workspace_of.size());
  ASSERT_EQ(a.plan.storages.size(), b.plan.storages.size());
  for (size_t i = 0; i < a.plan.storages.size(); ++i) {
    const auto &x = a.plan.storages[i], &y = b.plan.storages[i];
    EXPECT_EQ(x.root ? x.root->id : ~0u, y.root ? y.root->id : ~0u);
    EXPECT_EQ(std::tuple(x.first, x.last, x.bytes, x.offset), std::tuple(y.first, y.last, y.bytes, y.offset));
  }
  EXPECT_EQ(a.report.derived, b.report.derived);
  ASSERT_EQ(a.report.passes.size(), b.report.passes.size());
  for (size_t i = 0; i < a.report.passes.size(); ++i) {
    const PassReport &x = a.report.passes[i], &y = b.report.passes[i];
    EXPECT_EQ(std::tie(x.name, x.required, x.skipped, x.tried, x.matched, x.refusals, x.nodes_before, x.nodes_after),
              std::tie(y.name, y.required, y.skipped, y.tried, y.matched, y.refusals, y.nodes_before, y.nodes_after));
    ASSERT_EQ(x.refused.size(), y.refused.size());
    for (size_t r = 0; r < x.refused.size(); ++r) {
      EXPECT_EQ(x.refused[r].at, y.refused[r].at);
      EXPECT_EQ(x.refused[r].reason, y.refused[r].reason);
    }
    EXPECT_EQ(x.applied.size(), y.applied.size());
  }
}

TEST_F(PlanCacheTest, AHitIsWhatAMissMakes) {
  for (const char* name : {"qwen3_tied", "llama_gqa3_tied", "llama_rope_yarn", "qwen2_untied", "mistral_window24"}) {
    SCOPED_TRACE(name);
    const Model m{.name = name};
    PlanCache none(""), cache(folder_);
    const Made plain = make(m, none), miss = make(m, cache), hit = make(m, cache);
    EXPECT_EQ(cache.counters().misses, 1u);
    EXPECT_EQ(cache.counters().stored, 1u);
    EXPECT_EQ(cache.counters().hits, 1u);
    expect_same(plain.program, miss.program);
    expect_same(plain.program, hit.program);
    // What explain shows as times is what compiling took.
    for (size_t i = 0; i < hit.program.report.passes.size(); ++i)
      EXPECT_EQ(hit.program.report.passes[i].seconds, miss.program.report.passes[i].seconds);
  }
}

// The list of factors is chosen by the context, of which no other part of the key may tell.
TEST_F(PlanCacheTest, TheListOfLongropeIsPartOfTheKey) {
  const Model m{.name = "phi3_longrope"};
  models::ModelConfig c = config(m);
  const Platform p = platform(m);
  const models::ModelSpec& spec = **models::find_model(c.fields.architecture);
  PlanCache cache(folder_);
  const auto path_of = [&] { return cache.path(*program_key(spec, c, m.trace, m.pipeline, p)); };
  const std::string usual = path_of();
  EXPECT_EQ(path_of(), usual);
  c.fields.rope.takes_long = true;
  EXPECT_NE(path_of(), usual);
}

TEST_F(PlanCacheTest, EnginesGiveTheSameBits) {
  const std::vector<int32_t> tokens{3, 9, 27, 81, 5, 4, 3, 2, 1, 8, 6, 7};
  for (const char* name : {"qwen3_untied", "llama_bias", "mistral_full", "qwen25_yarn"}) {
    SCOPED_TRACE(name);
    std::vector<std::vector<float>> logits;
    for (const std::string& folder : {std::string(), folder_, folder_}) {
      auto platform = make_platform({DeviceKind::Cpu, "auto", 2, false});
      EngineOptions o;
      o.model_path = testing_support::tiny_model_path(name);
      o.chunked_prefill_size = 16;
      o.max_running_requests = 4;
      o.max_total_tokens = 512;
      o.graph.plan_cache = folder;
      auto e = Engine::create(o, std::move(*platform));
      ASSERT_TRUE(e.is_ok()) << e.status().message();
      logits.push_back(testing_support::all_logits(**e, tokens, 4));
      logits.push_back(testing_support::all_logits(**e, tokens, 1));
    }
    ASSERT_FALSE(logits[0].empty());
    for (const auto& l : logits)
      EXPECT_TRUE(l.size() == logits[0].size() &&
                  std::memcmp(l.data(), logits[0].data(), l.size() * sizeof(float)) == 0);
  }
  EXPECT_FALSE(fs::is_empty(folder_));
}

TEST_F(PlanCacheTest, EverythingThatMattersIsInTheKey) {
  const PlanKey base = key({});
  EXPECT_EQ(base, key({}));
  EXPECT_EQ(base.text().size(), 32u);
  fs::create_directories(folder_);
  std::vector<std::pair<std::string, Model>> others;
  const auto add = [&](std::string what, const std::function<void(Model&)>& change) {
    Model m;
    change(m);
    others.emplace_back(std::move(what), std::move(m));
  };
  add("tokens", [](Model& m) { m.trace.max_tokens = 41; });
  add("sequences", [](Model& m) { m.trace.max_sequences = 6; });
  add("pages", [](Model& m) { m.trace.max_pages = 3; });
  add("pool", [](Model& m) { m.trace.pool_pages = 65; });
  add("sampling", [](Model& m) { m.trace.sampling = true; });
  add("dtype", [](Model& m) { m.trace.dtype = DType::F32; });
  add("kv dtype", [](Model& m) { m.trace.kv_dtype = DType::F32; });
  add("passes", [](Model& m) { m.pipeline.passes.enable = {"none"}; });
  add("disabled", [](Model& m) { m.pipeline.passes.disable = {"silu_mul"}; });
  add("left out", [](Model& m) { m.pipeline.passes.leave_out = {"silu_mul"}; });
  add("limit", [](Model& m) { m.pipeline.passes.bisect_limit = 3; });
  add("greedy", [](Model& m) { m.pipeline.greedy = true; });
  add("pass file", [](Model& m) { m.pipeline.pass_file = PassFile{"a", "# one\n"}; });
  add("epsilon", [](Model& m) { m.overrides = {"rms_norm_eps=1e-4"}; });
  add("model", [](Model& m) { m.name = "qwen3_untied"; });
  if (cpu::supported_isas().size() > 1) add("isa", [](Model& m) { m.device.isa = "baseline"; });
  add("ranks", [](Model& m) { m.device.threads = 1; });
  add("device", [](Model& m) { m.device.kind = DeviceKind::Null; });
  std::map<std::string, std::string> seen{{base.text(), "nothing"}};
  for (const auto& [what, model] : others) {
    const auto fresh = seen.emplace(key(model).text(), what);
    EXPECT_TRUE(fresh.second) << what << " gives the key of " << fresh.first->second;
  }
  Model with_file;
  with_file.pipeline.pass_file = PassFile{"a", "# one\n"};
  const PlanKey before = key(with_file);
  with_file.pipeline.pass_file->text = "# another\n";
  EXPECT_NE(before, key(with_file));
  // Other registries, other keys.
  Platform p = platform({});
  KeyBuilder a, b;
  a.add(p);
  p.ops->add("extra(Tensor x) -> Tensor", p.ops->find("silu_mul")->infer, "of an extension");
  b.add(p);
  EXPECT_NE(a.key(), b.key());
  // Devices that add up in another order, and are alike else.
  KeyBuilder plain, ordered, again;
  for (auto [builder, order] :
       {std::pair{&plain, "sm90/tc16/page128"}, {&ordered, "sm100/tc16/page128"}, {&again, "sm90/tc16/page128"}}) {
    null::NullDeviceOptions o;
    o.order = order;
    p.device = null::make_null_device(o);
    builder->add(p);
  }
  EXPECT_NE(plain.key(), ordered.key());
  EXPECT_EQ(plain.key(), again.key());
  EXPECT_NE(KeyBuilder::build_identity().find('='), std::string::npos);
}

TEST_F(PlanCacheTest, NeighboursInTheKeyDoNotRunTogether) {
  KeyBuilder a, b;
  a.add("x", "1");
  a.add("y", "2");
  b.add("x", "1\ny=1:2");
  EXPECT_NE(a.key(), b.key());
}

TEST_F(PlanCacheTest, CutOrChangedFilesAreCompiledAgainAndReplaced) {
  const Model m;
  PlanCache none(""), first(folder_);
  const Made expected = make(m, none);
  (void)make(m, first);
  const std::string path = file(m), good = content(path);
  ASSERT_GT(good.size(), 1000u);
  std::vector<std::string> bad{"", "x", std::string(good.size(), '\0'), good + "x", good + good};
  for (size_t n : {size_t{7}, size_t{8}, size_t{12}, size_t{30}, size_t{44}, good.size() / 2, good.size() - 1})
    bad.push_back(good.substr(0, n));
  for (size_t at = 0; at < good.size(); at += at < 64 ? 1 : 997) {
    bad.push_back(good);
    bad.back()[at] = static_cast<char>(bad.back()[at] ^ (1 << (at % 8)));
  }
  for (const std::string& bytes : bad) {
    put(path, bytes);
    PlanCache cache(folder_);
    const Made made = make(m, cache);
    EXPECT_EQ(cache.counters().hits, 0u) << bytes.size();
    EXPECT_EQ(cache.counters().rejected.size(), 1u) << bytes.size();
    EXPECT_EQ(print(made.program.graph), print(expected.program.graph));
    EXPECT_NE(cache.summary().find("1 rejected: "), std::string::npos) << cache.summary();
    // Replaced by a good one. (The times that passes took differ, so the bytes may.)
    EXPECT_EQ(content(path).size(), good.size());
    (void)make(m, cache);
    EXPECT_EQ(cache.counters().hits, 1u);
  }
}

TEST_F(PlanCacheTest, FilesOfOthersAreRefused) {
  const Model mine, other{.trace = {.max_tokens = 8, .max_sequences = 3, .max_pages = 2, .pool_pages = 64}};
  PlanCache cache(folder_);
  (void)make(other, cache);
  fs::copy_file(file(other), file(mine));
  (void)make(mine, cache);
  EXPECT_EQ(cache.counters().rejected.count("the plan of another key"), 1u);
  put(file(mine), "{\"json\": true, \"and\": \"longer than a header would be, by a good deal\"}");
  (void)make(mine, cache);
  EXPECT_EQ(cache.counters().rejected.count("not a plan"), 1u);
  fs::remove(file(mine));
  fs::create_directories(file(mine));
  (void)make(mine, cache);  // can be neither read nor replaced
  EXPECT_EQ(cache.counters().rejected.size(), 3u);
  EXPECT_EQ(cache.counters().hits, 0u);
}

// Files whose checksum is right and whose content is not.
TEST_F(PlanCacheTest, WhatTheFileSaysIsCheckedAgainstTheGraph) {
  const Model m;
  PlanCache first(folder_);
  (void)make(m, first);
  const PlanKey k = key(m);
  const std::string good = content(file(m));
  const auto decoded = decode({reinterpret_cast<const uint8_t*>(good.data()), good.size()}, k);
  ASSERT_TRUE(decoded.is_ok()) << decoded.status().message();
  EXPECT_EQ(encode(*decoded, k), good);
  size_t workspace = 0, value = 0;
  for (size_t i = 0; i < decoded->storages.size(); ++i) (decoded->storages[i].workspace ? workspace : value) = i;
  ASSERT_TRUE(decoded->storages[workspace].workspace && !decoded->storages[value].workspace);
  const std::vector<std::function<void(PlanFile&)>> changes{
      [](PlanFile& f) { f.graph = "graph \"x\" { return }"; },
      [](PlanFile& f) { f.graph.resize(f.graph.size() / 2); },
      [](PlanFile& f) { f.kernels[f.kernels.size() / 2] += "x"; },
      [](PlanFile& f) { f.kernels.pop_back(); },
      [](PlanFile& f) { f.arena_bytes = uint64_t{1} << 60; },
      [](PlanFile& f) { f.arena_bytes -= 64; },
      [](PlanFile& f) { f.storages.pop_back(); },
      [](PlanFile& f) { f.storages.push_back(f.storages.front()); },
      [&](PlanFile& f) { f.storages[value].id = 1u << 30; },
      [&](PlanFile& f) { f.storages[value].bytes += 64; },
      [&](PlanFile& f) { f.storages[value].offset = ~uint64_t{0} - 63; },
      [&](PlanFile& f) { f.storages[value].offset += 1; },
      [&](PlanFile& f) { f.storages[value].first = -1; },
      [&](PlanFile& f) { f.storages[value].last = int64_t{1} << 40; },
      [&](PlanFile& f) { f.storages[workspace].id = ~0u; },
      [&](PlanFile& f) { f.storages[workspace].bytes /= 2; },
      [](PlanFile& f) {
        for (StoredStorage& s : f.storages) s.offset = 0;
        f.arena_bytes = 0;
        for (StoredStorage& s : f.storages) f.arena_bytes = std::max(f.arena_bytes, (s.bytes + 63) / 64 * 64);
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    PlanFile changed = *decoded;
    changes[i](changed);
    put(file(m), encode(changed, k));
    PlanCache cache(folder_);
    const Made made = make(m, cache);
    EXPECT_EQ(cache.counters().hits, 0u);
    EXPECT_EQ(cache.counters().rejected.size(), 1u);
    EXPECT_TRUE(check_plan(made.program.graph, made.program.plan).is_ok());
  }
}

TEST_F(PlanCacheTest, WritersAtTheSameTimeDoNotDisturbEachOther) {
  constexpr int kThreads = 4, kRounds = 12;
  const Model small{.trace = {.max_tokens = 8, .max_sequences = 3, .max_pages = 2, .pool_pages = 64}};
  std::vector<std::unique_ptr<PlanCache>> caches;
  for (int t = 0; t < kThreads; ++t) caches.push_back(std::make_unique<PlanCache>(folder_));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      PlanCache writer("");
      const Made made = make(small, writer);
      const PlanKey k = key(small);
      for (int i = 0; i < kRounds; ++i) {
        caches[t]->store(k, made.program);
        const auto loaded = caches[t]->load(k, made.platform);
        EXPECT_TRUE(loaded && print(loaded->graph) == print(made.program.graph));
      }
    });
  for (auto& t : threads) t.join();
  for (const auto& cache : caches) {
    EXPECT_EQ(cache->counters().hits, static_cast<uint64_t>(kRounds));
    EXPECT_TRUE(cache->counters().rejected.empty());
  }
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    static_cast<void>(entry);
    ++files;
  }
  EXPECT_EQ(files, 1u) << "something was left behind";
}

TEST_F(PlanCacheTest, AFolderThatCannotBeWrittenCostsNothingButTime) {
  fs::create_directories(folder_);
  put(folder_ + "/file", "not a folder");
  PlanCache cache(folder_ + "/file/plans");
  for (int i = 0; i < 2; ++i) EXPECT_GT(make({}, cache).program.graph.size(), 0u);
  EXPECT_EQ(cache.counters().stored, 0u);
  EXPECT_EQ(cache.counters().hits, 0u);
}

TEST_F(PlanCacheTest, ThoseWhoLookAtPassesRunThem) {
  Model m;
  PlanCache cache(folder_);
  (void)make(m, cache);
  std::string printed;
  m.pipeline.passes.print_after = {"all"};
  m.pipeline.passes.print = [&](std::string_view text) { printed += text; };
  (void)make(m, cache);
  EXPECT_NE(printed.find("# after silu_mul"), std::string::npos);
  EXPECT_EQ(cache.counters().hits, 0u);
  Model keeps;
  keeps.pipeline.passes.keep_graphs = true;
  EXPECT_FALSE(make(keeps, cache).program.report.traced.empty());
}

TEST_F(PlanCacheTest, TheLongestUnusedFilesGoWhenItIsFull) {
  const Model m;
  PlanCache cache(folder_);
  fs::create_directories(folder_);
  const auto now = fs::file_time_type::clock::now();
  const std::vector<std::pair<std::string, int>> files{{"old.plan", 50}, {"newer.plan", 2}, {"notes.txt", 90}};
  for (const auto& [name, age] : files) {
    put(folder_ + "/" + name, "");
    fs::resize_file(folder_ + "/" + name, PlanCache::kMaxBytes * 2 / 3);  // a hole: takes no space
    fs::last_write_time(folder_ + "/" + name, now - std::chrono::hours(age));
  }
  put(folder_ + "/dead.plan.tmp.1.1", "half");
  fs::last_write_time(folder_ + "/dead.plan.tmp.1.1", now - std::chrono::hours(2));
  put(folder_ + "/alive.plan.tmp.2.1", "half");
  (void)make(m, cache);
  EXPECT_FALSE(fs::exists(folder_ + "/old.plan"));
  EXPECT_TRUE(fs::exists(folder_ + "/newer.plan"));
  EXPECT_TRUE(fs::exists(folder_ + "/notes.txt")) << "not ours";
  EXPECT_FALSE(fs::exists(folder_ + "/dead.plan.tmp.1.1"));
  EXPECT_TRUE(fs::exists(folder_ + "/alive.plan.tmp.2.1"));
  EXPECT_TRUE(fs::exists(file(m)));
}

}  // namespace
}  // namespace reprise::engine::plan_cache_test
