// A preload that lets other engines use AMX where a virtual machine has it and hides its description: CPUID leaves 1DH
// (palettes of tiles) and 1EH (sizes of products) are zeros there, and oneDNN's kernels fail. CPUID is made to fault,
// and these two leaves are answered as Intel's manual has them for palette 1.
//
//   gcc -O2 -shared -fPIC amx_cpuid_shim.c -o shim.so && LD_PRELOAD=./shim.so program
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { kSetCpuid = 0x1012, kRequestPermission = 0x1023, kTileData = 18 };

static long let_cpuid(unsigned long allowed) { return syscall(SYS_arch_prctl, kSetCpuid, allowed); }

static void answer(int signal_number, siginfo_t* info, void* context) {
  (void)signal_number;
  greg_t* reg = ((ucontext_t*)context)->uc_mcontext.gregs;
  const uint8_t* at = (const uint8_t*)reg[REG_RIP];
  // Another fault than a general protection at CPUID: the default, which ends the program.
  if (info->si_code != SI_KERNEL || at[0] != 0x0f || at[1] != 0xa2) {
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  const uint32_t leaf = (uint32_t)reg[REG_RAX], part = (uint32_t)reg[REG_RCX];
  uint32_t a = leaf, b, c = part, d;
  let_cpuid(1);
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  let_cpuid(0);
  if (leaf == 0x1d && part == 0) {
    a = 1;
    b = c = d = 0;
  } else if (leaf == 0x1d && part == 1) {
    a = 8192 | 1024u << 16;  // bytes of all tiles and of one
    b = 64 | 8u << 16;       // bytes of a row, tiles
    c = 16;                  // rows
    d = 0;
  } else if (leaf == 0x1e && part == 0) {
    a = 0;
    b = 16 | 64u << 8;  // k and n of a product
    c = d = 0;
  }
  reg[REG_RAX] = a;
  reg[REG_RBX] = b;
  reg[REG_RCX] = c;
  reg[REG_RDX] = d;
  reg[REG_RIP] += 2;
}

__attribute__((constructor)) static void start(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = answer;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, 0);
  syscall(SYS_arch_prctl, kRequestPermission, kTileData);
  if (let_cpuid(0) != 0) perror("CPUID cannot be made to fault, so AMX stays hidden");
}
