# ./dev arm64: the cross build for aarch64 and its tests under qemu-user. Sourced by ./dev.

arm64_root=build/arm64-root

# apt with a state of its own, so that neither the host's architectures nor its packages change, and no root is needed.
# Sources and keys are the host's.
arm64_apt() {
  local state=$PWD/$arm64_root.apt
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
  : >"$state/status"
  apt-get -q -y -o Dir::State="$state" -o Dir::State::Lists="$state/lists" -o Dir::State::status="$state/status" \
    -o Dir::Cache="$state/cache" -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
    -o APT::Sandbox::User="$(id -un)" -o APT::Install-Recommends=false "$@"
}

# The libraries of group `build` in tools/packages.txt.
arm64_packages() {
  awk '$1 == "build"' tools/packages.txt | grep -oE '[a-z0-9.+-]+-dev\b'
}

# What these packages and all they depend on hold, as one folder. Links that start at / lead into it.
make_arm64_root() {
  local package link target libraries
  mapfile -t libraries < <(arm64_packages)
  rm -rf "$arm64_root" "$arm64_root.apt"
  arm64_apt update
  arm64_apt install --download-only "${libraries[@]}"
  mkdir -p "$arm64_root/usr/lib"
  ln -s usr/lib "$arm64_root/lib"
  for package in "$arm64_root.apt"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$arm64_root" \
      --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale
  done
  while read -r link target; do
    ln -sfn "$(realpath -m -s --relative-to="$(dirname "$link")" "$arm64_root$target")" "$link"
  done < <(find "$arm64_root" -type l -lname '/*' -printf '%p %l\n')
  rm -rf "$arm64_root.apt"
  printf '%s\n' "${libraries[@]}" >"$arm64_root/packages"
}

# Makes the folder when it is missing, unfinished or of other packages.
need_arm64_root() {
  cmp -s <(arm64_packages) "$arm64_root/packages" ||
    stage 'arm64 libraries' arm64-root bash -euo pipefail -c \
      "$(declare -f arm64_apt arm64_packages make_arm64_root); arm64_root=$arm64_root; make_arm64_root"
}

# The tests that suit an emulator, which is 10 to 50 times slower: none of speed or of large shapes, and of the commands
# one of each kind. On a processor without SDOT, the kernels of products and the tiny models.
arm64_tests='^(base|graph|kv|compile|checkpoint|hub|sched|passes|backends|sim|sim_ops)\.'
arm64_tests+='|^models\..*(GoldenTest|SameBitsTest)|^apps\.(About|Generate|AscendGenerate)\.'
arm64_old='^backends\.Cpu/Linear|^models\..*GoldenTest'
arm64_without='Slow|SmolLM2|LinearTime'
# A simulated card reserves addresses for twice its memory, and the emulator keeps some bytes for every page of them:
# 0.8 GB for the 64 GiB of a 910B, seconds at every start.
arm64_card=$((4 << 30))

# On a processor without SDOT there are the portable kernels alone.
check_arm64_choice() {
  local program="qemu-aarch64-static -L $arm64_root build/arm64/bin/backends_tests --gtest_list_tests" tests
  tests=$(QEMU_CPU=max $program) && grep -q /baseline <<<"$tests" && grep -q /dotprod <<<"$tests" || return 1
  tests=$(QEMU_CPU=cortex-a72 $program) && grep -q /baseline <<<"$tests" && ! grep -q /dotprod <<<"$tests"
}

test_arm64() {
  local status=0
  build arm64
  stage 'kernels by processor' arm64-choice check_arm64_choice
  export ASCEND_SIM_HBM_BYTES=$arm64_card
  if [[ $# -gt 0 ]]; then
    run_ctest arm64 'tests for aarch64' test-arm64 -R "$1" || status=1
    return "$status"
  fi
  run_ctest arm64 'tests for aarch64' test-arm64 -R "$arm64_tests" -E "$arm64_without" || status=1
  QEMU_CPU=cortex-a72 run_ctest arm64 'kernels and models without SDOT' test-arm64-v8.0 \
    -R "$arm64_old" -E "$arm64_without|dotprod|ascend" || status=1
  return "$status"
}

arm64() {
  local what=${1:-} name
  [[ $what == libraries || ($# -le 2 && ($what == build || $what == test)) ]] ||
    usage_error 'arm64 build [TARGET], arm64 test [FILTER] or arm64 libraries [NAME...]'
  if [[ $what == libraries ]]; then
    for name in "${@:2}"; do
      [[ -d src/$name ]] || usage_error "no library \"$name\"; there are: $(ls -d src/*/ | cut -d / -f 2 | xargs)"
    done
    [[ $# -gt 1 ]] || set -- libraries libraries
  fi
  [[ $(uname -m) != aarch64 ]] || die 'this machine is aarch64: use ./dev build and ./dev test'
  need build arm64
  need_arm64_root
  case $what in
    build) build arm64 "${@:2}" ;;
    test) test_arm64 "${@:2}" ;;
    libraries) build arm64-libraries "${@:2}" ;;
  esac
}
