#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that the build needs and that are not there yet.
# Says nothing and takes no time when everything is there.
#
#   tools/install_packages.sh            what building and serving needs
#   tools/install_packages.sh test       and what the tests need: a browser, Python environments, openssl, ZeroMQ
#   tools/install_packages.sh check      and what the style checks and fuzzers need (clang)
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache git python3
  nlohmann-json3-dev libspdlog-dev libcli11-dev libyaml-cpp-dev libboost-dev libssl-dev libucx-dev libjs-katex
  libgtest-dev libgmock-dev libbenchmark-dev
)
case "${1:-}" in
  test) packages+=(chromium chromium-driver python3-venv openssl libzmq5) ;;
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

# What is not installed yet. Where the browser is no real package (Ubuntu ships a snap), the page's tests skip
# and say so; apt knows that only once it has package lists.
find_missing() {
  local package status skip=' '
  if [[ " ${packages[*]} " == *" chromium "* ]] && ! apt-cache show chromium-driver >/dev/null 2>&1 &&
     apt-cache show openssl >/dev/null 2>&1; then
    skip=' chromium chromium-driver '
  fi
  missing=()
  for package in "${packages[@]}"; do
    [[ "$skip" != *" $package "* ]] || continue
    status=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | head -n 1 || true)
    [ "$status" = installed ] || missing+=("$package")
  done
}
find_missing
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || die "run as root, or install sudo, to install: ${missing[*]}"
  as_root=(sudo)
fi
# What packages write under /etc and /var is for every user, whatever the caller keeps private.
umask 022

# apt's own words go to a log; its progress becomes a line for every fifth of the way.
log=$(mktemp) || die "cannot write to ${TMPDIR:-/tmp}, where the log of apt-get goes"
trap 'rm -f "$log"' EXIT
show_progress() {
  local line percent what fifth last='' shown=0
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    case "$line" in
      "Need to get "*) echo "  ${line,}" >&2; continue ;;
      dlstatus:*) what=downloading ;;
      pmstatus:*) what='unpacking and setting up' ;;
      Waiting\ for\ cache\ lock*)  # a fresh cloud image updates itself after its first start
        [ "$last" = waiting ] || echo "  waiting for another program that installs packages" >&2
        last=waiting
        continue ;;
      *) continue ;;
    esac
    IFS=: read -r _ _ percent _ <<<"$line"
    fifth=$((${percent%%.*} / 20))
    if [ "$what" != "$last" ] || [ "$fifth" -gt "$shown" ]; then
      echo "  $what: ${percent%%.*}%" >&2
    fi
    last=$what shown=$fifth
  done
}
# sudo drops the settings of a proxy, by which alone apt may reach its mirrors.
settings=(DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8)
for name in http_proxy https_proxy no_proxy; do
  [ -z "${!name:-}" ] || settings+=("$name=${!name}")
done
apt_get() {
  "${as_root[@]}" env "${settings[@]}" apt-get "$@" </dev/null 2>&1
}
install() {
  : >"$log"
  apt_get install -y --no-install-recommends -o APT::Status-Fd=1 -o DPkg::Lock::Timeout=600 "${missing[@]}" |
    show_progress
}

echo "Installing, which takes minutes on a fresh system: ${missing[*]}" >&2
# sudo asks now, where its question is seen, and not in the middle.
[ ${#as_root[@]} -eq 0 ] || sudo true || die "sudo refused; these packages are missing: ${missing[*]}"
# The package lists of a fresh image are empty or old: refresh them only when the first try fails.
if ! install; then
  echo "  refreshing apt's package lists" >&2
  update_errors=$(apt_get update -o APT::Update::Error-Mode=any | grep -E '^(E|W|Err)' || true)
  find_missing
  if ! install; then
    [ -z "$update_errors" ] || printf 'apt-get update:\n%s\n' "$(tail -n 5 <<<"$update_errors")" >&2
    printf 'apt-get install:\n%s\n' "$(grep -vE '^(dl|pm)status' "$log" | tail -n 15)" >&2
    die "apt-get could not install: ${missing[*]}"
  fi
fi
