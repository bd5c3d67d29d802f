#!/usr/bin/env bash
# OpenVINO GenAI as a peer: installs it from PyPI into a virtual environment of its own, under $REPRISE_CACHE/peers.
#
#   tools/peers/openvino.sh run FILE.gguf ARGUMENTS...   openvino_bench.py on this file; its answer is JSON
#
# Where the processor has AMX, a preload answers what virtual machines hide of it (amx_cpuid_shim.c).
set -euo pipefail
packages=(openvino=="${OPENVINO:-2026.4.1}" openvino-genai=="${OPENVINO_GENAI:-2026.4.1.0}" numpy)
peers=${REPRISE_CACHE:-$HOME/.cache/reprise}/peers
home=$peers/${packages[1]}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

install() {
  [[ -e $home/installed ]] && return
  mkdir -p "$home"
  echo "installing ${packages[*]} (some minutes, once; log: $home/log)" >&2
  {
    python3 -m venv "$home/venv"
    "$home/venv/bin/pip" install --quiet "${packages[@]}"
    touch "$home/installed"
  } >"$home/log" 2>&1 || { tail -20 "$home/log" >&2; exit 1; }
}

run() {
  install
  if grep -qw amx_tile /proc/cpuinfo; then
    [[ -e $home/shim.so ]] || gcc -O2 -shared -fPIC "$here/amx_cpuid_shim.c" -o "$home/shim.so"
    LD_PRELOAD=$home/shim.so exec "$home/venv/bin/python" "$here/openvino_bench.py" "$@"
  fi
  exec "$home/venv/bin/python" "$here/openvino_bench.py" "$@"
}

case ${1:-} in
  run) shift; [[ $# -ge 1 ]] || { echo "usage: $0 run FILE.gguf ARGUMENTS..." >&2; exit 2; }; run "$@" ;;
  *) echo "usage: $0 run FILE.gguf ARGUMENTS..." >&2; exit 2 ;;
esac
