// Rows to the paged cache on the Ascend backend over the simulator, by the operator that each CANN has.
#include "backends/ascend_entry.h"
#include "support/setting.h"

namespace reprise::ascend_cache_test {
namespace {

// The operator for caches wants tensors without dimensions where there are no values: null, which it took for that
// once, is refused by the documents of all its versions. ScatterNdUpdate stands in on CANN 8.1 alone.
TEST(AscendCaches, RowsAreWrittenByTheOperatorForThem) {
  constexpr int64_t kPages = 3, kWidth = 32, kRows = 5;
  const std::vector<int32_t> slots{0, 127, 128, 300, 383};  // both ends of pages
  std::vector<uint16_t> cache(kPages * 128 * kWidth), rows(kRows * kWidth);
  for (size_t i = 0; i < cache.size(); ++i) cache[i] = static_cast<uint16_t>(i % 4001);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint16_t>(20000 + i);
  std::vector<uint16_t> want = cache;
  for (size_t r = 0; r < slots.size(); ++r)
    for (size_t i = 0; i < kWidth; ++i) want[static_cast<size_t>(slots[r]) * kWidth + i] = rows[r * kWidth + i];

  struct OneCache : AscendEntryTest {
    using AscendEntryTest::SetUp;
    void TestBody() override {}
    // The entry that is chosen, and what it leaves in the cache.
    std::pair<std::string, std::vector<uint16_t>> write(std::vector<uint16_t> cache, const std::vector<uint16_t>& rows,
                                                        const std::vector<int32_t>& slots) {
      const std::vector<TensorType> types{{DType::BF16, {Dim(kPages), Dim(128), Dim(kWidth)}},
                                          {DType::BF16, {Dim(kRows), Dim(kWidth)}},
                                          {DType::I32, {Dim(kRows)}}};
      const auto entry = chosen("row_write", types, {});
      EXPECT_TRUE(entry.is_ok()) << entry.status().message();
      if (!entry.is_ok()) return {};
      const auto bytes = [](const auto& v) { return v.size() * sizeof(v[0]); };
      const Buffer to = on_device(cache.data(), bytes(cache)), from = on_device(rows.data(), bytes(rows)),
                   at = on_device(slots.data(), bytes(slots)),
                   workspace = on_device(std::vector<uint8_t>(size_t{1} << 20).data(), size_t{1} << 20);
      Attrs attrs;
      const OpSchema* op = platform_.ops->find("row_write");
      const std::vector<TensorType> out{types[0]};
      Thunk thunk;
      thunk.part = (*entry)->part;
      thunk.args.ptr[0] = to.data(), thunk.args.ptr[1] = from.data(), thunk.args.ptr[2] = at.data();
      thunk.args.workspace = workspace.data(), thunk.args.workspace_bytes = size_t{1} << 20;
      (*entry)->bind({op, types, out, &attrs, {}}, thunk.args);
      for (int i = 0; i < 2; ++i) EXPECT_TRUE(stream_->launch(thunk).is_ok());  // the second time as it is repeated
      EXPECT_TRUE(stream_->copy(cache.data(), to.data(), bytes(cache), Copy::DeviceToHost).is_ok());
      const Status done = stream_->synchronize();
      EXPECT_TRUE(done.is_ok()) << done.message();
      return {(*entry)->name, cache};
    }
  };
  for (const auto& [version, name] : {std::pair{"9.1", "ascend.row_write"}, std::pair{"8.5", "ascend.row_write"},
                                      std::pair{"8.1", "ascend.row_write.scattered"}}) {
    const testing_support::Setting cann("ASCEND_SIM_CANN", version);
    OneCache one;
    one.SetUp();
    const auto [entry, got] = one.write(cache, rows, slots);
    EXPECT_EQ(entry, name) << version;
    EXPECT_EQ(got, want) << version;
  }
}

}  // namespace
}  // namespace reprise::ascend_cache_test
