// How many kernels a launch of an entry starts, as the entry tells and as the simulator counts them in a graph.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backends/ascend_entry.h"
#include "base/json.h"

namespace reprise::ascend_starts_test {
namespace {

struct Started {
  int told = 0, counted = 0;
};

class AscendStarts : public AscendEntryTest {
 protected:
  Started started(std::string_view name, const std::vector<TensorType>& in, Attrs attrs) {
    const OpSchema* op = platform_.ops->find(name);
    const auto entry = chosen(name, in, attrs);
    EXPECT_TRUE(entry.is_ok()) << entry.status().message();
    EXPECT_TRUE(check_attrs(*op, attrs).is_ok());
    const auto out = op->infer({op, in, {}, &attrs, {}});
    if (!entry.is_ok() || !out.is_ok()) return {};
    const OpCall call{op, in, *out, &attrs, {}};
    const auto told = (*entry)->starts(call);
    EXPECT_TRUE(told.is_ok()) << told.status().message();
    Thunk thunk;
    thunk.part = (*entry)->part;
    std::vector<Buffer> buffers;
    const std::vector<uint8_t> zeros(size_t{32} << 20);
    const auto place = [&] {
      buffers.push_back(on_device(zeros.data(), zeros.size()));
      return buffers.back().data();
    };
    for (size_t i = 0; i < in.size(); ++i) thunk.args.ptr[i] = place();
    for (size_t i = 0; i < out->size(); ++i) {
      const int continued = continued_operand(*op, i);
      thunk.args.ptr[op->operands.size() + i] =
          continued < 0 ? place() : thunk.args.ptr[static_cast<size_t>(continued)];
    }
    thunk.args.workspace = place();
    thunk.args.workspace_bytes = zeros.size();
    (*entry)->bind(call, thunk.args);
    return {told.is_ok() ? *told : 0, captured(thunk)};
  }

 private:
  int captured(const Thunk& thunk) {
    const std::string path = testing::TempDir() + fmt::format("kernels_of_graphs.{}", getpid());
    std::filesystem::remove(path);
    setenv("ASCEND_SIM_GRAPHS", path.c_str(), 1);
    const auto graph = platform_.device->capture(*stream_, [&](Recorder& r) { return r.launch(thunk); });
    unsetenv("ASCEND_SIM_GRAPHS");
    EXPECT_TRUE(graph.is_ok()) << graph.status().message();
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    std::filesystem::remove(path);
    int count = 0;
    const auto kernels = Json::parse(line);
    for (const auto& n : kernels) count += n.get<int>();
    return count;
  }
};

TensorType bf16(std::initializer_list<int64_t> sizes) {
  Shape shape;
  for (const int64_t n : sizes) shape.push_back(Dim(n));
  return {DType::BF16, shape};
}

TEST_F(AscendStarts, AnEntryTellsWhatAGraphLaunches) {
  const TensorType table{DType::F32, {Dim(1), Dim(64)}}, slots{DType::I32, {Dim(1)}}, borders{DType::I32, {Dim(2)}};
  struct Case {
    const char* op;
    std::vector<TensorType> in;
    Attrs attrs;
    int kernels;
  };
  const Case cases[] = {
      {"rms_norm", {bf16({1, 64}), bf16({64})}, {{"eps", 1e-6}}, 1},
      {"silu_mul", {bf16({1, 128})}, {}, 1},
      // The column of a, the column of b.
      {"concat", {bf16({1, 64}), bf16({1, 32})}, {}, 2},
      // As it is; with zeros and a copy for each operand, and a copy of the result.
      {"segment_attention", {bf16({4, 2, 16}), bf16({4, 2, 16}), bf16({4, 2, 16}), borders}, {{"scale", 1.0}}, 1},
      {"segment_attention", {bf16({4, 2, 20}), bf16({4, 2, 20}), bf16({4, 2, 20}), borders}, {{"scale", 1.0}}, 8},
      // Norms of queries and keys, the table in the model's dtype, the rotation, the cache.
      {"split_qk_norm_rope_rows",
       {bf16({2, 128, 128}), bf16({2, 128, 128}), bf16({1, 512}), table, slots, bf16({64}), bf16({64})},
       {{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"eps", 1e-6}},
       5},
  };
  for (const Case& c : cases) {
    const Started got = started(c.op, c.in, c.attrs);
    EXPECT_EQ(got.told, c.kernels) << c.op;
    EXPECT_EQ(got.counted, c.kernels) << c.op;
  }
}

}  // namespace
}  // namespace reprise::ascend_starts_test
