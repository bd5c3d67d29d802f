#include "compile/plan_cache.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "graph/text.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = size_t{64} << 20;

std::vector<const Node*> nodes_of(const Graph& graph) {
  std::vector<const Node*> nodes;
  for (const Node* n = graph.first(); n; n = n->next) nodes.push_back(n);
  return nodes;
}

std::vector<std::string> kernel_names(const std::vector<const Node*>& nodes, const KernelSelection& selection) {
  std::vector<std::string> names;
  for (const Node* n : nodes) {
    auto it = selection.kernel.find(n);
    names.push_back(it == selection.kernel.end() ? std::string() : it->second->name);
  }
  return names;
}

constexpr uint64_t kMostBytes = uint64_t{1} << 46;  // of a storage, and in front of one

size_t aligned(size_t n) { return (n + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

// The stored plan on the graph's values. Everything that check_plan() takes for granted is checked here.
Result<MemoryPlan> restore_plan(const PlanFile& f, const Graph& graph, const std::vector<const Node*>& nodes,
                                const KernelSelection& selection) {
  const Status wrong = invalid("the memory plan does not belong to the graph");
  std::unordered_map<uint32_t, const Value*> values;
  for (const Node* n : nodes)
    for (auto& v : n->out) values[v->id] = v.get();
  const LiveSizes bounds = graph.bounds();
  MemoryPlan plan;
  size_t workspaces = 0, end = 0;
  for (const StoredStorage& s : f.storages) {
    const size_t index = plan.storages.size();
    const bool inside = s.bytes <= kMostBytes && s.offset <= kMostBytes;
    const bool ordered = s.first >= 0 && s.first <= s.last && s.last <= static_cast<int64_t>(nodes.size());
    if (!inside || !ordered || s.offset % kArenaAlignment != 0) return wrong;
    const Value* root = nullptr;
    if (s.workspace) {
      if (s.id >= nodes.size()) return wrong;
      auto it = selection.workspace.find(nodes[s.id]);
      if (it == selection.workspace.end() || it->second != s.bytes) return wrong;
      if (!plan.workspace_of.emplace(nodes[s.id], index).second) return wrong;
      ++workspaces;
    } else {
      auto it = values.find(s.id);
      if (it == values.end() || storage_root(it->second) != it->second) return wrong;
      root = it->second;
      if (static_cast<size_t>(root->type.shape.elements(bounds)) * size_of(root->type.dtype) != s.bytes) return wrong;
      if (!plan.storage_of.emplace(root, index).second) return wrong;
    }
    plan.storages.push_back({root, s.first, s.last, s.bytes, s.offset});
    PlannedStorage& stored = plan.storages.back();
    stored.exchanged = root && root->def->op->has(op_trait::kCollective);
    size_t& its_end = stored.exchanged ? plan.exchange_bytes : end;
    its_end = std::max(its_end, aligned(s.offset + s.bytes));
  }
  const auto needed = std::count_if(selection.workspace.begin(), selection.workspace.end(),
                                    [](const auto& entry) { return entry.second > 0; });
  if (end != f.arena_bytes || workspaces != static_cast<size_t>(needed)) return wrong;
  plan.arena_bytes = f.arena_bytes;
  RETURN_IF_ERROR(check_plan(graph, plan));
  return plan;
}

Result<Program> restore(PlanFile f, const Platform& platform) {
  Program p;
  ASSIGN_OR_RETURN(p.graph, parse_graph(f.graph, *platform.ops));
  ASSIGN_OR_RETURN(p.selection, select_kernels(p.graph, platform));
  const std::vector<const Node*> nodes = nodes_of(p.graph);
  if (kernel_names(nodes, p.selection) != f.kernels) return invalid("other kernels would be chosen now");
  ASSIGN_OR_RETURN(p.plan, restore_plan(f, p.graph, nodes, p.selection));
  p.report = std::move(f.report);
  return p;
}

PlanFile stored_form(const Program& p) {
  PlanFile f;
  f.graph = print(p.graph);
  const std::vector<const Node*> nodes = nodes_of(p.graph);
  f.kernels = kernel_names(nodes, p.selection);
  f.report = p.report;
  f.arena_bytes = p.plan.arena_bytes;
  for (const PlannedStorage& s : p.plan.storages)
    f.storages.push_back({!s.root, s.root ? s.root->id : 0, s.first, s.last, s.bytes, s.offset});
  // A workspace is named by its node.
  for (size_t i = 0; i < nodes.size(); ++i)
    if (auto it = p.plan.workspace_of.find(nodes[i]); it != p.plan.workspace_of.end())
      f.storages[it->second].id = static_cast<uint32_t>(i);
  return f;
}

}  // namespace

std::string PlanCache::path(const PlanKey& key) const { return fmt::format("{}/{}.plan", folder_, key.text()); }

void PlanCache::reject(const PlanKey& key, const Status& why) {
  if (why.code() == Code::NotFound) {
    ++counters_.misses;
    return;
  }
  ++counters_.rejected[why.message()];
  log::warning("plan cache: {}: {}; compiling instead, and replacing it", path(key), why.message());
}

Result<PlanFile> PlanCache::read(const PlanKey& key) {
  const std::string file = path(key);
  auto bytes = read_file(file, kMaxFile);
  if (!bytes.is_ok()) return bytes.status();
  return decode({reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()}, key);
}

std::optional<Program> PlanCache::load(const PlanKey& key, const Platform& platform) {
  if (!enabled()) return std::nullopt;
  auto file = read(key);
  auto program = file.is_ok() ? restore(std::move(*file), platform) : Result<Program>(file.status());
  if (!program.is_ok()) {
    reject(key, program.status());
    return std::nullopt;
  }
  ++counters_.hits;
  std::error_code ignored;  // a folder that cannot be written keeps its times
  fs::last_write_time(path(key), fs::file_time_type::clock::now(), ignored);
  return std::move(*program);
}

void PlanCache::write(const PlanKey& key, const PlanFile& file) {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  const Status written = failed ? error(Code::Invalid, "{}: {}", folder_, failed.message())
                                : write_file_atomically(path(key), encode(file, key));
  if (written.is_ok()) {
    ++counters_.stored;
    prune();
  } else if (!complained_) {
    complained_ = true;
    log::warning("plan cache: {}; programs are not kept (`plan_cache` DIR names another folder, off none)",
                 written.message());
  }
}

void PlanCache::store(const PlanKey& key, const Program& program) {
  if (enabled()) write(key, stored_form(program));
}

void PlanCache::prune() const {
  struct Entry {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code failed;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(folder_, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code gone;
    const std::string name = it->path().filename().string();
    const auto used = it->last_write_time(gone);
    const uint64_t bytes = it->file_size(gone);
    if (gone) continue;
    // Left behind by a writer that was killed.
    if (name.find(".plan.tmp.") != std::string::npos && now - used > std::chrono::hours(1))
      fs::remove(it->path(), gone);
    if (!name.ends_with(".plan")) continue;
    entries.push_back({used, bytes, it->path()});
    total += bytes;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& e : entries) {
    if (total <= kMaxBytes) break;
    std::error_code gone;
    fs::remove(e.path, gone);
    total -= e.bytes;
  }
}

std::string PlanCache::summary() const {
  uint64_t rejected = 0;
  for (const auto& entry : counters_.rejected) rejected += entry.second;
  std::string out = fmt::format("plan cache: {} of {} programs from {}", counters_.hits,
                                counters_.hits + counters_.misses + rejected, folder_);
  for (const auto& entry : counters_.rejected) out += fmt::format("; {} rejected: {}", entry.second, entry.first);
  return out;
}

}  // namespace reprise
