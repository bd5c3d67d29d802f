# ./dev package makes what is for other machines, in dist/; ./dev test packages installs it. Sourced by ./dev.

package_kinds='tgz wheel deb oci'

# One build for all kinds but the tarball: without tests, and without the CUDA backend, which would make them larger
# than they may be. What runs at a start is compiled for size, which the preset leaves out for a shorter build. Its
# places are those of a Debian system.
build_for_packages() {
  if [[ ! -f build/packages/build.ninja ]]; then
    stage 'configure packages' configure-packages cmake --preset release -B build/packages -DREPRISE_UNITY=ON \
      -DREPRISE_CUDA=OFF -DREPRISE_TESTS=OFF -DREPRISE_COLD_OPTIMISATION=-Os -DCMAKE_INSTALL_PREFIX=/usr \
      -DCMAKE_INSTALL_SYSCONFDIR=/etc \
      -DCMAKE_INSTALL_LIBDIR="lib/$(gcc -print-multiarch)"
  fi
  stage "build $1" "build-$1" cmake --build build/packages ${REPRISE_JOBS:+-j "$REPRISE_JOBS"} --target "${@:2}"
}

# The programs of a tarball need nothing but glibc and its own libraries, and start without this machine's settings.
check_package() {
  local folder needed status=0
  folder=$(mktemp -d)
  tar -xzf "$1" -C "$folder"
  needed=$(find "$folder" -type f \( -path '*/bin/*' -o -name '*.so' \) -exec objdump -p {} + |
    awk '$1 == "NEEDED" { print $2 }' | sort -u |
    grep -vxE 'lib(c|m)\.so\.6|ld-linux-(x86-64\.so\.2|aarch64\.so\.1)' |
    grep -vxFf <(find "$folder" -name '*.so' -printf '%f\n') || true)
  if [[ -n $needed ]]; then
    printf 'needed beyond glibc: %s\n' "$needed"
    status=1
  fi
  env -i HOME="$folder" "$folder"/*/bin/reprise --version || status=1
  rm -rf "$folder"
  return "$status"
}

# Third-party libraries are linked into the binary, so that a machine with nothing but glibc starts it.
package_tgz() {
  local file
  if [[ ! -f build/package/build.ninja ]]; then
    stage 'configure package' configure-package cmake --preset package -DREPRISE_UNITY=ON
  fi
  stage 'build package' build-package cmake --build build/package ${REPRISE_JOBS:+-j "$REPRISE_JOBS"}
  stage 'pack' pack cpack --config build/package/CPackConfig.cmake -G TGZ -B build/package
  file=$(find build/package -maxdepth 1 -name 'reprise-*.tar.gz' | sort | tail -n 1)
  stage 'check package' check-package check_package "$file"
  cp "$file" "$file.sha256" dist
  say_ok "dist/${file##*/} ($(du -k "$file" | cut -f 1) KiB)"
}

package_wheel() {
  build_for_packages wheel wheel
  rm -f dist/*.whl
  stage 'make wheel' make-wheel python3 tools/make_wheel.py --built build/packages/wheel --out dist
  say_ok "$(find dist -maxdepth 1 -name '*.whl')"
}

package_deb() {
  need deb
  build_for_packages deb reprise reprise_library reprise_static ascend_sim
  rm -f dist/*.deb
  stage 'make packages of Debian' make-deb env REPRISE_BUILD=build/packages REPRISE_DIST="$PWD/dist" debian/rules binary
  stage 'lintian' lintian lintian --fail-on error --allow-root dist/*.deb
  find dist -maxdepth 1 -name '*.deb' | sort | while IFS= read -r file; do
    say_ok "$file ($(du -k "$file" | cut -f 1) KiB)"
  done
}

package_oci() {
  local version
  version=$(sed -n 's/^project(reprise VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
  build_for_packages oci reprise
  stage 'make image' make-oci python3 tools/make_oci.py --binary build/packages/bin/reprise --out build/oci \
    --archive "dist/reprise-$version-oci.tar"
  say_ok "dist/reprise-$version-oci.tar, $(cut -d ' ' -f 1 "$logs/make-oci.log" | head -n 1)"
}

make_packages() {
  local kinds=${1:-tgz} kind
  [[ $# -le 1 && " $package_kinds all " == *" $kinds "* ]] || usage_error "package takes one kind: $package_kinds all"
  [[ $kinds != all ]] || kinds=$package_kinds
  need build
  mkdir -p dist
  for kind in $kinds; do "package_$kind"; done
}

# Installs and runs what lies in dist/: the wheel in a fresh environment, the packages of Debian in a root of their own.
test_packages() {
  local found=
  [[ $# -eq 0 ]] || usage_error 'test packages takes nothing'
  if compgen -G 'dist/*.whl' >/dev/null; then
    found=yes
    need build
    stage 'test wheel' test-wheel python3 tests/packages/wheel_test.py --dist dist
    grep -E '^(Ran|OK|FAILED|skipped|reprise)|\.\.\. ' "$logs/test-wheel.log" || true
  fi
  if compgen -G 'dist/*.deb' >/dev/null; then
    found=yes
    need build packages
    stage 'test packages' test-packages python3 tests/packages/deb_test.py --dist dist --work build/packages-test
    grep -E '^(Ran|OK|FAILED|skipped)|\.\.\. ' "$logs/test-packages.log" || true
  fi
  [[ -n $found ]] || die 'dist/ has neither a wheel nor packages; ./dev package all makes them'
}
