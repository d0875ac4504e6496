#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that the build needs and that are not there yet.
# Says nothing and takes no time when everything is there.
#
#   tools/install_packages.sh            what building and serving needs
#   tools/install_packages.sh test       and what the tests need: a browser, Python environments, openssl
#   tools/install_packages.sh check      and what the style checks and fuzzers need (clang)
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache git python3
  nlohmann-json3-dev libspdlog-dev libcli11-dev libboost-dev libssl-dev
  prometheus-cpp-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)
case "${1:-}" in
  test) packages+=(chromium chromium-driver python3-venv openssl) ;;
  check) packages+=(clang clang-format clang-tidy libclang-rt-dev) ;;
esac

die() {
  echo "install_packages: $*" >&2
  exit 1
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  # Another distribution: go on with what is there; CMake names the first thing that is missing.
  command -v cmake >/dev/null && command -v ninja >/dev/null && command -v c++ >/dev/null && exit 0
  die "this is not a Debian or Ubuntu system; install the equivalents of: ${packages[*]}"
fi

# Where the browser is no real package (Ubuntu ships a snap), the page's tests skip and say so.
if [[ " ${packages[*]} " == *" chromium "* ]] && ! apt-cache show chromium-driver >/dev/null 2>&1 &&
   apt-cache show openssl >/dev/null 2>&1; then
  packages=("${packages[@]/chromium-driver/}")
  packages=("${packages[@]/chromium/}")
fi

missing=()
for package in "${packages[@]}"; do
  [ -n "$package" ] || continue
  status=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | head -n 1 || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || die "run as root, or install sudo, to install: ${missing[*]}"
  as_root=(sudo)
fi

echo "Installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" </dev/null >"$log" 2>&1
}
# The package lists of a fresh image are empty or old: refresh them only when the first try fails.
if ! install; then
  "${as_root[@]}" apt-get update </dev/null >"$log" 2>&1 || { tail -n 5 "$log" >&2; die "apt-get update failed"; }
  install || { tail -n 15 "$log" >&2; die "apt-get could not install: ${missing[*]}"; }
fi
