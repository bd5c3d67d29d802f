// The world that the variables of launchers tell.
#include "ranks/launcher.h"

#include <gtest/gtest.h>

#include <map>

namespace reprise::ranks {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment(const Variables& v) {
  return [&v](const char* name) -> const char* {
    const auto found = v.find(name);
    return found == v.end() ? nullptr : found->second.c_str();
  };
}

// "rank/size, local rank/local size", "-" for none, or the error.
std::string world_of(const Variables& v, int64_t size, Launcher launcher = Launcher::Auto, int64_t hosts = 1) {
  const auto found = launched_world(environment(v), {launcher, size, hosts});
  if (!found.is_ok()) return found.status().message();
  if (!*found) return "-";
  const World& w = (*found)->world;
  return fmt::format("{}/{}, {}/{}", w.rank, w.size, w.local_rank, w.local_size);
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kPmi = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm = {{"SLURM_PROCID", "5"},
                          {"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};

Variables with(Variables v, const Variables& more) {
  for (const auto& [name, value] : more) v[name] = value;
  return v;
}

TEST(Launcher, EachFamilyTellsTheWorld) {
  EXPECT_EQ(world_of(kOpenMpi, 4), "3/4, 1/2");
  EXPECT_EQ(world_of(kPmi, 4), "2/4, 0/2");
  EXPECT_EQ(world_of(kSlurm, 7), "5/7, 1/2");
  EXPECT_EQ(world_of(with(kSlurm, {{"SLURM_NODEID", "3"}, {"SLURM_LOCALID", "0"}, {"SLURM_PROCID", "6"}}), 7),
            "6/7, 0/1");
  EXPECT_EQ(launched_rank(environment(kOpenMpi)), 3);
  EXPECT_EQ(launched_rank(environment({})), 0);
}

TEST(Launcher, OneProcessOrNoneIsNoWorld) {
  EXPECT_EQ(world_of({}, 4), "-");
  EXPECT_EQ(world_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}), 2), "-");
  // A batch script of Slurm runs once, whatever it may start.
  EXPECT_EQ(world_of({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}, 2), "-");
  EXPECT_EQ(world_of(kOpenMpi, 2, Launcher::Self), "-");
}

TEST(Launcher, OverMpiEveryRankIsAHost) { EXPECT_EQ(world_of(kOpenMpi, 4, Launcher::Mpi), "3/4, 0/1"); }

// mpirun reaches other hosts through srun inside an allocation: those tasks are its helpers.
TEST(Launcher, SlurmsTasksUnderMpirunAreNoRanks) {
  EXPECT_EQ(world_of(with(kOpenMpi, {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"}}), 4),
            "3/4, 1/2");
}

TEST(Launcher, SizesThatDisagreeAreNamed) {
  EXPECT_EQ(world_of(kOpenMpi, 2), "mpirun started 4 processes (OMPI_COMM_WORLD_SIZE) but `tp_size` 2 asks for 2");
  EXPECT_EQ(world_of(kSlurm, 1), "srun started 7 processes (SLURM_STEP_NUM_TASKS) but `tp_size` 1 asks for 1");
  EXPECT_EQ(world_of(with(kOpenMpi, with(kPmi, {{"PMI_SIZE", "8"}})), 4),
            "two launchers disagree: OMPI_COMM_WORLD_SIZE is 4, PMI_SIZE is 8; `dist_launcher` self ignores both");
  EXPECT_EQ(world_of(with(kOpenMpi, kPmi), 4),
            "two launchers disagree: OMPI_COMM_WORLD_RANK is 3, PMI_RANK is 2; `dist_launcher` self ignores both");
}

TEST(Launcher, WhatIsNoNumberIsNamed) {
  EXPECT_EQ(world_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "x"}}), 4),
            "OMPI_COMM_WORLD_RANK is \"x\"; a launcher sets it to a number");
  EXPECT_EQ(world_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4 "}}), 4),
            "OMPI_COMM_WORLD_SIZE is \"4 \"; a launcher sets it to a number");
  Variables half = kPmi;
  half.erase("MPI_LOCALNRANKS");
  EXPECT_EQ(world_of(half, 4), "MPI_LOCALNRANKS is not set, though other variables of its launcher are");
  EXPECT_EQ(world_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}), 4),
            "mpirun: rank 2 of the 2 on a host does not exist; allowed: 0 to 1");
  for (const char* list : {"", "x", "2(x", "0", "2(x3", "2,"})
    EXPECT_NE(world_of(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", list}, {"SLURM_NODEID", "4"}}), 7)
                  .find("gives no number of tasks"),
              std::string::npos)
        << list;
}

TEST(Launcher, SeveralHostsNeedOne) {
  EXPECT_EQ(world_of({}, 4, Launcher::Auto, 2),
            "`nnodes` 2 on the CPU needs MPI, whose launcher starts all ranks: mpirun -n 4 -host HOST1:2,HOST2:... "
            "reprise serve `tp_size` 4 ... on one of the hosts");
  EXPECT_EQ(world_of(kOpenMpi, 4, Launcher::Auto, 2), "3/4, 1/2");
  Variables one = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(world_of(one, 4, Launcher::Auto, 2), "`nnodes` 2: mpirun started all 4 processes on one host");
  for (const Launcher launcher : {Launcher::Environment, Launcher::Mpi})
    EXPECT_NE(world_of({}, 2, launcher).find("start with mpirun or srun"), std::string::npos);
  EXPECT_FALSE(parse_launcher("slurm").is_ok());
}

}  // namespace
}  // namespace reprise::ranks
