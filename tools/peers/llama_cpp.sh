#!/usr/bin/env bash
# llama.cpp as a peer: builds it for this processor from the source package of llama-cpp-python (PyPI), and makes the
# model files both sides are measured on. Everything lies under $REPRISE_CACHE/peers and is made once.
#
#   tools/peers/llama_cpp.sh build                       prints the folder of the built programs
#   tools/peers/llama_cpp.sh server                      the same, with llama-server (without its page) among them
#   tools/peers/llama_cpp.sh model CONFIG_FOLDER FORMAT  prints the GGUF file; FORMAT: bf16, F16, Q8_0, Q4_0,
#                                                        Q4_1, Q4_K_M
#   tools/peers/llama_cpp.sh model FILE.gguf FORMAT      the tensors of a file in another format
set -euo pipefail
package=llama-cpp-python==${LLAMA_CPP_PYTHON:-0.3.36}
peers=${REPRISE_CACHE:-$HOME/.cache/reprise}/peers
home=$peers/$package
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

build() {
  if [[ ! -e $home/built-2 ]]; then
    mkdir -p "$home/source"
    echo "building $package for this processor (about ten minutes, once; log: $home/log)" >&2
    {
      python3 -m pip download --no-deps --no-binary llama-cpp-python --dest "$home" "$package"
      tar xzf "$home"/*.tar.gz --strip-components=1 -C "$home/source"
      # g++ 12 drops stores into what the intrinsic is told to read eight bytes of: AMX would end in SIGILL.
      sed -i 's/_tile_loadconfig(\(&[a-z_]*\));/asm volatile("" ::"r"(\1) : "memory"); _tile_loadconfig(\1);/' \
        "$home"/source/vendor/llama.cpp/ggml/src/ggml-cpu/amx/*.cpp
      cmake -S "$home/source/vendor/llama.cpp" -B "$home/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
        -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF
      ninja -C "$home/build" llama-bench llama-batched-bench llama-quantize
      touch "$home/built-2"
    } >"$home/log" 2>&1 || { tail -20 "$home/log" >&2; exit 1; }
  fi
  echo "$home/build/bin"
}

server() {
  build >/dev/null
  if [[ ! -x $home/build/bin/llama-server ]]; then
    echo "building llama-server (about ten minutes, once; log: $home/server.log)" >&2
    {
      cmake -S "$home/source/vendor/llama.cpp" -B "$home/build" -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF \
        -DLLAMA_USE_PREBUILT_UI=OFF
      ninja -C "$home/build" llama-server
    } >"$home/server.log" 2>&1 || { tail -20 "$home/server.log" >&2; exit 1; }
  fi
  echo "$home/build/bin"
}

# The tensors of a file in another format.
converted() {
  local from=$1 format=$2 file
  file=$peers/models/$(basename "${from%.gguf}")-$format.gguf
  if [[ ! -f $file ]]; then
    build >/dev/null
    mkdir -p "$peers/models"
    "$home/build/bin/llama-quantize" --allow-requantize "$from" "$file.part" "$format" 2 >&2
    mv "$file.part" "$file"
  fi
  echo "$file"
}

model() {
  local folder=$1 format=$2 name plain file
  if [[ -f $folder ]]; then
    converted "$folder" "$format"
    return
  fi
  name=$(basename "$folder")
  plain=$peers/models/$name-bf16.gguf
  file=$peers/models/$name-$format.gguf
  build >/dev/null
  mkdir -p "$peers/models"
  if [[ ! -f $plain ]]; then
    [[ -x $peers/venv/bin/python ]] || python3 -m venv "$peers/venv"
    "$peers/venv/bin/python" -c 'import numpy, yaml, tqdm' 2>/dev/null ||
      "$peers/venv/bin/pip" install --quiet numpy pyyaml tqdm requests >&2
    PYTHONPATH=$home/source/vendor/llama.cpp/gguf-py "$peers/venv/bin/python" "$here/make_gguf.py" "$folder" \
      "$plain.part" >&2
    mv "$plain.part" "$plain"
  fi
  if [[ ! -f $file ]]; then
    "$home/build/bin/llama-quantize" "$plain" "$file.part" "$format" 2 >&2
    mv "$file.part" "$file"
  fi
  echo "$file"
}

case ${1:-} in
  build) build ;;
  server) server ;;
  model) [[ $# -eq 3 ]] || { echo "usage: $0 model CONFIG_FOLDER|FILE.gguf FORMAT" >&2; exit 2; }; model "$2" "$3" ;;
  *) echo "usage: $0 build | server | model CONFIG_FOLDER|FILE.gguf FORMAT" >&2; exit 2 ;;
esac
