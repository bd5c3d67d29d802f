// Two graphs compared: what counts, what does not, and how layers fold.
#include "see/graph_diff.h"

#include <gtest/gtest.h>

#include "see/phase_view.h"

namespace reprise::see::graph_diff_test {

namespace {

// `layers` layers of two linears, an activation and a residual.
struct Small {
  int layers = 3;
  int first_id = 0;
  std::string eps = "1e-05";
  int odd_layer = -1;    // its norm has another epsilon
  bool swapped = false;  // the residual's operands, everywhere
  std::string activation = "silu";
  int64_t bound = 64;

  std::string text() const {
    int id = first_id;
    std::string out = fmt::format("graph \"small\" {{\n  symbol T <= {}\n", bound);
    auto line = [&](const std::string& type, const std::string& rest, const char* by = "trace") {
      out += fmt::format("  %{}: {} = {} from \"{}\"\n", id, type, rest, by);
      return id++;
    };
    int x = line("bf16[T, 8]", "input(name=\"x\")");
    x = line("bf16[T, 8]", fmt::format("copy(%{})", x));
    for (int l = 0; l < layers; ++l) {
      const int norm = line("bf16[8]", fmt::format("param(name=\"model.layers.{}.norm.weight\")", l));
      const int w = line("bf16[8, 8]", fmt::format("param(name=\"model.layers.{}.up.weight\")", l));
      const int n =
          line("bf16[T, 8]", fmt::format("rms_norm(%{}, %{}, eps={})", x, norm, l == odd_layer ? "0.5" : eps));
      const int y = line("bf16[T, 8]", fmt::format("linear(%{}, %{}, out=\"same\", shard=\"none\")", n, w));
      const int s = line("bf16[T, 8]", fmt::format("{}(%{})", activation, y));
      x = line("bf16[T, 8]", swapped ? fmt::format("add(%{}, %{})", s, x) : fmt::format("add(%{}, %{})", x, s));
    }
    return out + fmt::format("  return y=%{}\n}}\n", x);
  }
  GraphDoc doc() const {
    auto d = doc_from_text(text());
    EXPECT_TRUE(d.is_ok()) << d.status().message();
    return d.is_ok() ? std::move(*d) : GraphDoc();
  }
};

TEST(GraphDiff, StreamsAndWaitsCount) {
  const std::string text = Small{.layers = 1}.text();
  std::string streams = text;
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"shard=\"none\") from", "shard=\"none\") @side after %4 from"},
        {"add(%1, %6) from", "add(%1, %6) after %5 from"}}) {
    ASSERT_NE(streams.find(from), std::string::npos) << text;
    streams.replace(streams.find(from), from.size(), to);
  }
  auto one = doc_from_text(text), two = doc_from_text(streams);
  ASSERT_TRUE(two.is_ok()) << two.status().message();
  EXPECT_TRUE(diff_graphs(*two, *two).same());
  const std::string shown = diff_text(diff_graphs(*one, *two));
  EXPECT_NE(shown.find("shard=\"none\") @side after %"), std::string::npos) << shown;
  EXPECT_NE(shown.find(") after %"), std::string::npos) << shown;
  EXPECT_FALSE(
      doc_from_text("graph \"g\" {\n  %0: f32[1] = input(name=\"x\") after %7 from \"t\"\n  return y=%0\n}\n").is_ok());
}

TEST(GraphDiff, NumbersAndNamesDoNotCount) {
  const Small a;
  EXPECT_TRUE(diff_graphs(a.doc(), a.doc()).same());
  Small b;
  b.first_id = 1000;
  GraphDoc renamed = b.doc();
  renamed.name = "other";
  for (DocNode& n : renamed.nodes) n.made_by = "someone";
  const GraphDiff d = diff_graphs(a.doc(), renamed);
  EXPECT_TRUE(d.same()) << diff_text(d);
  EXPECT_EQ(diff_text(d), "the graphs are the same: 13 nodes\n");
  ASSERT_EQ(d.sections.size(), 2u) << "layers that are alike are shown once";
  EXPECT_EQ(d.sections[0].title(), "before the first layer");
  EXPECT_EQ(d.sections[1].title(), "layers 0 to 2 (3 alike)");
}

TEST(GraphDiff, AnAttributeOfOneLayer) {
  Small b;
  b.odd_layer = 1;
  b.first_id = 7;
  const GraphDiff d = diff_graphs(Small().doc(), b.doc());
  EXPECT_FALSE(d.same());
  ASSERT_EQ(d.sections.size(), 4u);
  EXPECT_EQ(d.sections[2].title(), "layer 1");
  EXPECT_EQ(d.sections[2].changed, 1);
  EXPECT_EQ(d.sections[2].removed + d.sections[2].added + d.sections[2].rewired, 0);
  EXPECT_TRUE(d.sections[0].same() && d.sections[1].same() && d.sections[3].same());
  const std::string text = diff_text(d, 1);
  EXPECT_NE(text.find("- %0: bf16[T, 8] = rms_norm(%in0, @model.layers.*.norm.weight, eps=1e-05)\n"
                      "+ %0: bf16[T, 8] = rms_norm(%in0, @model.layers.*.norm.weight, eps=0.5)\n"
                      "  %1: bf16[T, 8] = linear("),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("3 other parts of the model: the same"), std::string::npos) << text;
}

TEST(GraphDiff, ALineThatIsGoneIsOneLine) {
  GraphDoc b = Small().doc();
  // The last layer's activation goes; its reader reads the linear.
  const size_t at = b.nodes.size() - 2;
  ASSERT_EQ(b.nodes[at].op, "silu");
  b.nodes[at + 1].in[1] = b.nodes[at].in[0];
  b.nodes.erase(b.nodes.begin() + static_cast<std::ptrdiff_t>(at));
  b.def.clear();
  for (size_t i = 0; i < b.nodes.size(); ++i) b.def[b.nodes[i].out[0].id] = {i, 0};
  const GraphDiff d = diff_graphs(Small().doc(), b);
  ASSERT_EQ(d.sections.size(), 3u);
  EXPECT_EQ(d.sections[2].removed, 1);
  EXPECT_EQ(d.sections[2].rewired, 1);
  EXPECT_EQ(d.sections[2].changed + d.sections[2].added, 0);
  ASSERT_EQ(d.ops.size(), 5u);
  EXPECT_EQ(d.ops[4].op, "silu");
  EXPECT_EQ(std::pair(d.ops[4].a, d.ops[4].b), std::pair(3, 2));
}

TEST(GraphDiff, AlikeChangesFold) {
  Small b;
  b.layers = 5;
  Small a = b;
  b.activation = "reciprocal";
  const GraphDiff d = diff_graphs(a.doc(), b.doc());
  ASSERT_EQ(d.sections.size(), 2u);
  EXPECT_EQ(d.sections[1].title(), "layers 0 to 4 (5 alike)");
  EXPECT_EQ(std::pair(d.sections[1].removed, d.sections[1].added), std::pair(1, 1));
  EXPECT_EQ(d.sections[1].rewired, 1) << "the addition reads the new value";
}

TEST(GraphDiff, OperandsSymbolsLayersAndOutputs) {
  Small swapped;
  swapped.swapped = true;
  EXPECT_EQ(diff_graphs(Small().doc(), swapped.doc()).sections.at(1).rewired, 1);

  Small bound;
  bound.bound = 128;
  const GraphDiff d = diff_graphs(Small().doc(), bound.doc());
  EXPECT_FALSE(d.same());
  ASSERT_EQ(d.notes.size(), 1u);
  EXPECT_EQ(d.notes[0].text, "symbol T <= 64 -> 128");

  Small deeper;
  deeper.layers = 4;
  const GraphDiff more = diff_graphs(Small().doc(), deeper.doc());
  ASSERT_EQ(more.sections.size(), 3u);
  EXPECT_EQ(more.sections[2].added, 4);
  const std::string text = diff_text(more);
  EXPECT_NE(text.find("+ param model.layers.*.norm.weight: bf16[8]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("~ output y is another value"), std::string::npos) << text;

  const OrderedJson j = diff_json(more);
  EXPECT_EQ(j["same"], false);
  EXPECT_EQ(j["nodes"], OrderedJson({13, 17}));
  EXPECT_EQ(j["parts"].size(), 1u);
  EXPECT_EQ(j["parts"][0]["plus"].size(), 4u);
}

TEST(GraphDiff, GraphsWithoutLayersAndEmptyOnes) {
  auto a = doc_from_text("graph \"a\" {\n  symbol T <= 4\n  %0: f32[T] = input(name=\"x\")\n  return y=%0\n}\n");
  ASSERT_TRUE(a.is_ok()) << a.status().message();
  EXPECT_TRUE(diff_graphs(*a, *a).same());
  auto b = doc_from_text(
      "graph \"b\" {\n  symbol T <= 4\n  %3: f32[T] = input(name=\"x\")\n  %9: f32[T] = my_op(%3, list=[1, 2.5], "
      "word=\"a, b) \\\"c\\\"\")\n  return y=%9\n}\n");
  ASSERT_TRUE(b.is_ok()) << b.status().message();
  EXPECT_EQ(b->nodes[1].attrs[0].second, "[1, 2.5]");
  EXPECT_EQ(b->nodes[1].attrs[1].second, "\"a, b) \\\"c\\\"\"");
  EXPECT_FALSE(diff_graphs(*a, *b).same());
}

TEST(GraphDoc, WrongTextNamesTheLine) {
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "empty"},
           {"digraph {}", "line 1"},
           {"graph \"a\" {\n  %0: f32[4] = input(name=\"x\")\n  %1: f32[4] = silu(%7)\n  return y=%1\n}\n", "%7"},
           {"graph \"a\" {\n  %0: f32[4] = input(name=\"x\n", "line"},
           {"graph \"a\" {\n  %0: f32[4] = input(name=\"x\")\n  %0: f32[4] = input(name=\"y\")\n  return y=%0\n}\n",
            "twice"},
           {"{\"nodes\": 3}", "nodes"},
           {"{\"nodes\": [{\"op\": \"silu\"}]}", "results"},
           {"{", "dump.json"}}) {
    const auto doc = doc_from(text, "dump.json");
    ASSERT_FALSE(doc.is_ok()) << text;
    EXPECT_NE(doc.status().message().find(words), std::string::npos) << doc.status().message();
  }
}

TEST(GraphDoc, LayersComeFromNames) {
  EXPECT_EQ(layer_in("model.layers.12.mlp.up_proj.weight"), 12);
  EXPECT_EQ(layer_in("kv.3"), 3);
  EXPECT_EQ(layer_in("model.norm.weight"), DocNode::kNoLayer);
  EXPECT_EQ(without_layer("blk.7.attn.2.weight"), "blk.*.attn.2.weight");
}

TEST(FoldedWords, RepeatedStretchesAreWrittenOnce) {
  EXPECT_EQ(folded_words({}), "");
  EXPECT_EQ(folded_words({"a", "b", "c"}), "a b c");
  EXPECT_EQ(folded_words({"a", "a", "a", "b"}), "a*3 b");
  EXPECT_EQ(folded_words({"e", "a", "b", "a", "b", "a", "b", "a", "z"}), "e (a b)*3 a z");
}

}  // namespace
}  // namespace reprise::see::graph_diff_test
