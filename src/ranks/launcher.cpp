#include "ranks/launcher.h"

#include <unistd.h>

#include <charconv>
#include <vector>

namespace reprise::ranks {
namespace {

// Variables of one kind of launcher. A family counts when its size is above 1.
struct Family {
  const char* starter;
  const char *rank, *size, *local_rank, *local_size;
  const char* job;  // null: processes of a job and host have one parent
};
// Slurm's size is the step's: SLURM_NTASKS is set in a batch script, which runs once.
constexpr Family kFamilies[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    {"the PMI launcher", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_JOB_ID"}};

Result<int> number_of(const Environment& env, const char* name) {
  const char* text = env(name);
  if (!text) return invalid("{} is not set, though other variables of its launcher are", name);
  const std::string_view digits = text;
  int n = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (digits.empty() || problem != std::errc() || end != digits.data() + digits.size() || n < 0)
    return invalid("{} is \"{}\"; a launcher sets it to a number", name, text);
  return n;
}

// Slurm's "2(x3),1": tasks by node.
Result<int> slurm_tasks(const Environment& env) {
  constexpr const char *kList = "SLURM_STEP_TASKS_PER_NODE", *kNode = "SLURM_NODEID";
  ASSIGN_OR_RETURN(const int node, number_of(env, kNode));
  const char* text = env(kList);
  if (!text) return invalid("{} is not set, though other variables of its launcher are", kList);
  const char *at = text, *end = text + std::string_view(text).size();
  for (int first = 0; at < end;) {
    int tasks = 0, nodes = 1;
    const auto number = std::from_chars(at, end, tasks);
    at = number.ptr;
    if (number.ec == std::errc() && std::string_view(at, end).starts_with("(x")) {
      at = std::from_chars(at + 2, end, nodes).ptr;
      if (at < end && *at == ')') ++at;
    }
    if (tasks < 1 || nodes < 1 || (at < end && *at != ',')) break;
    if (node < first + nodes) return tasks;
    first += nodes;
    if (at < end) ++at;
  }
  return invalid("{} is \"{}\" and {} is {}; the first gives no number of tasks for the second", kList, text, kNode,
                 node);
}

bool counts(const Environment& env, const Family& f) {
  const auto size = number_of(env, f.size);
  return env(f.size) && (!size.is_ok() || *size > 1);
}

Result<LaunchedWorld> read(const Environment& env, const Family& f) {
  LaunchedWorld out;
  ASSIGN_OR_RETURN(out.world.rank, number_of(env, f.rank));
  ASSIGN_OR_RETURN(out.world.size, number_of(env, f.size));
  ASSIGN_OR_RETURN(out.world.local_rank, number_of(env, f.local_rank));
  if (f.local_size) {
    ASSIGN_OR_RETURN(out.world.local_size, number_of(env, f.local_size));
  } else {
    ASSIGN_OR_RETURN(out.world.local_size, slurm_tasks(env));
  }
  const char* job = f.job ? env(f.job) : nullptr;
  const char* step = env("SLURM_STEP_ID");
  out.job = job ? fmt::format("{}.{}", job, step ? step : "0") : fmt::format("parent {}", ::getppid());
  return out;
}

// mpirun starts one helper a host through srun inside an allocation of Slurm; those tasks are no ranks.
std::vector<const Family*> families(const Environment& env) {
  std::vector<const Family*> out;
  for (const Family& f : kFamilies)
    if (counts(env, f) && (out.empty() || &f != &kFamilies[2])) out.push_back(&f);
  return out;
}

constexpr std::pair<const char*, Launcher> kNames[] = {
    {"auto", Launcher::Auto}, {"self", Launcher::Self}, {"env", Launcher::Environment}, {"mpi", Launcher::Mpi}};

Status needs_launcher(const Environment& env, const WorldWish& wish) {
  const bool pods = env("LWS_GROUP_SIZE") && wish.hosts > 1;
  return invalid(
      "`nnodes` {}{} on the CPU needs MPI, whose launcher starts all ranks: mpirun -n {} -host "
      "HOST1:{},HOST2:... reprise {} `tp_size` {} ... on one of the hosts",
      wish.hosts, pods ? " (LWS_GROUP_SIZE)" : "", wish.size, std::max<int64_t>(1, wish.size / wish.hosts),
      wish.command, wish.size);
}

}  // namespace

Result<Launcher> parse_launcher(const std::string& name) {
  for (const auto& [text, value] : kNames)
    if (name == text) return value;
  return invalid("`dist_launcher` \"{}\" is unknown; allowed: auto, self, env, mpi", name);
}

Result<std::optional<LaunchedWorld>> launched_world(const Environment& env, const WorldWish& wish) {
  const auto found = wish.launcher == Launcher::Self ? std::vector<const Family*>() : families(env);
  if (found.empty()) {
    if (wish.hosts > 1) return needs_launcher(env, wish);
    if (wish.launcher == Launcher::Environment || wish.launcher == Launcher::Mpi)
      return invalid(
          "`dist_launcher` {}: no launcher has set OMPI_COMM_WORLD_SIZE, PMI_SIZE or SLURM_STEP_NUM_TASKS "
          "above 1; start with mpirun or srun",
          wish.launcher == Launcher::Mpi ? "mpi" : "env");
    return std::optional<LaunchedWorld>();
  }
  ASSIGN_OR_RETURN(LaunchedWorld out, read(env, *found[0]));
  for (const Family* other : found) {
    ASSIGN_OR_RETURN(const LaunchedWorld same, read(env, *other));
    if (same.world.size != out.world.size)
      return invalid("two launchers disagree: {} is {}, {} is {}; `dist_launcher` self ignores both", found[0]->size,
                     out.world.size, other->size, same.world.size);
    if (same.world.rank != out.world.rank)
      return invalid("two launchers disagree: {} is {}, {} is {}; `dist_launcher` self ignores both", found[0]->rank,
                     out.world.rank, other->rank, same.world.rank);
  }
  if (out.world.size != wish.size)
    return invalid("{} started {} processes ({}) but `tp_size` {} asks for {}", found[0]->starter, out.world.size,
                   found[0]->size, wish.size, wish.size);
  if (wish.launcher == Launcher::Mpi) {
    out.world.local_rank = 0;
    out.world.local_size = 1;
  } else if (wish.hosts > 1 && out.world.one_host()) {
    return invalid("`nnodes` {}: {} started all {} processes on one host", wish.hosts, found[0]->starter,
                   out.world.size);
  } else {
    out.hosts = wish.hosts;
  }
  if (Status can = check_world(out.world); !can.is_ok()) return can.at(found[0]->starter);
  return std::optional<LaunchedWorld>(std::move(out));
}

int launched_rank(const Environment& env) {
  const auto found = families(env);
  if (found.empty()) return 0;
  const auto rank = number_of(env, found[0]->rank);
  return rank.is_ok() ? *rank : 0;
}

}  // namespace reprise::ranks
