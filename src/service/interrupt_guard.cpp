#include "service/interrupt_guard.h"

#include <signal.h>

namespace reprise::service {
namespace {

volatile sig_atomic_t g_interrupted = 0;
struct sigaction g_before_guard {};

void on_guarded_interrupt(int) { g_interrupted = 1; }

}  // namespace

InterruptGuard::InterruptGuard() {
  g_interrupted = 0;
  struct sigaction action {};
  action.sa_handler = on_guarded_interrupt;
  ::sigaction(SIGINT, &action, &g_before_guard);
}

InterruptGuard::~InterruptGuard() { ::sigaction(SIGINT, &g_before_guard, nullptr); }

bool InterruptGuard::interrupted() { return g_interrupted != 0; }

}  // namespace reprise::service
