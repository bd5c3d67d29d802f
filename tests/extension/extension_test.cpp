// Extensions: an op, its kernels and its rewrite out of a shared object (F60), and what is said about bad ones.
#include "passes/extension.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "backends/null/null_device.h"
#include "base/file.h"
#include "compile/compiled_model.h"
#include "compile/plan_key.h"
#include "graph/tracer.h"
#include "nn/functional.h"
#include "passes/pass_file.h"
#include "support/temporary_path.h"
#include "support/tiny_models.h"

namespace reprise {
namespace {

std::string library(const std::string& name) { return REPRISE_EXTENSIONS + name + ".so"; }

Result<Platform> platform_with(const std::string& extension, DeviceKind kind = DeviceKind::Cpu) {
  DeviceOptions options;
  options.kind = kind;
  options.threads = 3;
  options.pin_threads = false;
  ASSIGN_OR_RETURN(Platform p, make_platform(options));
  if (!extension.empty()) RETURN_IF_ERROR(load_extension(extension, p));
  return p;
}

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, const std::string& extension,
                                             DType dtype = DType::F32) {
  ASSIGN_OR_RETURN(Platform p, platform_with(extension));
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(model);
  o.dtype = dtype;
  o.chunked_prefill_size = 64;
  o.max_running_requests = 8;
  o.context_length = 128;
  o.max_total_tokens = 1024;
  return engine::Engine::create(o, std::move(p));
}

const PassReport* report(const PipelineReport& all, std::string_view name) {
  for (const PassReport& r : all.passes)
    if (r.name == name) return &r;
  return nullptr;
}

const std::vector<int32_t> kTokens{1, 17, 200, 3, 5, 99, 42, 7, 7, 120, 11};

TEST(Extension, FusesAModelAndKeepsItsBits) {
  for (const char* model : {"llama_mha_untied", "qwen3_tied", "mistral_full"}) {
    auto plain = open(model, ""), extended = open(model, library("slice_mul"));
    ASSERT_TRUE(plain.is_ok()) << plain.status().message();
    ASSERT_TRUE(extended.is_ok()) << extended.status().message();
    const int64_t layers = (*plain)->config().num_hidden_layers;
    ASSERT_GT(layers, 0);
    for (const PipelineReport* passes : {(*extended)->passes("decode"), (*extended)->passes("prefill")}) {
      ASSERT_TRUE(report(*passes, "slice_mul"));
      EXPECT_EQ(report(*passes, "slice_mul")->matched, layers) << model;
      EXPECT_EQ(report(*passes, "silu_mul")->matched, 0) << model;  // its multiplication is taken
    }
    EXPECT_FALSE(report(*(*plain)->passes("prefill"), "slice_mul"));
    EXPECT_EQ(report(*(*plain)->passes("prefill"), "silu_mul")->matched, layers) << model;
    EXPECT_NE((*extended)->graph_text().find(" = slice_mul("), std::string::npos);
    for (int64_t chunk : {64, 3, 1}) {
      const auto a = testing_support::all_logits(**plain, kTokens, chunk);
      const auto b = testing_support::all_logits(**extended, kTokens, chunk);
      ASSERT_EQ(a.size(), b.size());
      ASSERT_GT(a.size(), 0u);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << model << " by " << chunk;
    }
  }
}

// Its kernels refuse bf16, so the graph stays as it was and the reason is there to read.
TEST(Extension, ARefusalOfItsKernelIsTheRewritesReason) {
  auto e = open("qwen3_tied", library("slice_mul"), DType::BF16);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const PassReport* r = report(*(*e)->passes("decode"), "slice_mul");
  ASSERT_TRUE(r);
  EXPECT_EQ(r->matched, 0);
  ASSERT_FALSE(r->refused.empty());
  EXPECT_NE(r->refused[0].reason.find("slice_mul is written for f32"), std::string::npos) << r->refused[0].reason;
  EXPECT_EQ(report(*(*e)->passes("decode"), "silu_mul")->matched, (*e)->config().num_hidden_layers);
}

// One load brings kernels for several devices; each takes its own.
TEST(Extension, BringsKernelsForSeveralDevices) {
  for (const auto& [kind, name] :
       {std::pair{DeviceKind::Cpu, "cpu.slice_mul.f32"}, {DeviceKind::Null, "null.slice_mul.f32"}}) {
    auto p = platform_with(library("slice_mul"), kind);
    ASSERT_TRUE(p.is_ok()) << p.status().message();
    Tracer t("g", *p->ops);
    const Dim n = t.symbol("T", 9);
    Tensor x = t.input("x", {DType::F32, {n, Dim(7)}}), y = t.input("y", {DType::F32, {n, Dim(19)}});
    t.output("z", t.call("slice_mul", {x, y}, {{"begin", int64_t{11}}, {"size", int64_t{7}}})[0]);
    Graph g = std::move(*t.finish());
    auto selection = select_kernels(g, *p);
    ASSERT_TRUE(selection.is_ok()) << selection.status().message();
    ASSERT_EQ(selection->kernel.size(), 1u);
    EXPECT_EQ(selection->kernel.begin()->second->name, name);

    Staging staging;
    staging.declare(g, {});
    ASSERT_TRUE(staging.allocate(*p->device).is_ok());
    MemoryPlan plan = plan_memory(g, selection->workspace);
    Buffer arena = p->device->pool().allocate(plan.arena_bytes, "arena").value();
    ParamStore params;
    CompileRequest request;
    request.platform = &*p;
    request.params = &params;
    request.staging = &staging;
    request.arena = arena.data();
    request.mode = GraphMode::Whole;
    auto model = CompiledModel::compile(std::move(g), *selection, std::move(plan), request);
    ASSERT_TRUE(model.is_ok()) << model.status().message();
    auto* xs = static_cast<float*>(staging.input("x")->data);
    auto* ys = static_cast<float*>(staging.input("y")->data);
    for (int i = 0; i < 9 * 7; ++i) xs[i] = static_cast<float>(i) + 0.5f;
    for (int i = 0; i < 9 * 19; ++i) ys[i] = static_cast<float>(i % 23) - 3;
    auto stream = p->device->make_stream().value();
    LiveSizes live;
    live.value[1] = 5;
    ASSERT_TRUE((*model)->run(live, *stream).is_ok());
    const TensorView z = *(*model)->output("z");
    ASSERT_EQ(z.size[0], 5);
    for (int r = 0; r < 5; ++r)
      for (int c = 0; c < 7; ++c)
        EXPECT_EQ(static_cast<float*>(z.data)[r * 7 + c], xs[r * 7 + c] * ys[r * 19 + 11 + c]) << r << "," << c;
  }
}

// A device without its kernel gets the op taken apart into what it means.
TEST(Extension, AMissingKernelFallsBackOnTheMeaning) {
  auto p = platform_with(library("slice_mul"));
  ASSERT_TRUE(p.is_ok());
  Tracer t("g", *p->ops);
  const Dim n = t.symbol("T", 9);
  Tensor x = t.input("x", {DType::F16, {n, Dim(7)}}), y = t.input("y", {DType::F16, {n, Dim(19)}});
  t.output("z", t.call("slice_mul", {x, y}, {{"begin", int64_t{11}}, {"size", int64_t{7}}})[0]);
  Graph g = std::move(*t.finish());
  auto done = run_pipeline(g, {}, *p);
  ASSERT_TRUE(done.is_ok()) << done.status().message();
  std::string ops;
  for (const Node* node = g.first(); node; node = node->next) ops += node->op->name + " ";
  EXPECT_EQ(ops, "input input slice mul ");
}

TEST(Extension, StaysLoadedAsLongAsThePlatform) {
  const std::string path = library("slice_mul");
  auto loaded = [&] {
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (handle) ::dlclose(handle);
    return handle != nullptr;
  };
  ASSERT_FALSE(loaded());
  auto e = open("qwen3_tied", path);  // takes the platform along
  ASSERT_TRUE(e.is_ok());
  EXPECT_TRUE(loaded());
  auto second = platform_with(path);
  ASSERT_TRUE(second.is_ok());
  e = Result<std::unique_ptr<engine::Engine>>(invalid("gone"));
  EXPECT_TRUE(loaded());
  second = Result<Platform>(invalid("gone"));
  EXPECT_FALSE(loaded());
}

// Its kernels are called otherwise, and there is no way for those of extensions yet.
TEST(Extension, AscendTakesNoKernels) {
  DeviceOptions options;
  options.kind = DeviceKind::Ascend;
  options.ascend_runtime = "sim";
  auto p = make_platform(options);
  ASSERT_TRUE(p.is_ok()) << p.status().message();
  const Status status = load_extension(library("other_devices"), *p);
  EXPECT_NE(status.message().find("kernel \"ascend.add.mine\": the device ascend takes no kernels of extensions; "
                                  "allowed: cpu, cuda, null"),
            std::string::npos)
      << status.message();
  EXPECT_TRUE(platform_with(library("other_devices")).is_ok()) << "they are kept and not used";
}

TEST(Extension, BadOnesGetOneClearError) {
  const std::string not_a_library = testing_support::temporary_path("not_a_library.so");
  std::ofstream(not_a_library) << "no ELF at all";
  const std::pair<std::string, std::string> cases[] = {
      {library("missing"), "not a library that can be loaded: cannot open shared object file"},
      {not_a_library, "not a library that can be loaded: "},
      {library("bad_no_symbols"), "not an extension: it does not export reprise_extension_abi"},
      {library("bad_no_register"), "not an extension: it does not export reprise_extension_register"},
      {library("bad_wrong_abi"), "written for version 42 of the extension interface, this program has version 1"},
      {library("bad_refuses"), "reprise_extension_register returned 7"},
      {library("bad_duplicate_op"), "op \"silu_mul\" exists already"},
      {library("bad_bad_text"), "declarations, line 3, column 3: expected meaning"},
      {library("bad_unknown_op"), "kernel \"cpu.add.mine\": no op is named \"no_such_op\""},
      {library("bad_unknown_device"), "device \"abacus\" is not known"},
      {library("bad_duplicate_kernel"), "kernel \"cpu.add.mine\" exists already"},
      {library("bad_incomplete_kernel"), "kernel \"cpu.add.mine\" lacks accepts, bind or phase[0]"},
      {library("bad_null_text"), "declare() was called without a text"},
  };
  for (const auto& [path, expected] : cases) {
    auto p = platform_with(path);
    ASSERT_FALSE(p.is_ok()) << path;
    const std::string& said = p.status().message();
    EXPECT_TRUE(said.starts_with("extension " + path + ": ")) << said;
    EXPECT_NE(said.find(expected), std::string::npos) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

// Plans are kept under the identity of the code that made them. A compiler may leave the size of an extension as it
// was, and a build system its time.
TEST(Extension, WithoutABuildIdItsBytesAreItsIdentity) {
  namespace fs = std::filesystem;
  const std::string path = (fs::path(testing::TempDir()) / fmt::format("reprise_bare_{}.so", ::getpid())).string();
  fs::copy_file(library("without_build_id"), path, fs::copy_options::overwrite_existing);
  const auto time = fs::last_write_time(path);
  const auto identity = [&] {
    const auto p = platform_with(path);
    EXPECT_TRUE(p.is_ok()) << p.status().message();
    const std::string all = KeyBuilder::build_identity();
    const size_t at = all.find(path);
    return at == std::string::npos ? std::string() : all.substr(at, all.find('\n', at) - at);
  };
  const std::string first = identity();
  ASSERT_NE(first.find('='), std::string::npos);
  EXPECT_EQ(first, identity());
  // A letter of the compiler's name, which no code reads.
  std::string bytes = *read_file(path);
  const size_t name = bytes.find("GCC: (");
  ASSERT_NE(name, std::string::npos);
  bytes[name] = 'X';
  fs::remove(path);  // a mapping of the old file may still be there
  std::ofstream(path, std::ios::binary) << bytes;
  fs::last_write_time(path, time);
  EXPECT_NE(first, identity());
  fs::remove(path);
}

TEST(Extension, TheSameOneTwiceIsAnError) {
  auto p = platform_with(library("slice_mul"));
  ASSERT_TRUE(p.is_ok());
  const Status again = load_extension(library("slice_mul"), *p);
  EXPECT_NE(again.message().find("it is loaded already"), std::string::npos) << again.message();
}

std::string op_text(const std::string& decl, const std::string& variables, const std::string& result) {
  return "op \"" + decl + "\" {\n doc \"d\"\n" + variables +
         " meaning graph \"g\" {\n symbol T <= 9\n %0: f32[T, 26] = input(name=\"x\")\n"
         " %1: f32[T, 22] = slice(%0, begin=3, size=22)\n return " +
         result + "\n }\n}\n";
}

TEST(Declarations, AgreeWithTheirMeaning) {
  const std::pair<std::string, std::string> cases[] = {
      {op_text("mine(Tensor x, *, int n) -> Tensor", "", "y=%1"), "attribute \"n\" is missing"},
      {op_text("mine(Tensor x) -> Tensor", " variable $n = 22\n", "y=%1"), "unknown attribute \"n\""},
      {op_text("mine(Tensor z) -> Tensor", "", "y=%1"), "its meaning has no input named \"z\""},
      {op_text("mine(Tensor x, Tensor? b) -> Tensor", "", "y=%1"), "cannot be optional"},
      {op_text("mine(Tensor x) -> (Tensor, Tensor)", "", "y=%1"), "returns 1 values, its declaration 2"},
      {op_text("add(Tensor x) -> Tensor", "", "y=%1"), "op \"add\" exists already"},
      {op_text("mine(Tensor x) -> Tensor : view", "", "y=%1"), "it cannot be an input, a param or a view"},
      {op_text("mine(Tensor x) -> Tensor : fast", "", "y=%1"), "expected commutes, split_point"},
      {op_text("mine(Tensor x", "", "y=%1"), "op declaration \"mine(Tensor x\""},
      {"", "expected op or rewrite"},
  };
  for (const auto& [text, expected] : cases) {
    auto p = platform_with("");
    ASSERT_TRUE(p.is_ok());
    auto found = parse_declarations(text, *p->ops);
    ASSERT_FALSE(found.is_ok()) << text;
    EXPECT_NE(found.status().message().find(expected), std::string::npos) << found.status().message();
  }
  auto p = platform_with("");
  ASSERT_TRUE(p.is_ok());
  auto found = parse_declarations(op_text("mine(Tensor x) -> Tensor", "", "y=%1"), *p->ops);
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  EXPECT_EQ(found->ops.size(), 1u);
  EXPECT_TRUE(p->ops->find("mine"));
  EXPECT_FALSE(parse_rewrites(op_text("other(Tensor x) -> Tensor", "", "y=%1"), *p->ops).is_ok());  // a pass file
}

}  // namespace
}  // namespace reprise
