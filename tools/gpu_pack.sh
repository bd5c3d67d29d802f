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
# Tests look for their data where they were compiled: tools/gpu_round.sh puts a link there.
sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' build/release/CMakeCache.txt >"$folder/source_root"
if [[ -n $shapes ]]; then cp -r "$shapes"/. "$folder/shapes/"; fi
tar -C "$folder" -cJf "$folder.tar.xz" .
du -sh "$folder.tar.xz"
