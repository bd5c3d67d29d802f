// The world that a launcher (mpirun, srun) says this process belongs to, as its variables tell. Plain functions.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ranks/world.h"

namespace reprise::ranks {

enum class Launcher : uint8_t {
  Auto,         // the environment where it names a world, else this program
  Self,         // this program starts the other ranks
  Environment,  // the environment has to name a world
  Mpi,          // as Environment; all ranks meet over MPI, also those of one host
};
Result<Launcher> parse_launcher(const std::string& name);

// What the settings ask for.
struct WorldWish {
  Launcher launcher = Launcher::Auto;
  int64_t size = 1;
  int64_t hosts = 1;
  std::string command = "serve";  // for messages
};

struct LaunchedWorld {
  World world;
  std::string job;    // the same for all ranks of a host, and no other job's
  int64_t hosts = 1;  // above 1: so many are expected
};

using Environment = std::function<const char*(const char*)>;

// None where this program starts its ranks itself. A world of another size than the settings ask for, and launchers
// that disagree, are errors that name both.
Result<std::optional<LaunchedWorld>> launched_world(const Environment& env, const WorldWish& wish);

// The number of this process among those that a launcher started; 0 without one. For who speaks, before settings are
// read.
int launched_rank(const Environment& env);

}  // namespace reprise::ranks
