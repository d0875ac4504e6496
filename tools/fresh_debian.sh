#!/usr/bin/env bash
# Proves the README's two commands on a fresh Debian 12: bootstraps one (variant minbase), puts a clone of this
# tree's HEAD in it, and runs there first `make serve`, asks the server, presses Ctrl-C, then `make test`.
# Needs root, debootstrap, curl and python3. The mirror and its proxy are those of this machine's apt.
#
#   tools/fresh_debian.sh                       as root, with the Python package index
#   tools/fresh_debian.sh --user sudo           as an ordinary user whose sudo asks for no password
#   tools/fresh_debian.sh --user password       as one whose sudo asks
#   tools/fresh_debian.sh --no-pypi             the Python package index unreachable
#   tools/fresh_debian.sh --cuda /usr/local/cuda-13.0   this CUDA toolkit in it, nvcc on PATH
#   tools/fresh_debian.sh --clone "/srv/my work/fathom"  where the clone lies (default ~/fathom)
#   tools/fresh_debian.sh --ccache DIR          compile through a ccache in DIR, which every user may write to
#   tools/fresh_debian.sh --mirror URL          a mirror of Debian, where this machine's apt uses none of bookworm
#   tools/fresh_debian.sh --work DIR            where systems and transcripts go (default /var/tmp/fresh-debian)
#   tools/fresh_debian.sh --keep                leave the system there afterwards, to look around in
#   tools/fresh_debian.sh --run 'make build'    these commands instead of the two
#
# Everything runs in namespaces of its own: mounts and processes are gone when this ends, however it ends. The
# network is this machine's, so nothing else may listen on port 30000.
set -euo pipefail
suite=bookworm password=fresh port=30000 url=http://127.0.0.1:30000 python3=$(command -v python3 || true)
repository=$(cd "$(dirname "$0")/.." && pwd)

die() { echo "fresh_debian: $*" >&2; exit 1; }
say() { echo "fresh_debian: $*"; }
. "$repository/tools/debian_system.sh"

parse() {
  user=root pypi=yes no_pypi='' cuda='' clone='' ccache='' mirror='' work=/var/tmp/fresh-debian keep='' run=''
  read_options 'no-pypi keep' 'user cuda clone ccache mirror work run' "$@"
  [ -z "$no_pypi" ] || pypi=no
  case "$user" in root | sudo | password) ;; *) die "--user is root, sudo or password, not '$user'" ;; esac
  [ "$user" = root ] && home=/root || home=/home/dev
  clone=${clone:-$home/fathom}
  [[ "$clone" = /* ]] || die "--clone is a path from /, not '$clone'"
  [ -z "$cuda" ] || [ -x "$cuda/bin/nvcc" ] || die "--cuda: no bin/nvcc in '$cuda'"
  [ -z "$ccache" ] || [ -d "$ccache" ] || die "--ccache: no directory '$ccache'"
  [ "$(id -u)" -eq 0 ] || die "needs root: it makes a system and mounts"
  command -v debootstrap >/dev/null || die "install debootstrap"
  command -v curl >/dev/null || die "install curl"
  [ -n "$python3" ] || die "install python3"
}

# A bare system with the toolkit, the cache, the user and the clone.
make_system() {
  copy_system
  [ -z "$cuda" ] || add_cuda
  [ -z "$ccache" ] || show_folder "$ccache" /var/ccache
  add_user_and_clone
}

add_cuda() {
  cuda=$(realpath "$cuda")
  show_folder "$cuda" "$cuda" ro
  [ "$cuda" = /usr/local/cuda ] || ln -s "$cuda" "$system/usr/local/cuda"
}

# What the README asks for beforehand: make, and sudo for an ordinary user.
add_user_and_clone() {
  local first=(make)
  [ "$user" = root ] || first+=(sudo)
  say "installing what must be there first: ${first[*]}"
  { in_system root apt-get update && in_system root apt-get install -y --no-install-recommends "${first[@]}"; } \
    >"$logs/first.log" 2>&1 </dev/null || die "apt-get failed: $(tail -n 1 "$logs/first.log")"
  # As an image comes: no package lists, nothing fetched.
  rm -rf "$system"/var/lib/apt/lists/* "$system"/var/cache/apt/*
  if [ "$user" != root ]; then
    in_system root useradd --create-home --shell /bin/bash --groups sudo dev
    in_system root chpasswd <<<"dev:$password"
    [ "$user" != sudo ] || echo "dev ALL=(ALL) NOPASSWD: ALL" >"$system/etc/sudoers.d/dev"
  fi
  mkdir -p "$system$(dirname "$clone")"
  git clone --quiet --no-local "$repository" "$system$clone"
  [ "$user" = root ] || in_system root chown -R dev: "$clone"
  touch "$logs/stamp"
}

# in_system USER COMMAND...: with a login's environment, in the clone when it is there.
in_system() {
  local who=$1 home=/root ids=0:0
  shift
  [ "$who" = root ] || { home=/home/dev ids=$(in_system root sh -c 'echo $(id -u dev):$(id -g dev)'); }
  local settings=(HOME="$home" USER="$who" LANG=C.UTF-8 TERM=dumb
    PATH="${cuda:+$cuda/bin:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
  [ -z "$ccache" ] || settings+=(
    CCACHE_DIR=/var/ccache CCACHE_UMASK=000 CCACHE_COMPILERCHECK=content
    CCACHE_BASEDIR="${clone%/*}" CCACHE_NOHASHDIR=1)  # so that a clone elsewhere finds the same objects
  if [ "$pypi" = yes ]; then
    settings+=(${PIP_CERT:+PIP_CERT="$PIP_CERT"} ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"})
  else
    settings+=(PIP_INDEX_URL=http://127.0.0.1:9/)  # nothing listens on the discard port
  fi
  local groups=()
  [ "$who" = root ] || groups=(--groups "$(in_system root id -G dev | tr ' ' ,)")
  env -i "${settings[@]}" chroot --userspec "$ids" "${groups[@]}" "$system" \
    /bin/sh -c 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"' sh "$clone" "$@"
}

# One of the two commands, in a terminal: sudo asks there for a password, Ctrl-C comes from there. Takes the
# place of the subshell that calls it, so that the signal which presses Ctrl-C reaches it.
in_terminal() {
  export -f in_system
  export cuda ccache pypi system clone
  exec "$python3" "$repository/tools/fresh_debian_terminal.py" "$logs/$1.log" "$password" \
    bash -c 'in_system "$@"' bash "$who" make "$1"
}

run_serve() {
  ! curl -s -o /dev/null "$url" || die "something listens on port $port already"
  local start=$SECONDS status=0
  : >"$logs/serve.log"
  in_terminal serve &
  local server=$!
  until grep -q 'Fathom is ready' "$logs/serve.log"; do
    kill -0 $server 2>/dev/null || { tail -n 20 "$logs/serve.log"; die "make serve ended before it was ready"; }
    sleep 1
  done
  echo "make serve: ready after $((SECONDS - start)) s"
  ask_server
  kill -INT $server
  wait $server || status=$?
  tail -n 3 "$logs/serve.log"
  echo "make serve: exit status $status after Ctrl-C"
}

ask_server() {
  curl -sf "$url" -o "$logs/page.html" || die "the page does not come"
  grep -o '<title>.*</title>' "$logs/page.html" || die "the page has no title"
  ask_question "$url" "$logs/answer.json"
}

run_test() {
  local start=$SECONDS status=0
  (in_terminal test) || status=$?
  tail -n 40 "$logs/test.log"
  echo "make test: exit status $status after $((SECONDS - start)) s"
  return "$status"
}

# Files that the two commands left outside of the clone and of what packages own.
list_strays() {
  echo "written outside of the clone and the packages:"
  (cd "$system" && find home root tmp opt srv var/tmp usr/local -xdev -newer "$logs/stamp" ! -type d \
    ! -path "${clone#/}/*" ! -path 'usr/local/lib/python3*' ! -path 'usr/local/share/fonts*') |
    awk -F/ '{key = "/" $0; if (NF > 4) key = "/" $1 "/" $2 "/" $3 "/" $4 "/..."; files[key]++}
             END {for (key in files) print "  " key ": " files[key]}' | sort
}

inside() {
  make_system
  if [ -n "$run" ]; then
    in_system "$who" bash -c "$run"
    return
  fi
  run_serve
  run_test && status=0 || status=$?
  list_strays
  return "$status"
}

# The mounts are in the namespace of the part that runs inside, so here is only its copy to remove.
clean_up() {
  [ -z "$inside_pid" ] || { kill -KILL "$inside_pid" 2>/dev/null; wait "$inside_pid" 2>/dev/null; } || true
  [ -n "$keep" ] || rm -rf --one-file-system "$system"
}

main() {
  parse "$@"
  name=$user-pypi-$pypi${cuda:+-cuda}
  # Inside the namespace it is a new process of this script, with the same arguments.
  pristine=$work/pristine-$suite logs=$work/logs.$name system=$work/system.$name
  [ "$user" = root ] && who=root || who=dev
  if [ -n "${FRESH_DEBIAN_INSIDE:-}" ]; then
    inside
    return
  fi
  mkdir -p "$logs"
  exec 9>"$work/lock"
  flock -n 9 || die "another run in $work is under way"
  bootstrap
  inside_pid=''
  trap clean_up EXIT
  trap 'exit 130' INT TERM HUP
  say "$name, clone in '$clone', commit $(git -C "$repository" rev-parse --short HEAD)"
  FRESH_DEBIAN_INSIDE=1 unshare --mount --pid --fork --kill-child --mount-proc -- "$0" "$@" &
  inside_pid=$!
  wait $inside_pid
}

main "$@"; exit
