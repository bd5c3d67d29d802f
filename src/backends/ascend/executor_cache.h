// ExecutorCache: launches whose operators were planned before, kept ready to be enqueued again.
//
// The first phase of an operator costs the host more than the second. Where the library lets an executor be repeated, a
// launch with the same operands at the same addresses and sizes needs only the second. What reads lengths on the host
// is never kept. Owned by a stream and used by its thread; what is kept is given back when there is too much of it, and
// at the end.
#pragma once

#include <array>
#include <unordered_map>
#include <vector>

#include "backends/ascend/launch.h"

namespace reprise::ascend {

class ExecutorCache {
 public:
  explicit ExecutorCache(const Library& library) : library_(library) {}
  ~ExecutorCache() { clear(); }
  ExecutorCache(const ExecutorCache&) = delete;
  ExecutorCache& operator=(const ExecutorCache&) = delete;

  // `spare` for operators that ask for more workspace than the thunk has.
  Status launch(const Thunk& thunk, const LiveSizes& live, const Operators& operators, aclrtStream stream,
                SpareWorkspace& spare);

  static constexpr size_t kMost = 4096;  // launches kept

 private:
  // All that a kernel may look at: the phases and the arguments, and in the second half live sizes, of the symbols that
  // the launch asked for when it was planned.
  static constexpr size_t kArgsWords = sizeof(LaunchArgs) / sizeof(uint64_t);
  using Key = std::array<uint64_t, 2 + kArgsWords + kMaxSymbols>;
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    bool repeats = true;  // false: one of its operators cannot
    std::vector<KeptOperator> operators;
    LaunchObjects objects;  // they outlive the operators
  };

  static Key key_of(const Thunk& thunk);
  static Key with_sizes(Key key, const LiveSizes& live, uint32_t symbols);
  void give_back(Entry& entry) const;
  void clear();

  const Library& library_;
  std::unordered_map<Key, uint32_t, Hash> symbols_;  // by the key without sizes
  std::unordered_map<Key, Entry, Hash> entries_;
};

}  // namespace reprise::ascend
