#include "sched/request.h"

namespace reprise::sched {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::None: return "none";
    case FinishReason::Stop: return "stop";
    case FinishReason::Length: return "length";
    case FinishReason::Cancelled: return "cancelled";
  }
  return "none";
}

}  // namespace reprise::sched
