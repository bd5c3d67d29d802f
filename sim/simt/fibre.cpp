#include "simt/fibre.h"

#include <cstdint>
#include <cstdlib>

#include "base/sanitizer.h"

#if REPRISE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace reprise::simt {

char* FibreStacks::stack(size_t i) {
  while (stacks_.size() <= i) stacks_.push_back(std::make_unique_for_overwrite<char[]>(kBytes));
  return stacks_[i].get();
}

#if defined(__x86_64__)

// Saves what a callee must keep and the stack pointer, and takes the other's. A tenth of swapcontext's time, which
// enters the kernel for the signal mask.
extern "C" void reprise_simt_switch(void** save, void* load);
asm(R"(
.text
.globl reprise_simt_switch
.type reprise_simt_switch, @function
reprise_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size reprise_simt_switch, .-reprise_simt_switch
.section .note.GNU-stack,"",@progbits
.text
)");

struct Fibre::Switch {
  void* mine = nullptr;
  void* callers = nullptr;
  Fibre* fibre = nullptr;
  void* fake = nullptr;
  void* callers_fake = nullptr;
  const void* callers_stack = nullptr;
  size_t callers_size = 0;

  // The first resume returns into this, with the fibre in rbx.
  static void enter() {
    Fibre* self;
    asm volatile("movq %%rbx, %0" : "=r"(self));
    start(self);
  }
  void prepare(Fibre* f, char* stack) {
    fibre = f;
    auto top = reinterpret_cast<uintptr_t>(stack + FibreStacks::kBytes) & ~uintptr_t{15};
    auto* at = reinterpret_cast<void**>(top);
    *--at = nullptr;  // enter() never returns; its frame is aligned as after a call
    *--at = reinterpret_cast<void*>(&enter);
    *--at = nullptr;  // rbp
    *--at = f;        // rbx
    for (int i = 0; i < 4; ++i) *--at = nullptr;
    mine = at;
  }
  void in() { reprise_simt_switch(&callers, mine); }
  void out() { reprise_simt_switch(&mine, callers); }
};

#else

struct Fibre::Switch {
  ucontext_t mine, callers;
  Fibre* fibre = nullptr;
  void* fake = nullptr;
  void* callers_fake = nullptr;
  const void* callers_stack = nullptr;
  size_t callers_size = 0;

  static void enter(unsigned high, unsigned low) {
    start(reinterpret_cast<Fibre*>(static_cast<uintptr_t>(high) << 32 | low));
  }
  void prepare(Fibre* f, char* stack) {
    fibre = f;
    getcontext(&mine);
    mine.uc_stack.ss_sp = stack;
    mine.uc_stack.ss_size = FibreStacks::kBytes;
    mine.uc_link = nullptr;
    const auto p = reinterpret_cast<uintptr_t>(f);
    makecontext(&mine, reinterpret_cast<void (*)()>(enter), 2, static_cast<unsigned>(p >> 32),
                static_cast<unsigned>(p));
  }
  void in() { swapcontext(&callers, &mine); }
  void out() { swapcontext(&mine, &callers); }
};

#endif

Fibre::Fibre(char* stack, std::function<void()> body)
    : switch_(std::make_unique<Switch>()), body_(std::move(body)), stack_(stack) {
  switch_->prepare(this, stack);
}

Fibre::~Fibre() = default;

void Fibre::start(Fibre* self) {
#if REPRISE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &self->switch_->callers_stack, &self->switch_->callers_size);
#endif
  self->body_();
  self->ended_ = true;
#if REPRISE_ASAN
  __sanitizer_start_switch_fiber(nullptr, self->switch_->callers_stack, self->switch_->callers_size);
#endif
  self->switch_->out();
  std::abort();  // an ended fibre is not resumed
}

void Fibre::resume() {
#if REPRISE_ASAN
  __sanitizer_start_switch_fiber(&switch_->callers_fake, stack_, FibreStacks::kBytes);
#endif
  switch_->in();
#if REPRISE_ASAN
  __sanitizer_finish_switch_fiber(switch_->callers_fake, nullptr, nullptr);
#endif
}

void Fibre::yield() {
#if REPRISE_ASAN
  __sanitizer_start_switch_fiber(&switch_->fake, switch_->callers_stack, switch_->callers_size);
#endif
  switch_->out();
#if REPRISE_ASAN
  __sanitizer_finish_switch_fiber(switch_->fake, &switch_->callers_stack, &switch_->callers_size);
#endif
}

}  // namespace reprise::simt
