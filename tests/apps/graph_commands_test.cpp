// `reprise graph dump`, `diff` and `profile` on tiny models.
#include "run_binary.h"
#include "support/smollm2.h"

namespace reprise::apps::graph_commands_test {
namespace {

using Words = std::vector<std::string>;

// No tensor names: shapes alone. Three layers, grouped heads, q/k norm.
std::string tiny(const std::string& name) { return "--log-level error --model-path " + model_folder(name) + " "; }

std::string check_report(const std::string& arguments) {
  const Folder folder;
  const std::string script = std::string(REPRISE_SOURCE_DIR) + "/tests/apps/check_report.py";
  const int status = std::system(fmt::format("python3 {} {} >{} 2>&1", script, arguments, folder / "out").c_str());
  EXPECT_EQ(status, 0) << content_of(folder / "out");
  return content_of(folder / "out");
}

// F12: what is captured, as what, in which order, how long it took and what it takes.
TEST(CaptureLog, SaysSizesModesTimeAndMemory) {
  const std::string base = "generate --prompt-ids 1,2,3 --max-new-tokens 2 --ignore-eos --model-path " +
                           model_folder("qwen3_tied") + " --max-running-requests 9 --chunked-prefill-size 40 ";
  const Outcome o = run_binary(base + "--log-level debug");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  for (const char* words : {"captured prefill size 40 (serves ", " as piecewise in ", "captured decode size 9 (serves ",
                            " as whole in ", " ms; graphs take "})
    EXPECT_TRUE(holds(o.err, words)) << words << "\n" << o.err;
  EXPECT_LT(o.err.find("captured prefill"), o.err.find("captured decode"));
  const Outcome usual = run_binary(base + "-v");
  EXPECT_FALSE(holds(usual.err, "captured prefill size")) << usual.err;
  for (const char* words :
       {"captured in ", " ms: decode 5 sizes, prefill 9 sizes", "; graphs ", " MB, shared activations "})
    EXPECT_TRUE(holds(usual.err, words)) << words << "\n" << usual.err;
  const Outcome off = run_binary(base + "--graph off --log-level debug");
  EXPECT_FALSE(holds(off.err, "captured decode")) << off.err;
  EXPECT_TRUE(holds(off.err, "captured in ") && holds(off.err, "decode 0 sizes, prefill 0 sizes")) << off.err;
}

TEST(GraphDump, JsonSaysEverything) {
  const OrderedJson j = json_of(run_binary("graph dump --format json " + tiny("qwen3_tied")));
  EXPECT_EQ(keys_of(j), (Words{"format", "graph", "phase", "model", "device", "mode", "size", "sizes", "launches",
                               "symbols", "nodes", "outputs", "pieces", "memory", "passes"}));
  EXPECT_EQ(j["phase"], "decode");
  EXPECT_EQ(j["mode"], "whole");
  size_t kernels = 0, aliases = 0, in_arena = 0;
  for (const auto& n : j["nodes"]) {
    EXPECT_EQ(keys_of(n).front(), "number");
    for (const char* key : {"op", "results", "operands", "attrs", "made_by", "kernel"})
      EXPECT_TRUE(n.contains(key)) << n;
    if (!n["kernel"].is_null()) {
      EXPECT_TRUE(n.contains("piece"));
      const auto& piece = j["pieces"][n["piece"].get<size_t>()];
      kernels += !piece.contains("head") || piece["head"].get<std::string>().starts_with("logits");
      EXPECT_EQ(n["kernel"].get<std::string>().rfind("cpu.", 0), 0u);
    }
    for (const auto& r : n["results"]) {
      aliases += r.contains("same_bytes_as");
      in_arena += r.contains("offset");
    }
  }
  EXPECT_EQ(kernels, j["launches"].get<size_t>());
  EXPECT_GT(aliases, 0u) << "views and caches written in place";
  EXPECT_GT(in_arena, 10u);
  const size_t arena = j["memory"]["arena_bytes"];
  for (const auto& s : j["memory"]["storages"]) {
    EXPECT_LE(s["offset"].get<size_t>() + s["bytes"].get<size_t>(), arena);
    EXPECT_LE(s["first_node"].get<int64_t>(), s["last_node"].get<int64_t>());
    EXPECT_TRUE(s.contains("value") != s.contains("workspace_of"));
  }
  EXPECT_TRUE(holds(j["pieces"][0]["ops"], "paged_attention index_select*2 linear")) << j["pieces"];
}

TEST(GraphDump, FilesAndDot) {
  const Folder folder;
  EXPECT_EQ(run_binary("graph dump --format dot --output " + (folder / "g.dot") + " " + tiny("qwen3_tied")).exit_code,
            0);
  const std::string dot = content_of(folder / "g.dot");
  EXPECT_TRUE(holds(dot, "digraph \"")) << dot;
  EXPECT_TRUE(holds(dot, "subgraph cluster_0 {"));
  EXPECT_TRUE(holds(dot, "label=\"layer 1\""));
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
  // Every edge goes between boxes that exist.
  std::istringstream lines(dot);
  std::string from, arrow, to;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    if (!(words >> from >> arrow >> to) || arrow != "->") continue;
    if (to.back() == ';') to.pop_back();
    EXPECT_TRUE(holds(dot, from + " [label")) << line;
    EXPECT_TRUE(holds(dot, to + " [label")) << line;
  }
  const Outcome bad = run_binary("graph dump --output /no/such/folder/file " + tiny("qwen3_tied"));
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_TRUE(holds(bad.err, "/no/such/folder")) << bad.err;
}

TEST(GraphDump, HtmlIsWellFormedAndWhole) {
  const Folder folder;
  // With times the limits of the machine are measured, which takes seconds.
  const std::string untimed = " --no-timing ";
  for (const std::string flags : {"--context 16 ", "--phase prefill --context 8 ", "--graph off ",
                                  "--passes none --no-timing ", "--graph-decode piecewise --batch 3 --no-timing "}) {
    const Outcome o = run_binary("graph dump --format html --repeat 2 " + flags + "--output " + (folder / "r.html") +
                                 " " + tiny("llama_mha_untied"));
    ASSERT_EQ(o.exit_code, 0) << o.err;
    check_report("html " + (folder / "r.html") + (flags.ends_with(untimed) ? untimed : ""));
  }
  ASSERT_EQ(
      run_binary("graph dump --format html --no-timing --output " + (folder / "r.html") + " " + tiny("qwen3_tied"))
          .exit_code,
      0);
  check_report("html " + (folder / "r.html") + " --no-timing");
  EXPECT_FALSE(holds(content_of(folder / "r.html"), "busy us"));
}

TEST(GraphExplain, SaysWhatIsReplayedAndWhatIsNot) {
  struct Case {
    std::string flags;
    Words modes;    // of the decisions, in order
    Words reasons;  // of the fallbacks
  };
  const std::vector<Case> cases{
      {"", {"whole", "piecewise", "piecewise", "piecewise"}, {}},
      {"--graph off", {"eager", "eager", "eager", "eager"}, {"--graph off", "--graph off"}},
      {"--graph-decode off --graph-prefill whole", {"eager", "whole", "whole", "whole"}, {"--graph-decode off"}},
      {"--graph-decode-sizes 1,4",
       {"whole", "eager", "piecewise", "piecewise", "piecewise"},
       {"larger than the largest captured size 4"}},
      {"--disable-cuda-graph-padding",
       {"whole", "eager", "piecewise", "eager", "piecewise", "piecewise"},
       {"padding is off", "padding is off"}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.flags);
    const OrderedJson j = json_of(run_binary("graph explain --json " + c.flags + " " + tiny("qwen3_tied")));
    EXPECT_EQ(keys_of(j),
              (Words{"passes", "pieces", "kernels", "sizes", "memory", "fallbacks_possible", "decisions", "drafts"}));
    Words modes;
    size_t eager = 0;
    for (const auto& d : j["decisions"]) {
      modes.push_back(d["mode"]);
      EXPECT_FALSE(d["reason"].get<std::string>().empty());
      eager += d["mode"] == "eager";
    }
    ASSERT_GE(modes.size(), 2u);
    EXPECT_EQ(modes.back(), c.modes.front());  // drafts, which run as decode does
    modes.pop_back();
    EXPECT_EQ(modes.back(), "device");  // draws tokens
    modes.pop_back();
    EXPECT_EQ(modes, c.modes);
    EXPECT_EQ(j["fallbacks_possible"].size(), eager);
    for (size_t i = 0; i < c.reasons.size(); ++i)
      EXPECT_TRUE(holds(j["fallbacks_possible"][i]["reason"], c.reasons[i])) << j["fallbacks_possible"];
  }
  // At start-up and in the text as well.
  const Outcome o = run_binary("graph explain --model-path " + model_folder("qwen3_tied"));
  for (const std::string* text : {&o.out, &o.err}) {
    EXPECT_TRUE(holds(*text, "decode, 1 to 64 sequences")) << *text;
    EXPECT_TRUE(holds(*text, "3 captured pieces; paged_attention runs uncaptured")) << *text;
  }
  EXPECT_TRUE(holds(o.out, "expected add, found embedding; 1 of 2 nodes fitted, from %")) << o.out;
}

// Which list of factors turns positions, there and at the start.
TEST(GraphExplain, TheListOfLongropeIsNamed) {
  for (const auto& [flags, mode] :
       {std::pair<std::string, std::string>{"", "short"}, {"--context-length 203", "long"}}) {
    const Outcome o = run_binary("graph explain --json " + flags + " --model-path " + model_folder("phi3_longrope"));
    const OrderedJson last = json_of(o)["decisions"].back();
    EXPECT_EQ(last["shape"], "rotation");
    EXPECT_EQ(last["mode"], mode);
    EXPECT_TRUE(holds(last["reason"], "above 160")) << last;
    EXPECT_TRUE(holds(o.err, mode == "long" ? "--context-length 203: above 160 tokens longrope takes its long factors"
                                            : "rope_type longrope: the short factors, for contexts up to 160"))
        << o.err;
  }
}

// What runs verified is kept with their step times, and told by the place of a draft in its step.
TEST(GraphExplain, DraftsOfEarlierRunsByTheirPlace) {
  const Folder folder;
  const std::string flags = "--plan-cache " + (folder / "plans") + " " + tiny("qwen3_tied");
  const std::string run =
      "generate --json --prompt-ids 1,2,3,1,2,3,1,2,3 --ignore-eos --max-new-tokens 60 --speculative-algorithm NGRAM "
      "--speculative-adaptive off --speculative-ngram-min-match-window-size 1 --speculative-num-draft-tokens 4 " +
      flags;
  EXPECT_EQ(json_of(run_binary("graph explain --json " + flags))["drafts"], OrderedJson::object());
  EXPECT_FALSE(holds(run_binary("graph explain " + flags).out, "drafts of"));
  const OrderedJson made = json_of(run_binary(run))["speculative"];
  ASSERT_GT(made["draft_tokens"], 10) << made;
  const OrderedJson once = json_of(run_binary("graph explain --json " + flags))["drafts"];
  ASSERT_EQ(keys_of(once), Words{"NGRAM"});
  for (const char* counts : {"drafted_per_position", "accepted_per_position"})
    for (size_t i = 0; i < once["NGRAM"][counts].size(); ++i)
      EXPECT_EQ(once["NGRAM"][counts][i], i < made[counts].size() ? made[counts][i] : OrderedJson(0)) << counts << i;
  (void)run_binary(run);
  const OrderedJson twice = json_of(run_binary("graph explain --json " + flags))["drafts"]["NGRAM"];
  const auto drafted = twice["drafted_per_position"][0].get<int64_t>();
  EXPECT_EQ(drafted, 2 * once["NGRAM"]["drafted_per_position"][0].get<int64_t>());
  const Outcome text = run_binary("graph explain " + flags);
  EXPECT_TRUE(holds(text.out, "drafts of NGRAM") && holds(text.out, fmt::format(" {} ", drafted))) << text.out;
  EXPECT_EQ(run_binary("graph dump --format html --no-timing --output " + (folder / "r.html") + " " + flags).exit_code,
            0);
  EXPECT_TRUE(holds(content_of(folder / "r.html"), fmt::format("<td class=\"n\">{}</td></tr>", drafted)));
  EXPECT_TRUE(holds(content_of(folder / "r.html"), "href=\"#drafts\""));
}

TEST(GraphExplain, NearMissesNameTheAttribute) {
  const Folder folder;
  folder.write("near.pass", R"(rewrite "fixed_eps" {
  search graph "a" {
    symbol T <= 16
    %0: f32[T, 44] = input(name="x")
    %1: f32[T, 44] = input(name="r")
    %2: f32[44] = input(name="w")
    %3: f32[T, 44] = add(%0, %1)
    %4: f32[T, 44] = rms_norm(%3, %2, eps=0.5)
    return a=%4, b=%3
  }
  replace graph "b" {
    symbol T <= 16
    %0: f32[T, 44] = input(name="x")
    %1: f32[T, 44] = input(name="r")
    %2: f32[44] = input(name="w")
    %3: f32[T, 44], %4: f32[T, 44] = add_rms_norm(%0, %1, %2, eps=0.5)
    return a=%3, b=%4
  }
})");
  const OrderedJson j =
      json_of(run_binary("graph explain --json --pass-file " + (folder / "near.pass") + " " + tiny("qwen3_tied")));
  bool found = false;
  for (const auto& p : j["passes"]) {
    if (p["name"] != "fixed_eps") continue;
    found = true;
    EXPECT_EQ(p["matched"], 0);
    ASSERT_FALSE(p["refused"].empty()) << p;
    EXPECT_TRUE(holds(p["refused"][0]["reason"], "rms_norm: eps is 1e-06, expected 0.5")) << p["refused"][0];
  }
  EXPECT_TRUE(found);
}

TEST(GraphDiff, DumpsOfOneModel) {
  const Folder folder;
  auto dump = [&](const std::string& name, const std::string& flags) {
    const Outcome o = run_binary("graph dump --output " + (folder / name) + " " + flags + " " + tiny("qwen3_tied"));
    EXPECT_EQ(o.exit_code, 0) << o.err;
  };
  dump("all.txt", "");
  dump("all.json", "--format json");
  dump("none.txt", "--passes none");
  dump("prefill.json", "--phase prefill --format json");
  const Outcome same = run_binary("graph diff " + (folder / "all.txt") + " " + (folder / "all.json"));
  EXPECT_EQ(same.exit_code, 0) << same.out;
  EXPECT_TRUE(holds(same.out, "the graphs are the same")) << same.out;
  const Outcome fused = run_binary("graph diff " + (folder / "none.txt") + " " + (folder / "all.txt"));
  EXPECT_EQ(fused.exit_code, 1);
  EXPECT_EQ(fused.err, "");
  EXPECT_TRUE(holds(fused.out, "split_qk_norm_rope_kv")) << fused.out;
  EXPECT_TRUE(holds(fused.out, "@@ layer")) << fused.out;
  const Outcome json = run_binary("graph diff --json " + (folder / "none.txt") + " " + (folder / "all.txt"));
  EXPECT_EQ(json.exit_code, 1);
  auto parsed = parse_ordered_json(json.out, "diff");
  ASSERT_TRUE(parsed.is_ok());
  EXPECT_EQ(keys_of(*parsed), (Words{"same", "nodes", "ops", "other", "parts"}));
  // Decode and prefill differ in their bounds alone.
  const Outcome phases = run_binary("graph diff " + (folder / "all.json") + " " + (folder / "prefill.json"));
  EXPECT_EQ(phases.exit_code, 1);
  EXPECT_TRUE(holds(phases.out, "~ symbol T <= ")) << phases.out;
  EXPECT_FALSE(holds(phases.out, "@@")) << phases.out;

  const Outcome missing = run_binary("graph diff " + (folder / "all.txt") + " /no/such/dump");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_TRUE(holds(missing.err, "/no/such/dump")) << missing.err;
  EXPECT_EQ(run_binary("graph diff " + (folder / "all.txt")).exit_code, 2);
}

TEST(GraphProfile, TheTraceAddsUp) {
  const Folder folder;
  const std::string whole = "--context 40 ", eager = "--graph off --batch 3 --context 7 ";
  for (const auto& [threads, flags] : std::vector<std::pair<int, std::string>>{{1, whole},
                                                                               {3, whole},
                                                                               {2, whole},
                                                                               {2, eager},
                                                                               {2, "--phase prefill --context 30 "},
                                                                               {2, "--graph-decode piecewise "}}) {
    SCOPED_TRACE(fmt::format("{}threads {}", flags, threads));
    const Outcome o = run_binary(fmt::format("graph profile --json --repeat 3 --threads {} {}--output {} {}", threads,
                                             flags, folder / "t.json", tiny("qwen3_tied")));
    const OrderedJson j = json_of(o);
    EXPECT_EQ(j["ranks"], threads);
    EXPECT_GT(j["step_us"], 0);
    EXPECT_LE(j["busy_us"].get<double>() + j["wait_us"].get<double>(), 1.5 * j["timed_step_us"].get<double>());
    double bytes = 0;
    for (const auto& op : j["ops"]) bytes += op["bytes"].get<double>();
    EXPECT_GT(bytes, 1000);
    // The measured path is the step that is shown, piece by piece; no data chain is longer than all launches in turn.
    const OrderedJson& path = j["critical_path"];
    double on_path = 0;
    for (const char* part : {"kernel_us", "barrier_us", "gap_us", "host_us"}) on_path += path[part].get<double>();
    EXPECT_NEAR(on_path, j["timed_step_us"].get<double>(), 0.01);
    EXPECT_GT(path["chain_us"], 0);
    EXPECT_LE(path["chain_us"].get<double>(), 1.0001 * path["launches_us"].get<double>());
    check_report(fmt::format("trace {} {}", folder / "t.json", threads));
  }
  const Outcome text = run_binary("graph profile --repeat 1 " + tiny("qwen3_tied"));
  for (const char* word : {"linear", "paged_attention", "all kernels", "% limit", "cache", "critical path, us:"})
    EXPECT_TRUE(holds(text.out, word)) << text.out;
}

// All rows of a text see each other: 2 layers of 6 heads of 10 numbers, 2 texts of 30 x 30 pairs, for scores and
// outputs.
TEST(GraphProfile, OfVectorsIsAPrompt) {
  const std::string model = std::string(REPRISE_SOURCE_DIR) + "/tests/data/encoders/qwen2_both_sides";
  const OrderedJson j =
      json_of(run_binary("graph profile --json --repeat 1 --phase prefill --batch 2 --context 30 " + model));
  double flops = 0;
  for (const auto& op : j["ops"])
    if (op["op"] == "segment_attention") flops = op["flops"].get<double>();
  EXPECT_EQ(flops, 2.0 * 2 * 2 * 6 * 10 * 2 * 30 * 30);
  const Outcome o = run_binary("graph profile --repeat 1 " + model);
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_TRUE(holds(o.err, "allowed: prefill")) << o.err;
}

TEST(GraphProfile, StepsThatCannotBe) {
  for (const auto& [flags, words] : std::vector<std::pair<std::string, std::string>>{
           {"--batch 65", "--max-running-requests"},
           {"--context 100000", "context length"},
           {"--phase prefill --context 1", "decode step"},
           {"--phase prefill --batch 30 --context 100", "--chunked-prefill-size"}}) {
    const Outcome o = run_binary("graph profile --repeat 1 " + flags + " " + tiny("qwen3_tied"));
    EXPECT_EQ(o.exit_code, 1) << flags;
    EXPECT_TRUE(holds(o.err, words)) << o.err;
  }
}

// docs/add-a-fusion.md, step 3: its file on the model that it names, with the flag and without.
TEST(GraphExplain, TheFusionOfThePageFiresOnTheModelItNames) {
  REPRISE_NEEDS_SMOLLM2(path);
  const std::string page = content_of(std::string(REPRISE_SOURCE_DIR) + "/docs/add-a-fusion.md");
  const size_t begin = page.find("# residual.pass: "), end = page.find("```", begin);
  ASSERT_NE(end, std::string::npos);
  ASSERT_TRUE(holds(page, "graph explain --model-path smollm2 --quantization none --pass-file residual.pass"));
  const Folder folder;
  folder.write("residual.pass", page.substr(begin, end - begin));
  const auto fused = [&](const std::string& flags) {
    const std::string command = "graph explain --json --log-level error --model-path " + path + flags + " --pass-file ";
    const OrderedJson report = json_of(run_binary(command + (folder / "residual.pass")));
    for (const auto& pass : report["passes"])
      if (pass["name"] == "residual_linear") return pass;
    return OrderedJson();
  };
  const OrderedJson floats = fused(" --quantization none"), blocks = fused("");
  EXPECT_EQ(floats["tried"], 60);
  EXPECT_EQ(floats["matched"], 60);
  EXPECT_TRUE(holds(page, "residual_linear                  60       60        0"));
  EXPECT_EQ(blocks["matched"], 0);
  EXPECT_TRUE(holds(blocks["refused"].dump(), "expected linear, found linear_blocks")) << blocks["refused"];
}

}  // namespace
}  // namespace reprise::apps::graph_commands_test
