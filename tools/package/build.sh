#!/usr/bin/env bash
# Makes packages of what is built: build/package/dist has a tarball, a .deb, a wheel, their SBOM and their checksums.
#
#   make package                      builds, and runs this
#   tools/package/build.sh [BUILD]    of build/release, or of another build directory
#   WHEEL=no make package             without the wheel, which needs auditwheel of PyPI
#
# One set serves machines with a GPU and without: the CUDA run time is linked statically and the driver is looked for
# when the program starts. A build without nvcc says so in the names (-cpu). Nothing is written outside of build/.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/release} work=build/package dist=build/package/dist tools=tools/package
most_glibc=2.34  # of RHEL 9, Debian 12, Ubuntu 22.04 and what is newer

die() { echo "package: $*" >&2; exit 1; }
[ -x "$build/apps/fathom" ] && [ -x "$build/apps/fathom-bench" ] || die "no programs in $build/apps: run make package"
for tool in objdump dpkg-deb tar gzip python3; do
  command -v "$tool" >/dev/null || die "needs $tool"
done

version_lines=$("$build/apps/fathom" --version)
version=$(awk 'NR == 1 {print $2}' <<<"$version_lines")
machine=$(uname -m)
grep -q '^without CUDA' <<<"$version_lines" && variant=-cpu || variant=''
name=fathom-$version-linux-$machine$variant
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
export SOURCE_DATE_EPOCH

# The newest glibc that the programs ask for: none above most_glibc, or they would not start on older systems.
check_glibc() {
  local newest
  newest=$(objdump -T "$@" | grep -o 'GLIBC_2\.[0-9.]*' | sort -uV | tail -n 1)
  newest=${newest#GLIBC_}
  [ "$(printf '%s\n' "$newest" "$most_glibc" | sort -V | tail -n 1)" = "$most_glibc" ] ||
    die "the programs need glibc $newest, at most $most_glibc is wanted: $(objdump -T "$@" | grep "GLIBC_$newest" |
      awk '{print $NF}' | sort -u | head -n 5 | tr '\n' ' ')"
  glibc=$newest
}

# Nothing but these may be needed where the programs run.
check_libraries() {
  local library
  for library in $(objdump -p "$@" | awk '$1 == "NEEDED" {print $2}' | sort -u); do
    case "$library" in
      libc.so.* | libm.so.* | libgcc_s.so.1 | ld-linux-*.so.* | libssl.so.3 | libcrypto.so.3) ;;
      libdl.so.2 | librt.so.1 | libpthread.so.0) ;;  # parts of glibc
      *) die "the programs need $library, which packages do not bring" ;;
    esac
  done
}

rm -rf "$work"
mkdir -p "$dist"
tree=$work/$name
DESTDIR='' cmake --install "$build" --prefix "$PWD/$tree" --strip >"$work/install.log" || die "see $work/install.log"
check_glibc "$tree/bin/fathom" "$tree/bin/fathom-bench"
check_libraries "$tree/bin/fathom" "$tree/bin/fathom-bench"
python3 -B $tools/sbom.py --tree "$tree" --version "$version" --build "$build" >"$dist/$name.spdx.json"
cp "$dist/$name.spdx.json" "$tree/share/doc/fathom/sbom.spdx.json"

tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -cf - "$name" |
  gzip -9n >"$dist/$name.tar.gz"
$tools/deb.sh "$tree" "$dist" "$version$([ -z "$variant" ] || echo '~cpu')" "$glibc"
if [ "${WHEEL:-yes}" = no ]; then
  echo "package: no wheel, as WHEEL=no asks for"
else
  python=$(tools/python_venv.sh package) || die "the wheel needs auditwheel; without it: WHEEL=no make package"
  python3 -B $tools/wheel.py --tree "$tree" --version "$version${variant/-/+}" --out "$work/wheel"
  # OpenSSL stays the system's, which mends it.
  PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair --plat "manylinux_${most_glibc/./_}_$machine" \
    --exclude libssl.so.3 --exclude libcrypto.so.3 --wheel-dir "$dist" "$work"/wheel/*.whl >"$work/auditwheel.log" 2>&1 ||
    die "auditwheel: $(tail -n 3 "$work/auditwheel.log")"
fi
(cd "$dist" && sha256sum -- * >SHA256SUMS)
echo "package: $dist, for glibc $glibc and newer"
(cd "$dist" && du -h -- * | sed 's/^/  /')
