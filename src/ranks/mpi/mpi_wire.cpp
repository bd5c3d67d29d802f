// libreprise-mpi.so: the wire between hosts over MPI. Loaded by the process that links a host to the others
// (src/ranks/link_process.h), which alone calls it.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <climits>
#include <cstdio>
#include <vector>

#include "ranks/wire.h"

namespace {

constexpr int kTag = 1;
MPI_Comm world = MPI_COMM_NULL;
std::vector<MPI_Message> found;  // by rank: what next() has seen and receive() takes

int complain(int code, const char* what, char* problem, size_t bytes) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::snprintf(problem, bytes, "MPI: %s: %s", what, text);
  return 1;
}

int start(int32_t mine, int32_t* rank, int32_t* size, int32_t* all, int32_t room, char* problem, size_t bytes) {
  int got = 0;
  if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &got); code != MPI_SUCCESS)
    return complain(code, "MPI_Init_thread", problem, bytes);
  if (const int code = MPI_Comm_dup(MPI_COMM_WORLD, &world); code != MPI_SUCCESS)
    return complain(code, "MPI_Comm_dup", problem, bytes);
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  int r = 0, n = 0;
  MPI_Comm_rank(world, &r);
  MPI_Comm_size(world, &n);
  *rank = r;
  *size = n;
  if (n > room) {
    std::snprintf(problem, bytes, "MPI has %d processes; allowed: %d", n, room);
    return 1;
  }
  if (const int code = MPI_Allgather(&mine, 1, MPI_INT32_T, all, 1, MPI_INT32_T, world); code != MPI_SUCCESS)
    return complain(code, "MPI_Allgather", problem, bytes);
  found.assign(static_cast<size_t>(n), MPI_MESSAGE_NULL);
  return 0;
}

void* send(int32_t to, const void* data, size_t bytes) {
  if (bytes > INT_MAX) return nullptr;
  auto* request = new MPI_Request;
  if (MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, kTag, world, request) == MPI_SUCCESS) return request;
  delete request;
  return nullptr;
}

int64_t next(int32_t from) {
  int there = 0, count = 0;
  MPI_Status status;
  MPI_Message& message = found[static_cast<size_t>(from)];
  if (MPI_Improbe(from, kTag, world, &there, &message, &status) != MPI_SUCCESS) return -2;
  if (!there) return -1;
  return MPI_Get_count(&status, MPI_BYTE, &count) == MPI_SUCCESS && count >= 0 ? count : -2;
}

void* receive(int32_t from, void* data, size_t bytes) {
  auto* request = new MPI_Request;
  if (MPI_Imrecv(data, static_cast<int>(bytes), MPI_BYTE, &found[static_cast<size_t>(from)], request) == MPI_SUCCESS)
    return request;
  delete request;
  return nullptr;
}

int done(void* operation) {
  auto* request = static_cast<MPI_Request*>(operation);
  int flag = 0;
  const int code = MPI_Test(request, &flag, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS && !flag) return 0;
  delete request;
  return code == MPI_SUCCESS ? 1 : -1;
}

void finish() {
  MPI_Comm_free(&world);
  MPI_Finalize();
}

constexpr reprise_wire kWire{REPRISE_WIRE_VERSION, start, send, receive, next, done, finish};

}  // namespace

extern "C" __attribute__((visibility("default"))) const reprise_wire* reprise_mpi_wire() { return &kWire; }
