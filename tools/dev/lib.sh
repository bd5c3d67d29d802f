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

# Redraws one terminal line with the newest line of a log.
follow() {
  local title=$1 line columns
  columns=$(tput cols 2>/dev/null || echo 80)
  while IFS= read -r line; do
    line="$title  ${line//[$'\t\r\033']/ }"
    printf '\r\033[K%s%s%s' "$c_dim" "${line:0:columns - 1}" "$c_off"
  done
  printf '\r\033[K'
}

# run_logged TITLE LOG COMMAND...: output goes to build/logs/LOG.log; a terminal sees the newest line only. Returns the
# command's status and leaves the seconds it took in $took.
run_logged() {
  local title=$1 log=$logs/$2.log begin=$SECONDS status=0
  shift 2
  mkdir -p "$logs"
  if [[ -t 1 ]]; then
    printf '%s%s%s' "$c_dim" "$title" "$c_off"
    { "$@" 2>&1 </dev/null | tee "$log" | follow "$title"; } || status=$?
  else
    "$@" >"$log" 2>&1 </dev/null || status=$?
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

# build PRESET [TARGET]: configures when needed, builds; a build with nothing to do takes well under a second. What is
# built for the first time takes several files at a time (cmake --preset PRESET -DREPRISE_UNITY=OFF goes back).
build() {
  local preset=$1 dir=build/$1 target=${2:-all} first=()
  [[ -f $dir/build.ninja ]] || first=(-DREPRISE_UNITY=ON)
  if [[ ! -f $dir/build.ninja || CMakePresets.json -nt $dir/build.ninja ]]; then
    stage "configure $preset" "configure-$preset" cmake --preset "$preset" "${first[@]}"
  fi
  stage "build $preset" "build-$preset" cmake --build "$dir" --target "$target" ${REPRISE_JOBS:+-j "$REPRISE_JOBS"}
}

# run_ctest PRESET TITLE LOG CTEST-ARGS...: prints ctest's closing lines; on failure also what the failing tests said.
run_ctest() {
  local preset=$1 title=$2 log=$3 status=0
  shift 3
  run_logged "$title" "$log" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
    -j "${REPRISE_JOBS:-2}" "$@" || status=$?
  if [[ $status -eq 0 ]]; then
    say_ok "$title ($took s)"
    # What was skipped, and why, is in the log.
    sed -n '/tests passed, /,$p' "$logs/$log.log" |
      awk '/\(Skipped\)$/ { n++; next } /^The following tests did not run/ || /^$/ { next } { print }
           END { if (n) print n " skipped; the reasons are in the log" }'
  else
    say_failed "$title ($took s); the whole log is $logs/$log.log"
    grep -vE '^ *Start +[0-9]+:|Test +#[0-9]+: .* Passed ' "$logs/$log.log" | tail -n 200
  fi
  return "$status"
}
