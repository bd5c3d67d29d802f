#include "backends/ascend/executor_cache.h"

#include <bit>

namespace reprise::ascend {

size_t ExecutorCache::Hash::operator()(const Key& key) const {
  uint64_t h = 0x9e3779b97f4a7c15;
  for (const uint64_t word : key) {
    h = (h ^ word) * 0xff51afd7ed558ccd;
    h ^= h >> 32;
  }
  return h;
}

ExecutorCache::Key ExecutorCache::key_of(const Thunk& thunk, const LiveSizes& live) {
  Key key{};
  size_t i = 0;
  for (OpaqueKernel phase : thunk.phase) key[i++] = reinterpret_cast<uintptr_t>(phase);
  for (const void* p : thunk.args.ptr) key[i++] = reinterpret_cast<uintptr_t>(p);
  for (const Dim& d : thunk.args.dim) key[i++] = static_cast<uint64_t>(d.value(live));
  for (const double s : thunk.args.scalar) key[i++] = std::bit_cast<uint64_t>(s);
  key[i] = reinterpret_cast<uintptr_t>(thunk.args.workspace);
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
}

Status ExecutorCache::launch(const Thunk& thunk, const LiveSizes& live, const Operators& operators, aclrtStream stream,
                             SpareWorkspace& spare) {
  Launch launch(library_, operators, stream, thunk.args.workspace, thunk.args.workspace_bytes);
  launch.set_spare(&spare);
  const bool on_host = thunk.args.host[0] != nullptr;
  if (on_host || !library_.aclSetAclOpExecutorRepeatable) return run_thunk(thunk, live, launch);
  const Key key = key_of(thunk, live);
  if (const auto known = entries_.find(key); known != entries_.end()) {
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
  if (launched.is_ok()) entries_.emplace(key, std::move(entry));
  return launched;
}

}  // namespace reprise::ascend
