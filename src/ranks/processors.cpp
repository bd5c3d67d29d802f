#include "ranks/processors.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/log.h"

namespace reprise::ranks {
namespace {

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(by, at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || end != text.data() + text.size() || value < 0 || value >= CPU_SETSIZE)
    return std::nullopt;
  return value;
}

// "0-3,8": a list as the kernel writes and takes it.
std::optional<std::vector<int>> list(std::string_view text) {
  std::vector<int> out;
  for (const std::string_view part : split(text, ',')) {
    const size_t dash = part.find('-');
    const auto first = number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (int i = *first; i <= *last; ++i) out.push_back(i);
  }
  return out;
}

// Empty where there is no such file, or no list in it.
std::vector<int> read_list(const std::filesystem::path& file) {
  std::string line;
  std::ifstream in(file);
  if (!std::getline(in, line)) return {};
  return list(line).value_or(std::vector<int>());
}

// Part `index` of `of` equal ones, or equal but for one.
template <typename T>
std::vector<T> part_of(const std::vector<T>& all, int index, int of) {
  const size_t n = all.size(), first = n * static_cast<size_t>(index) / static_cast<size_t>(of),
               end = n * (static_cast<size_t>(index) + 1) / static_cast<size_t>(of);
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

Processors Processors::allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) out.push_back(i);
  return {out, "/sys/devices/system"};
}

Processors Processors::online(const std::filesystem::path& root) {
  const std::vector<int> all = read_list(root / "cpu/online");
  return all.empty() ? allowed() : Processors(all, root);
}

Processors::Processors(const std::vector<int>& allowed, const std::filesystem::path& root) {
  std::vector<int> left = allowed;
  for (const int node : read_list(root / "node/online")) {
    Node mine{node, {}, {}};
    for (const int cpu : read_list(root / fmt::format("node/node{}/cpulist", node)))
      if (std::erase(left, cpu) > 0) mine.processors.push_back(cpu);
    if (!mine.processors.empty()) nodes_.push_back(std::move(mine));
  }
  if (nodes_.empty()) nodes_.emplace_back();
  Node& last = nodes_.back();
  last.processors.insert(last.processors.end(), left.begin(), left.end());  // of which no node is known
  for (Node& node : nodes_) {
    std::map<int, int> core;  // by its first processor
    for (const int cpu : node.processors) {
      const std::vector<int> together = read_list(root / fmt::format("cpu/cpu{}/topology/thread_siblings_list", cpu));
      core[cpu] = together.empty() ? cpu : together[0];
    }
    std::sort(node.processors.begin(), node.processors.end(),
              [&](int a, int b) { return std::pair(core[a], a) < std::pair(core[b], b); });
    for (const int cpu : node.processors) node.cores.push_back(core[cpu]);
  }
}

int Processors::cores() const {
  std::set<int> all;
  for (const Node& node : nodes_) all.insert(node.cores.begin(), node.cores.end());
  return static_cast<int>(all.size());
}

std::vector<int> Processors::in_thread_order() const {
  std::map<int, std::vector<int>> turns;  // processors that are the first of their core, the second, ...
  std::map<int, int> taken;               // of each core
  for (const Node& node : nodes_)
    for (size_t i = 0; i < node.processors.size(); ++i) turns[taken[node.cores[i]]++].push_back(node.processors[i]);
  std::vector<int> out;
  for (const auto& [turn, processors] : turns) out.insert(out.end(), processors.begin(), processors.end());
  return out;
}

int Processors::count() const {
  size_t all = 0;
  for (const Node& node : nodes_) all += node.processors.size();
  return static_cast<int>(all);
}

Status Processors::ask(std::string_view bind, std::string_view nodes, int shares, std::string_view bind_name) {
  if (!bind.empty() && !nodes.empty())
    return invalid("{} {} and `numa_node` {}: both say where ranks run; leave one of them out", bind_name, bind, nodes);
  if (!nodes.empty()) return ask_nodes(nodes, shares);
  unbound_ = bind == "nobind";
  const bool usual = bind.empty() || bind == "all" || bind == "auto" || unbound_;
  return usual ? Status::ok() : ask_sets(bind, shares, bind_name);
}

Status Processors::ask_sets(std::string_view bind, int shares, std::string_view name) {
  const std::vector<std::string_view> parts = split(bind, '|');
  if (static_cast<int>(parts.size()) != shares)
    return invalid("{} {}: processors of {} rank{}, and this host has {}; allowed: a list for each, as {}", name, bind,
                   parts.size(), parts.size() == 1 ? "" : "s", shares, "0-31|32-63");
  std::vector<int> all;
  for (const Node& node : nodes_) all.insert(all.end(), node.processors.begin(), node.processors.end());
  std::sort(all.begin(), all.end());
  std::vector<std::vector<int>> asked;
  std::map<int, size_t> owner;
  for (const std::string_view part : parts) {
    auto mine = list(part);
    if (!mine) return invalid("{} {}: \"{}\" is no list of processors, as 0-31 or 0,2,4-7", name, bind, part);
    for (const int cpu : *mine) {
      if (!std::binary_search(all.begin(), all.end(), cpu))
        return invalid("{} {}: processor {} is not this process's; allowed: {}", name, bind, cpu, fmt::join(all, ", "));
      if (owner.try_emplace(cpu, asked.size()).first->second != asked.size())
        return invalid("{} {}: processor {} is in two lists; allowed: in one", name, bind, cpu);
    }
    asked.push_back(std::move(*mine));
  }
  asked_ = std::move(asked);
  return Status::ok();
}

Status Processors::ask_nodes(std::string_view nodes, int shares) {
  std::vector<int> wanted;
  for (const std::string_view part : split(nodes, ',')) {
    const auto node = number(part);
    if (!node) return invalid("`numa_node` {}: \"{}\" is no number of a memory node; allowed: as 0,1", nodes, part);
    wanted.push_back(*node);
  }
  if (static_cast<int>(wanted.size()) != shares)
    return invalid("`numa_node` {}: allowed: a memory node for each rank of this host, {} numbers as 0,1", nodes,
                   shares);
  std::vector<std::vector<int>> asked;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto node = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& n) { return n.number == wanted[i]; });
    const auto at = wanted.begin() + static_cast<std::ptrdiff_t>(i);
    const auto of = static_cast<int>(std::count(wanted.begin(), wanted.end(), wanted[i]));
    std::vector<int> known;
    for (const Node& n : nodes_) known.push_back(n.number);
    if (node == nodes_.end() || static_cast<int>(node->processors.size()) < of)
      return invalid("`numa_node` {}: node {} has no {} processors for its ranks; nodes of this process: {}", nodes,
                     wanted[i], of, fmt::join(known, ", "));
    asked.push_back(part_of(node->processors, static_cast<int>(std::count(wanted.begin(), at, wanted[i])), of));
  }
  asked_ = std::move(asked);
  return Status::ok();
}

std::vector<int> Processors::share(int index, int of) const {
  if (asked())
    return static_cast<size_t>(index) < asked_.size() ? asked_[static_cast<size_t>(index)] : std::vector<int>();
  if (count() < of) return {};
  const int nodes = static_cast<int>(nodes_.size()), each = of / nodes;
  const auto [least, most] = std::minmax_element(nodes_.begin(), nodes_.end(), [](const Node& a, const Node& b) {
    return a.processors.size() < b.processors.size();
  });
  // A node of which this process has only a little is no fair share.
  const bool near_equal = most->processors.size() * 4 <= least->processors.size() * 5;
  if (near_equal && of % nodes == 0 && static_cast<int>(least->processors.size()) >= each)
    return part_of(nodes_[static_cast<size_t>(index / each)].processors, index % each, each);
  const bool whole = near_equal && nodes % of == 0;
  std::vector<int> all;
  for (const Node& node : whole ? part_of(nodes_, index, of) : nodes_)
    all.insert(all.end(), node.processors.begin(), node.processors.end());
  return whole ? all : part_of(all, index, of);
}

bool Processors::take(int index, int of, bool bound) const {
  if (unbound_ || (bound && !asked())) return false;
  const std::vector<int> mine = share(index, of);
  if (mine.empty()) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : mine) CPU_SET(cpu, &set);
  if (::sched_setaffinity(0, sizeof set, &set) == 0) return true;
  if (asked())
    log::warning("share {} of this host's processors, {}: not taken ({}); its rank goes on where it was", index,
                 fmt::join(mine, ", "), std::strerror(errno));
  return false;
}

}  // namespace reprise::ranks
