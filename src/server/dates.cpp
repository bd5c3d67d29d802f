#include "server/dates.h"

#include <fmt/format.h>

namespace reprise::server {
namespace {

std::string up_to_seconds(std::chrono::sys_seconds time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count());
}

}  // namespace

std::string date_of(int64_t seconds) {
  return up_to_seconds(std::chrono::sys_seconds(std::chrono::seconds(seconds))) + "Z";
}

std::string date_of(std::chrono::system_clock::time_point time) {
  const auto second = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(time - second);
  return fmt::format("{}.{:09}Z", up_to_seconds(second), rest.count());
}

}  // namespace reprise::server
