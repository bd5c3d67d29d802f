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
  // Of these only, in the nodes that `root` tells of (/sys/devices/system).
  Processors(const std::vector<int>& allowed, const std::filesystem::path& root);

  int count() const;
  // Shares as somebody asks for: `bind` has the processors of each ("0-31|32-63"), or `nodes` the memory node of each
  // ("0,1"; those of one node share it out). Both empty, or `bind` "all" or "auto": as above. Shares behind the last
  // are an error, as are processors that this process may not use.
  Status ask(std::string_view bind, std::string_view nodes, int shares);
  bool asked() const { return !asked_.empty(); }
  // Of share `index` of `of`; empty where there are fewer processors than shares.
  std::vector<int> share(int index, int of) const;
  // The calling thread, and those that it starts from now on, keep to the share. False, and nothing is changed, where
  // there is none. Only what was asked for is taken where `bound`: a launcher has given this process its processors.
  bool take(int index, int of, bool bound = false) const;

 private:
  Status ask_sets(std::string_view bind, int shares);
  Status ask_nodes(std::string_view nodes, int shares);

  struct Node {
    int number = 0;
    std::vector<int> processors;  // those of a core beside each other
  };
  std::vector<Node> nodes_;
  std::vector<std::vector<int>> asked_;
};

}  // namespace reprise::ranks
