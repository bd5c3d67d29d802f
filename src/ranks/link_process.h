// LinkProcess: the process beside a rank through which its host reaches the others, where a world has several hosts.
//
// MPI wants every process of a job to take part in its start and end, may end the process that called it when a peer is
// gone, and needs a thread that looks after it at all times. So each rank forks a child for it: the leader's runs a
// Link; the others' only keep their rank's place in the job. A child sees its rank end, and tells the world. start() is
// for a process with one thread. The rank owns the object.
#pragma once

#include <chrono>
#include <memory>

#include "ranks/region.h"
#include "ranks/wire.h"

namespace reprise::ranks {

// libreprise-mpi.so, in lib beside the folder of the binary, or where REPRISE_MPI_DIR says.
Result<const reprise_wire*> find_mpi_wire();

class LinkProcess {
 public:
  // `leader`: the rank that leads this host. `hosts`: above 1, there must be so many.
  static Result<std::unique_ptr<LinkProcess>> start(const std::shared_ptr<Region>& region, const World& world,
                                                    int leader, int64_t hosts, std::chrono::milliseconds timeout);
  // In order, unless end_in_order() was not called.
  ~LinkProcess();
  LinkProcess(const LinkProcess&) = delete;
  LinkProcess& operator=(const LinkProcess&) = delete;

  int process() const { return process_; }
  int descriptor() const { return descriptor_; }  // readable when it has ended
  // The world ends in order: what was said goes out, then all hosts part. Waits for that, some seconds at most.
  void end_in_order();

 private:
  LinkProcess() = default;

  int process_ = 0;
  int descriptor_ = -1, lifeline_ = -1;
};

}  // namespace reprise::ranks
