# ./dev soak: random schedules of requests against plain decoding, for so many requests in each mode. Sourced by ./dev.
#
# A mode is a test of sched/random_schedules_test: a device, a graph mode, a kind of model. A failing one prints the
# number of its schedule, which REPRISE_SOAK_FIRST starts from.

soak_program=build/release/bin/sched_tests

# soak_one TEST: lines when it is through, with what it met.
soak_one() {
  local name=$1 log=soak-${1//[.\/]/-}
  if run_logged "soak $name" "$log" "$soak_program" --gtest_filter="$name"; then
    say_ok "$name ($took s)"
    sed -n 's/^soak: /        /p' "$logs/$log.log"
    return
  fi
  say_failed "$name; the whole log is $logs/$log.log"
  grep -nE 'Failure$|^schedule [0-9]|no number from' -A 3 "$logs/$log.log" | sed -n 1,20p
  return 1
}

soak() {
  local names=() status=0 name
  [[ $# -ge 1 && $# -le 2 && $1 =~ ^[1-9][0-9]{0,8}$ ]] ||
    usage_error 'soak N [FILTER]: at least N requests in each mode, or in those whose test matches FILTER'
  need build
  build release sched_tests
  mapfile -t names < <("$soak_program" --gtest_list_tests --gtest_filter='RandomSchedules*' |
    awk '/^[^ ]/ { suite = $1; next } /^ / { print suite $1 }' | { grep -E -- "${2:-.}" || true; })
  [[ ${#names[@]} -gt 0 ]] || usage_error "no test of random schedules matches \"$2\""
  export REPRISE_SOAK_REQUESTS=$1 ASCEND_SIM_RACES=1 REPRISE_DEVICE=cpu
  # Two at a time: one has one thread, or two.
  for name in "${names[@]}"; do
    while [[ $(jobs -pr | wc -l) -ge ${REPRISE_JOBS:-2} ]]; do wait -n || status=1; done
    soak_one "$name" > >(cat) &
  done
  while [[ -n $(jobs -p) ]]; do wait -n || status=1; done
  return "$status"
}
