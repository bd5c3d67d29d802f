// What carries messages between hosts: a table of functions that a shared object of its own gives (libreprise-mpi.so),
// so that the program links no MPI. Messages of one pair of ranks arrive in the order in which they were sent. One
// thread uses a table; no function waits, except start and finish.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

#define REPRISE_WIRE_VERSION 1u

struct reprise_wire {
  uint32_t version;
  // Every process of the job calls it once: its number, how many there are, and what each has given as `mine`, by rank
  // (room for `room` of them). 0, or a line in `problem`.
  int (*start)(int32_t mine, int32_t* rank, int32_t* size, int32_t* all, int32_t room, char* problem, size_t bytes);
  // An operation under way; the bytes are the caller's and stay until done() says 1. Null: failed.
  void* (*send)(int32_t to, const void* data, size_t bytes);
  void* (*receive)(int32_t from, void* data, size_t bytes);
  int64_t (*next)(int32_t from);  // bytes of the next message, -1: none, -2: failed
  int (*done)(void* operation);   // 1: yes, and it is gone; 0: not yet; -1: failed
  void (*finish)();               // every process calls it; returns when all have
};

using reprise_wire_entry = const reprise_wire* (*)();
}
