# Shared by ./dev and .ci/run: colours, stages with a log, installing packages. Sourced from the repository root.

# Messages, orders and letters are the same for everyone; what a hook tells git is about another repository.
export LC_ALL=C.UTF-8
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE

logs=build/logs
if [[ -t 1 ]]; then
  c_ok=$'\033[32m' c_bad=$'\033[31m' c_dim=$'\033[2m' c_off=$'\033[0m'
else
  c_ok='' c_bad='' c_dim='' c_off=''
fi

say_ok() { printf '%sok%s      %s\n' "$c_ok" "$c_off" "$*"; }
say_failed() { printf '%sfailed%s  %s\n' "$c_bad" "$c_off" "$*"; }
die() {
  printf '%s./dev: %s%s\n' "$c_bad" "$*" "$c_off" >&2
  exit 1
}
usage_error() {
  printf './dev: %s\n' "$*" >&2
  exit 2
}

# bar DONE TOTAL SECONDS: "█████░░░░░  42 %, about 3 min left", from what was done in that time.
bar() {
  local done=$1 total=$2 seconds=$3 width=20 i text='' left
  for ((i = 0; i < width; ++i)); do
    if ((i * total < done * width)); then text+=█; else text+=░; fi
  done
  text+=$(printf ' %3d %%' $((100 * done / total)))
  # The first steps are the largest files, which say nothing about the others.
  if ((done * 5 >= total && done < total && seconds >= 5)); then
    left=$((seconds * (total - done) / done))
    if ((left >= 90)); then
      text+=", about $(((left + 30) / 60)) min left"
    else
      text+=", about $left s left"
    fi
  fi
  printf '%s' "$text"
}

# How far a build is, of a line of ninja's: "[12/345] Building ...". Nothing of other lines.
bar_of_line() {
  [[ $1 =~ ^\[([0-9]+)/([1-9][0-9]*)\]\  ]] && bar "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "$2"
}

# Redraws one terminal line with the newest line of a log; of a build it is a bar with an estimate.
follow() {
  local title=$1 line columns shown begin=$SECONDS
  columns=$(tput cols 2>/dev/null || echo 80)
  while IFS= read -r line; do
    line=${line//[$'\t\r\033']/ }
    if shown=$(bar_of_line "$line" $((SECONDS - begin))); then
      line="$title  $shown  ${line##*/}"
    else
      line="$title  $line"
    fi
    printf '\r\033[K%s%s%s' "$c_dim" "${line:0:columns - 1}" "$c_off"
  done
  printf '\r\033[K'
}

# Where there is no terminal: a line about a long build now and then.
follow_quietly() {
  local title=$1 log=$2 begin=$SECONDS line shown last=''
  while sleep 1 >/dev/null 2>&1; do  # who reads this shell's output does not wait for it
    ((SECONDS % ${REPRISE_PROGRESS_SECONDS:-60})) && continue
    line=$(grep -E '^\[[0-9]+/[0-9]+\] ' "$log" 2>/dev/null | tail -n 1)
    shown=$(bar_of_line "$line" $((SECONDS - begin))) || continue
    [[ $shown == "$last" ]] || printf '        %s  %s\n' "$title" "$shown"
    last=$shown
  done
}

# run_logged TITLE LOG COMMAND...: output goes to build/logs/LOG.log; a terminal sees the newest line only, anything
# else a line a minute about builds. Returns the command's status and leaves the seconds it took in $took.
run_logged() {
  local title=$1 log=$logs/$2.log begin=$SECONDS status=0
  shift 2
  mkdir -p "$logs"
  if [[ -t 1 ]]; then
    printf '%s%s%s' "$c_dim" "$title" "$c_off"
    { "$@" 2>&1 </dev/null | tee "$log" | follow "$title"; } || status=$?
  else
    : >"$log"
    follow_quietly "$title" "$log" &
    local follower=$!
    "$@" >"$log" 2>&1 </dev/null || status=$?
    kill "$follower" 2>/dev/null || true
    wait "$follower" 2>/dev/null || true
  fi
  took=$((SECONDS - begin))
  return "$status"
}

# The lines of a log that tell why: what ninja marked as failed, or else the end.
show_failure() {
  if grep -q '^FAILED: ' "$1"; then
    awk '/^\[[0-9]+\/[0-9]+\] /{ shown = 0 } /^FAILED: /{ shown = 1 } shown && ++n <= 100' "$1" | cut -c 1-400
  else
    tail -n 60 "$1"
  fi
}

# stage TITLE LOG COMMAND...: one line when it went well; the end of its log and exit status 1 when it did not.
stage() {
  if run_logged "$@"; then
    say_ok "$1$([[ $took -gt 0 ]] && echo " ($took s)")"
  else
    say_failed "$1 ($took s); from $logs/$2.log:"
    show_failure "$logs/$2.log"
    exit 1
  fi
}

as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# need GROUP...: installs what is missing of these groups of tools/packages.txt.
need() {
  local wanted=() missing=() group have p
  for group in "$@"; do
    read -r -a more <<<"$(awk -v g="$group" '$1 == g { $1 = ""; printf "%s ", $0 }' tools/packages.txt)"
    wanted+=("${more[@]}")
  done
  if ! command -v dpkg-query >/dev/null; then
    printf 'note: not a Debian system; this needs the equivalents of: %s\n' "${wanted[*]}" >&2
    return
  fi
  have=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
  for p in "${wanted[@]}"; do
    grep -qx "installed $p" <<<"$have" || missing+=("$p")
  done
  [[ ${#missing[@]} -eq 0 ]] && return
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null ||
      die "these packages are missing, and installing them needs root or sudo: apt-get install ${missing[*]}"
    sudo -v || die "these packages are missing: ${missing[*]}"
  fi
  stage "install ${missing[*]}" install apt_install "${missing[@]}"
}

# build PRESET [TARGET...]: configures when needed, builds; a build with nothing to do takes well under a second. What
# is built for the first time takes several files at a time (cmake --preset PRESET -DREPRISE_UNITY=OFF goes back).
build() {
  # A compiler cache reads what the compiler says it included, and does not preprocess for itself.
  export CCACHE_DEPEND=${CCACHE_DEPEND:-true}
  local preset=$1 dir=build/$1 first=()
  [[ -f $dir/build.ninja ]] || first=(-DREPRISE_UNITY=ON)
  # CUDA's kernels take minutes for each architecture, and AVX-512's where nothing runs them; that they compile is shown
  # by one, and without optimisation. What fails under a sanitizer is run again by hand, where debug information names
  # the lines; without it and without comparisons in what fuzzers learn from, a third less is compiled.
  if [[ ${CI:-} == true ]]; then
    first+=(-DCMAKE_CUDA_ARCHITECTURES=90-real -DREPRISE_ISAS_HERE=ON)
    [[ -e /dev/nvidiactl ]] || first+=('-DCMAKE_CUDA_FLAGS_RELEASE=-O1 -DNDEBUG -Xcicc -O0 -Xptxas -O0')
    case $preset in
      debug) first+=(-DREPRISE_FUZZ_COVERAGE=-fsanitize-coverage=inline-8bit-counters,pc-table) ;&
      tsan) first+=(-DCMAKE_CXX_FLAGS_DEBUG=-O0) ;;
    esac
  fi
  # What the first answer could do without is built as soon as anything else is asked for.
  if [[ ${for_demo:-} == true ]]; then
    [[ -f $dir/build.ninja ]] || first+=(-DREPRISE_DEMO=ON)
  elif grep -qs '^REPRISE_DEMO:BOOL=ON' "$dir/CMakeCache.txt"; then
    first+=(-DREPRISE_DEMO=OFF)
    rm "$dir/build.ninja"
  fi
  if [[ ! -f $dir/build.ninja || CMakePresets.json -nt $dir/build.ninja ]]; then
    stage "configure $preset" "configure-$preset" cmake --preset "$preset" "${first[@]}"
  fi
  set -- "${@:2}"
  stage "build $preset" "build-$preset" cmake --build "$dir" --target "${@:-all}" ${REPRISE_JOBS:+-j "$REPRISE_JOBS"}
}

# The tests that ctest's arguments choose, several to a process (batch_tests.py).
# ctest_in_batches PRESET PROCESSORS CTEST-ARGS...
ctest_in_batches() {
  local folder=build/$1 processors=$2
  shift 2
  python3 tools/dev/batch_tests.py "$folder" "$folder/batches" "$@" || return
  ctest --test-dir "$folder/batches" --output-on-failure --no-tests=error --resource-spec-file "$PWD/$processors" \
    -j "${REPRISE_JOBS:-2}"
}

# Adds to a log why tests were skipped, and says how many were. GoogleTest prints the place, then the reason.
# tell_skipped TESTS-FOLDER LOG
tell_skipped() {
  local reasons
  reasons=$(awk '/: Skipped$/ { getline; print }' "$1/Testing/Temporary/LastTest.log")
  [[ -n $reasons ]] || return 0
  printf '%s\n' "$reasons" | sort | uniq -c >>"$2"
  printf '%s skipped; the reasons are in the log\n' "$(wc -l <<<"$reasons")"
}

# run_ctest PRESET TITLE LOG CTEST-ARGS...: prints ctest's closing lines; on failure also what the failing tests said.
run_ctest() {
  local preset=$1 title=$2 log=$3 status=0 processors=build/processors.json
  shift 3
  # Those that tests may have for themselves (tests/support/one_processor.cpp).
  printf '{"version": {"major": 1, "minor": 0}, "local": [{"processors": [%s]}]}\n' \
    "$(seq -f '{"id": "%g"}' -s ', ' 0 $(($(nproc) - 1)))" >"$processors"
  run_logged "$title" "$log" ctest_in_batches "$preset" "$processors" "$@" || status=$?
  if [[ $status -eq 0 ]]; then
    say_ok "$title ($took s)"
    sed -n -e '/ tests in [0-9]* processes$/p' -e '/tests passed, /,$p' "$logs/$log.log" |
      awk '/\(Skipped\)$/ || /^The following tests did not run/ || /^$/ { next } { print }'
    tell_skipped "build/$preset/batches" "$logs/$log.log"
  else
    say_failed "$title ($took s); the whole log is $logs/$log.log"
    grep -vE '^ *Start +[0-9]+:|Test +#[0-9]+: .* Passed ' "$logs/$log.log" | tail -n 200
  fi
  return "$status"
}
