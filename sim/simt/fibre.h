// Fibre: a function with a stack of its own that runs until it yields, and goes on from there. Used by one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace reprise::simt {

// Stacks that fibres use one after another; fibre i of every block has the i-th.
class FibreStacks {
 public:
  static constexpr size_t kBytes = size_t{256} << 10;  // sanitizers widen frames; what is not touched takes no memory
  char* stack(size_t i);

 private:
  std::vector<std::unique_ptr<char[]>> stacks_;
};

class Fibre {
 public:
  // `stack` has FibreStacks::kBytes and outlives the fibre. A fibre that is destroyed before its end leaves what lies
  // on its stack behind.
  Fibre(char* stack, std::function<void()> body);
  ~Fibre();
  Fibre(const Fibre&) = delete;

  bool ended() const { return ended_; }
  void resume();
  void yield();  // by the fibre itself

  struct Switch;  // how one changes stacks on this machine

 private:
  static void start(Fibre* self);

  std::unique_ptr<Switch> switch_;
  std::function<void()> body_;
  char* stack_;
  bool ended_ = false;
};

}  // namespace reprise::simt
