// Processors: those that this process may use, as they were when it looked, and their division into shares. A plain
// value; any thread.
//
// Processors of one memory node stay together, and so do those of one core: a rank whose share lies in one node has its
// weights, its cache and its activations there, since memory goes where it is touched first.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::ranks {

class Processors {
 public:
  // Those of the calling thread, as they lie in the machine.
  static Processors allowed();
  // All processors of the machine, also those that this process may not use: a launcher that bound it to some says
  // nothing of the others.
  static Processors online(const std::filesystem::path& root = "/sys/devices/system");
  // Only the allowed processors, in the nodes that `root` (/sys/devices/system) names.
  Processors(const std::vector<int>& allowed, const std::filesystem::path& root);

  int count() const;
  // Cores that they belong to: siblings share one (SMT). Memory nodes that they lie in.
  int cores() const;
  int nodes() const { return static_cast<int>(nodes_.size()); }
  // In the order in which threads take them: one of each core, node by node, then the siblings of those.
  std::vector<int> in_thread_order() const;
  // Shares as settings ask for: `bind` has the processors of each ("0-31|32-63"), or `nodes` the memory node of each
  // ("0,1"; those of one node share it out). Both empty, or `bind` "all" or "auto": as above; "nobind": nothing is
  // taken. Other numbers of shares are an error, as are processors that are not among these or in two shares. After an
  // error nothing is asked for. It names `bind_name`, the setting or the variable that `bind` is from.
  Status ask(std::string_view bind, std::string_view nodes, int shares, std::string_view bind_name = "`cpu_bind`");
  bool asked() const { return !asked_.empty(); }
  bool unbound() const { return unbound_; }
  // The processors of share `index` of `of`; empty where there are fewer processors than shares.
  std::vector<int> share(int index, int of) const;
  // The calling thread, and those that it starts from now on, keep to the share. False, and nothing is changed, where
  // there is none. Only what was asked for is taken where `bound`: a launcher has given this process its processors. A
  // warning tells where the system refuses what was asked for.
  bool take(int index, int of, bool bound = false) const;

 private:
  Status ask_sets(std::string_view bind, int shares, std::string_view name);
  Status ask_nodes(std::string_view nodes, int shares);

  struct Node {
    int number = 0;
    std::vector<int> processors;  // those of a core beside each other
    std::vector<int> cores;       // of each, the first processor of its core
  };
  std::vector<Node> nodes_;
  std::vector<std::vector<int>> asked_;
  bool unbound_ = false;
};

}  // namespace reprise::ranks
