# ./dev bisect: which change of which pass makes a test or a command fail. Sourced by ./dev.
#
# Every engine in the tried processes obeys REPRISE_PASS_BISECT_LIMIT=N (only the first N changes of optional passes),
# so the smallest N that fails names the change: the engine says which one it was, and the graphs with and without it
# are compared.

bisect_folder=build/bisect
bisect_runs=0

# bisect_try LIMIT [DUMP-FOLDER]: one run; a failing command is no failure of ours.
bisect_try() {
  local log=bisect-$1
  bisect_runs=$((bisect_runs + 1))
  export REPRISE_PASS_BISECT_LIMIT=$1
  if [[ -n ${2:-} ]]; then
    rm -rf "$2"
    mkdir -p "$2"
    export REPRISE_DUMP_DIR=$PWD/$2
  else
    unset REPRISE_DUMP_DIR
  fi
  if run_logged "bisect, limit $1" "$log" "${bisect_command[@]}"; then
    printf '        %-12s passes\n' "limit $1"
    return 0
  fi
  printf '        %-12s fails\n' "limit $1"
  return 1
}

# The first pair of dumps that differ after the pass, one engine and phase after the other.
bisect_show_change() {
  local pass=$1 bad good
  while IFS= read -r bad; do
    good=$bisect_folder/good/${bad#"$bisect_folder/bad/"}
    [[ -f $good ]] || continue
    cmp -s "$good" "$bad" && continue
    printf '\nA: %s\nB: %s\n' "$good" "$bad"
    if [[ -x $binary ]]; then
      "$binary" graph diff "$good" "$bad" | sed -n '3,60p' || true
    else
      diff -U 2 "$good" "$bad" | sed -n '3,60p' || true
    fi
    return
  done < <(find "$bisect_folder/bad" -name "*-$pass.after.txt" | sort)
}

bisect() {
  local low=0 high=1 most=1048576 middle said pass
  [[ $# -ge 1 ]] || usage_error 'bisect TEST (a regular expression for ctest -R), or bisect -- COMMAND...'
  if [[ $1 == -- ]]; then
    shift
    [[ $# -ge 1 ]] || usage_error 'bisect -- needs a command; its exit status decides'
    bisect_command=("$@")
  else
    [[ $# -eq 1 ]] || usage_error 'bisect takes one test, or -- and a command'
    need build
    build release
    bisect_command=(ctest --test-dir build/release --output-on-failure --no-tests=error -R "$1")
  fi
  if bisect_try -1; then die 'it passes with all changes: nothing to search'; fi
  if ! bisect_try 0; then
    die "it fails without any change of an optional pass: look at kernels, required passes or the test itself" \
      "($logs/bisect-0.log)"
  fi
  until ! bisect_try "$high"; do
    low=$high
    high=$((high * 2))
    [[ $high -le $most ]] ||
      die "it passes with the first $low changes, and fails without a limit: no change of a pass does it"
  done
  while [[ $((high - low)) -gt 1 ]]; do
    middle=$(((low + high) / 2))
    if bisect_try "$middle"; then low=$middle; else high=$middle; fi
  done
  # Once more on both sides, with the graphs written down.
  bisect_try "$low" "$bisect_folder/good" ||
    die "limit $low passed and now fails: what is tried is not the same every time"
  if bisect_try "$high" "$bisect_folder/bad"; then
    die "limit $high failed and now passes: what is tried is not the same every time"
  fi
  said=$(grep -ho "pass-bisect-limit $high: .*" "$logs/bisect-$high.log" | sort -u || true)
  say_ok "the first change that makes it fail is number $high ($bisect_runs runs)"
  if [[ -z $said ]]; then
    printf '%s\n' "No engine said which change that was: is the output kept, and the --log-level notice or lower?"
  else
    printf '%s\n' "${said//pass-bisect-limit $high: /  }"
    pass=$(sed -n 's/.* the last change is pass \([^ ]*\) at .*/\1/p' <<<"$said" | head -n 1)
    [[ -z $pass ]] || bisect_show_change "$pass"
  fi
  printf '\nthe graphs of every pass: %s/good (limit %s) and %s/bad (limit %s)\n' \
    "$bisect_folder" "$low" "$bisect_folder" "$high"
  printf 'with one command: --pass-bisect-limit %s; without the pass: --disable-pass %s\n' "$high" "${pass:-NAME}"
}
