#include "backends/ascend/executor_cache.h"

#include <cstring>

namespace reprise::ascend {

size_t ExecutorCache::Hash::operator()(const Key& key) const {
  uint64_t h = 0x9e3779b97f4a7c15;
  for (const uint64_t word : key) {
    h = (h ^ word) * 0xff51afd7ed558ccd;
    h ^= h >> 32;
  }
  return h;
}

ExecutorCache::Key ExecutorCache::key_of(const Thunk& thunk) {
  static_assert(sizeof(LaunchArgs) % sizeof(uint64_t) == 0);
  Key key{};
  for (size_t i = 0; i < thunk.part.size(); ++i) key[i] = reinterpret_cast<uintptr_t>(thunk.part[i]);
  std::memcpy(&key[2], &thunk.args, sizeof(LaunchArgs));
  return key;
}

ExecutorCache::Key ExecutorCache::with_sizes(Key key, const LiveSizes& live, uint32_t symbols) {
  for (size_t s = 0; s < live.value.size(); ++s)
    if (symbols >> s & 1) key[2 + kArgsWords + s] = static_cast<uint64_t>(live.value[s]);
  return key;
}

void ExecutorCache::give_back(Entry& entry) const {
  for (const KeptOperator& o : entry.operators) (void)library_.aclDestroyAclOpExecutor(o.executor);
  entry.operators.clear();
  entry.objects.destroy(library_);
}

void ExecutorCache::clear() {
  for (auto& [key, entry] : entries_) give_back(entry);
  entries_.clear();
  symbols_.clear();
}

Status ExecutorCache::launch(const Thunk& thunk, const LiveSizes& live, const Operators& operators, aclrtStream stream,
                             SpareWorkspace& spare) {
  Launch launch(library_, operators, stream, thunk.args.workspace, thunk.args.workspace_bytes);
  launch.set_spare(&spare);
  const bool on_host = thunk.args.host[0] != nullptr;
  if (on_host || !library_.aclSetAclOpExecutorRepeatable) return run_thunk(thunk, live, launch);
  const Key args = key_of(thunk);
  const auto depends = symbols_.find(args);
  const auto known =
      depends == symbols_.end() ? entries_.end() : entries_.find(with_sizes(args, live, depends->second));
  if (known != entries_.end()) {
    if (!known->second.repeats) return run_thunk(thunk, live, launch);
    for (const KeptOperator& o : known->second.operators)
      RETURN_IF_ERROR(library_.check(o.run(o.workspace, o.bytes, o.executor, stream), o.name));
    return Status::ok();
  }
  if (entries_.size() >= kMost) clear();
  Entry entry;
  launch.keep(&entry.operators);
  const Status launched = run_thunk(thunk, live, launch);
  entry.repeats = launched.is_ok() && launch.kept_all();
  if (entry.repeats)
    entry.objects = launch.take_objects();
  else
    give_back(entry);
  if (launched.is_ok()) {
    const uint32_t symbols = symbols_[args] |= launch.used_symbols();
    entries_.emplace(with_sizes(args, live, symbols), std::move(entry));
  }
  return launched;
}

}  // namespace reprise::ascend
