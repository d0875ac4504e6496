#!/usr/bin/env bash
# Unpacks a Debian package below build/packages without installing it, so that no daemon of it starts, and prints the
# folder: for tests that want a program of it.
#
#   tools/unpack_package.sh prometheus          # build/packages/prometheus, with usr/bin/promtool
#
# Where it cannot, one line on standard error says why and what would help, and the exit status is 1.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 folder=build/packages/$1
fail() {
  echo "unpack_package: $1; to run it: $2" >&2
  exit 1
}
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "this is no Debian system" "install $name"
mkdir -p build/packages
exec 9>"$folder.lock"
flock -w 300 9 || fail "$folder.lock is held by another process" "end that process"
if [ ! -e "$folder/done" ]; then
  rm -rf "$folder" "$folder.deb.d"
  mkdir -p "$folder.deb.d"
  trap 'rm -rf "$folder.deb.d"' EXIT
  (cd "$folder.deb.d" && timeout 120 apt-get download -o APT::Sandbox::User=root "$name" >/dev/null 2>&1) ||
    fail "the package $name cannot be fetched" "apt-get update, or install $name"
  dpkg-deb -x "$folder.deb.d"/*.deb "$folder"
  touch "$folder/done"
fi
echo "$PWD/$folder"
