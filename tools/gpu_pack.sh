#!/usr/bin/env bash
# Packs what tools/gpu_round.sh needs from build/release into a folder, for a machine with a GPU and no packages.
#
#   tools/gpu_pack.sh FOLDER [SHAPES]
#
# SHAPES is a folder of NAME/config.json of published models.
set -euo pipefail
folder=$1 shapes=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rm -rf "$folder"
mkdir -p "$folder/lib" "$folder/shapes"
for program in reprise device_tests simt_tests; do
  strip -o "$folder/$program" "build/release/bin/$program"
  # Everything but the C library, which has to be the machine's own.
  ldd "build/release/bin/$program" | awk '$3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' | xargs -r cp -Lut "$folder/lib"
done
# The probes of tensor cores and cuBLASLt, which rest on nothing of the build.
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[[ ! -x $nvcc ]] || "$nvcc" -std=c++20 -O3 --fmad=false -arch=sm_90a -o "$folder/cuda_probes" tools/cuda/probes.cu
# Tests look for their data where they were compiled: tools/gpu_round.sh puts a link there.
sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' build/release/CMakeCache.txt >"$folder/source_root"
if [[ -n $shapes ]]; then cp -r "$shapes"/. "$folder/shapes/"; fi
tar -C "$folder" -cJf "$folder.tar.xz" .
du -sh "$folder.tar.xz"
# What a lent machine takes at once.
(($(stat -c %s "$folder.tar.xz") <= 64 << 20)) || { echo "error: $folder.tar.xz has more than 64 MiB" >&2; exit 1; }
