// A family that the readers have never heard of says everything about its configuration itself.
#include "checkpoint/family.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "checkpoint/config_groups.h"
#include "checkpoint/gguf_groups.h"
#include "checkpoint/helpers.h"

namespace reprise::checkpoint::family_test {
namespace {

constexpr std::string_view kFields[] = {"every", "num_experts"};

Status read(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(in.integer("every", 1, 9, 2, out.experts.first_layer));
  return read_experts(in, {.count_key = "num_experts", .other_count_key = "experts", .count = 4, .per_token = 1}, out);
}
bool slides(const ModelConfigFields& f, int64_t layer) { return layer % 2 == 1 && f.sliding_window.has_value(); }
Result<bool> holds(const GgufFields& in) {
  ASSIGN_OR_RETURN(const auto count, in.get("expert_count"));
  return count.value_or(0) > 0;
}
Status add(GgufFields& in) { return in.copy("every", "every"); }

constexpr Family kPlain{.architecture = "PlainForCausalLM", .model_type = "plain", .gguf = {.name = "mine"}};
constexpr Family kMine{
    .architecture = "MineForCausalLM",
    .model_type = "mine",
    .other_model_type = "yours",
    .sizes = {.vocab = 30, .hidden = 8, .intermediate = 12, .layers = 4, .heads = 2, .positions = 64, .window = 16},
    .fields = kFields,
    .read = read,
    .slides = slides,
    .gguf = {.name = "mine", .windows = true, .experts = "num_experts", .holds = holds, .add = add}};
constexpr const Family* kList[] = {&kPlain, &kMine};

Result<ModelConfigFields> parse(const Json& config, std::vector<std::string> overrides = {}) {
  return parse_model_config(config, "config.json", overrides, {kList, false});
}

TEST(Family, SaysWhatTheFileDoesNot) {
  const auto c = parse({{"model_type", "yours"}});
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->architecture, "MineForCausalLM");
  EXPECT_EQ(c->family, &kMine);
  EXPECT_EQ(c->hidden_size, 8);
  EXPECT_EQ(c->head_dim, 4);
  EXPECT_EQ(c->rms_norm_eps, 1e-6);
  EXPECT_EQ(c->experts.count, 4);
  EXPECT_EQ(c->experts.first_layer, 2);
  for (int64_t l = 0; l < 4; ++l) EXPECT_EQ(c->window_of_layer(l), l % 2 == 1 ? 16 : 0);
  // A family without a rule has no window, and without sizes the file must give them.
  expect_error(parse({{"model_type", "plain"}}).status(), {"hidden_size is missing"});
}

TEST(Family, ReadsItsOwnFields) {
  const Json config{{"architectures", {"MineForCausalLM"}}};
  EXPECT_EQ(parse(config, {"every=3", "num_experts=6"})->experts.first_layer, 3);
  expect_error(parse(config, {"every=10"}).status(), {"config.json: every is 10; allowed: integers from 1 to 9"});
  expect_error(parse(config, {"ever=3"}).status(), {"no key \"ever\""});
}

TEST(Family, OthersAreReadWhenAsked) {
  const Json config{{"architectures", {"TheirsForCausalLM"}},
                    {"hidden_size", 8},
                    {"intermediate_size", 12},
                    {"num_hidden_layers", 1},
                    {"vocab_size", 30},
                    {"num_attention_heads", 2},
                    {"max_position_embeddings", 64},
                    {"rms_norm_eps", 1e-5}};
  expect_error(parse(config).status(),
               {"architecture \"TheirsForCausalLM\" is not known; known: PlainForCausalLM, MineForCausalLM"});
  const auto c = parse_model_config(config, "config.json", {}, {kList, true});
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->family, nullptr);
  EXPECT_EQ(c->window_of_layer(0), 0);
}

constexpr GgufTensorName kTensors[] = {
    {"ffn_up.", "mlp.upwards."}, {"my_scale", "my.scale"}, {"my_norm.", "my_norm.", StoredNumber::Plain}};
using At = NameRule::At;
constexpr NameRule kNames[] = {{At::Start, "body.", "model."},
                               {At::InLayer, ".part.", ".mlp."},
                               {At::End, ".scales", ".weight"},
                               {At::Anywhere, ".w9.", ".up_proj.", ".part.experts."}};
constexpr Family kNamed{
    .architecture = "NamedForCausalLM",
    .gguf = {.name = "named", .tensors = kTensors, .interleaved_heads = true, .centred_norms = true},
    .names = kNames};
constexpr const Family* kNamedList[] = {&kPlain, &kNamed, &kNamed};

TEST(Family, NamesTensorsOfGgufFiles) {
  const GgufModelShape own{kNamed.gguf, 4, 2};
  const auto name = [&](std::string_view gguf) { return hf_name(gguf, own)->name; };
  EXPECT_EQ(name("blk.2.ffn_up.weight"), "model.layers.2.mlp.upwards.weight");
  EXPECT_EQ(name("blk.2.ffn_up.bias"), "model.layers.2.mlp.upwards.bias");
  EXPECT_EQ(name("blk.2.my_scale"), "model.layers.2.my.scale");
  EXPECT_FALSE(hf_name("blk.2.my_scale.weight", own).has_value()) << "a whole name";
  EXPECT_EQ(name("blk.2.ffn_down.weight"), "model.layers.2.mlp.down_proj.weight") << "the usual ones are all there";
  EXPECT_EQ(hf_name("blk.2.attn_q.weight", own)->interleaved_heads, 4);
  EXPECT_EQ(hf_name("blk.2.attn_norm.weight", own)->number, StoredNumber::OneMore);
  EXPECT_EQ(hf_name("blk.2.my_norm.weight", own)->number, StoredNumber::Plain);
}

TEST(Family, NamesTensorsOfSafetensors) {
  const std::string header =
      R"({"body.layers.0.part.experts.1.w9.scales":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
      R"("model.layers.0.other.part.w9.weight":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})";
  const std::string bytes = safetensors_bytes(header, 2);
  auto c = Checkpoint::from_safetensors(std::move(SafetensorsFile::parse(bytes_of(bytes), "t")).value(),
                                        {kNamedList, false});
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_NE(c->find("model.layers.0.mlp.experts.1.up_proj.weight"), nullptr);
  EXPECT_EQ(c->tensors()[1].name, "model.layers.0.other.part.w9.weight");
}

Result<ModelConfigFields> from_gguf(GgufBuilder b) {
  b.u32("mine.embedding_length", 8).u32("mine.block_count", 2).u32("mine.context_length", 64);
  b.u32("mine.feed_forward_length", 12).u32("mine.attention.head_count", 2).u32("mine.vocab_size", 30);
  b.f32("mine.attention.layer_norm_rms_epsilon", 1e-5f).u32("mine.attention.sliding_window", 5);
  const std::string bytes = b.finish();
  auto file = GgufFile::parse(bytes_of(bytes), "t.gguf");
  EXPECT_TRUE(file.is_ok()) << file.status().message();
  return read_model_config(*file, {}, {kList, false});
}

TEST(Family, IsFoundInGgufFiles) {
  GgufBuilder plain, mine, other, unnamed;
  const auto c = from_gguf(plain.str("general.architecture", "mine"));
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  EXPECT_EQ(c->family, &kPlain);
  EXPECT_FALSE(c->sliding_window.has_value());
  const auto m = from_gguf(mine.str("general.architecture", "mine")
                               .u32("mine.expert_count", 3)
                               .u32("mine.expert_used_count", 2)
                               .u32("mine.every", 7));
  ASSERT_TRUE(m.is_ok()) << m.status().message();
  EXPECT_EQ(m->family, &kMine);
  EXPECT_EQ(m->experts.count, 3);
  EXPECT_EQ(m->experts.first_layer, 7);
  EXPECT_EQ(m->window_of_layer(1), 5);
  expect_error(from_gguf(other.str("general.architecture", "theirs")).status(), {"\"theirs\"; known: mine"});
  expect_error(from_gguf(unnamed.str("general.architecture", "")).status(), {"known: mine"});
}

}  // namespace
}  // namespace reprise::checkpoint::family_test
