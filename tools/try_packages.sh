#!/usr/bin/env bash
# Tries what `make package` made on bare Debian 12 and 13: one command installs, starts the server on the demo model and
# asks it a question; the seconds until the answer, and the sizes, are shown. Needs root, debootstrap and curl.
#
#   tools/try_packages.sh                        the .deb, the tarball and the wheel, on both
#   tools/try_packages.sh --only deb,wheel       some of them
#   tools/try_packages.sh --suites trixie        on one system
#   tools/try_packages.sh --dist DIR             packages of another folder than build/package/dist
#   tools/try_packages.sh --image                the steps of deploy/Dockerfile instead, in a chroot for each stage
#       --cuda /usr/local/cuda-13.0              with this CUDA toolkit; without it --build-arg CUDA=OFF
#       --ccache DIR                             compile through a ccache in DIR
#       --built DIR                              what was installed in DIR (build/package/fathom-*) instead of what
#                                                the first stage would compile, which takes long: the second stage alone
#   tools/try_packages.sh --mirror URL --work DIR   as tools/fresh_debian.sh has them
#
# The image's base images are not fetched: its steps run on Debian 13's minbase, of which debian:trixie-slim is made.
# Everything runs in namespaces of its own, on this machine's network: port 30000 must be free.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
port=30000 url=http://127.0.0.1:30000
die() { echo "try_packages: $*" >&2; exit 1; }
say() { echo "try_packages: $*"; }
. "$repository/tools/debian_system.sh"

parse() {
  only=deb,tarball,wheel suites=bookworm,trixie dist=$repository/build/package/dist image='' cuda='' ccache='' built='' mirror=''
  work=/var/tmp/fresh-debian
  read_options image 'only suites dist cuda ccache built mirror work' "$@"
  [ "$(id -u)" -eq 0 ] || die "needs root: it makes systems and mounts"
  [ -z "$built" ] || [ -x "$built/bin/fathom" ] || die "--built $built: there is no bin/fathom in it"
  command -v debootstrap >/dev/null || die "install debootstrap"
  command -v curl >/dev/null || die "install curl"
}

# What a person types, in a folder with the package.
command_of() {
  local start='serve --model-path demo'
  case "$1" in
    deb) echo "apt-get update && apt-get install -y ./*.deb && exec fathom $start" ;;
    tarball) echo "apt-get update && apt-get install -y --no-install-recommends libssl3 && tar xzf *.tar.gz &&
      exec ./fathom-*/bin/fathom $start" ;;
    wheel) echo "apt-get update && apt-get install -y --no-install-recommends python3-venv && python3 -m venv env &&
      env/bin/pip install --no-index ./*.whl && exec env/bin/fathom $start" ;;
    *) die "--only: deb, tarball or wheel, not '$1'" ;;
  esac
}

files_of() {
  case "$1" in
    deb) echo "$dist"/*.deb ;;
    tarball) echo "$dist"/*.tar.gz ;;
    wheel) echo "$dist"/*.whl ;;
  esac
}

# Takes the place of the shell that calls it.
enter_system() {
  exec env -i HOME=/root LANG=C.UTF-8 TERM=dumb DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${settings[@]}" \
    chroot "${chroot_flags[@]}" "$system" /bin/sh -c 'cd "$1" && shift && exec "$@"' sh "$folder" "$@"
}
in_system() { (enter_system "$@"); }

# serve_and_ask LOG COMMAND...: until the answer is there. More settings of curl in `curl_flags`.
serve_and_ask() {
  local log=$1 start=$SECONDS server
  shift
  ! curl -s -o /dev/null "$url" || die "something listens on port $port already"
  enter_system "$@" >"$log" 2>&1 </dev/null &
  server=$!
  until curl -sf -o /dev/null "$url/readyz"; do
    kill -0 "$server" 2>/dev/null || { tail -n 20 "$log"; die "the server ended before it was ready"; }
    sleep 0.2
  done
  ask_question "$url" "$log.answer" "${curl_flags[@]}"
  seconds=$((SECONDS - start))
  kill -TERM "$server"
  wait "$server" || die "the server ended with status $?"
}

try_package() {
  local kind=$1 file
  file=$(files_of "$kind")
  [ -f "$file" ] || die "no package of the kind $kind in $dist: make package"
  copy_system
  rm -rf "$system"/var/lib/apt/lists/* "$system"/var/cache/apt/*
  mkdir -p "$system/srv/new"
  cp "$file" "$system/srv/new/"
  serve_and_ask "$logs/$suite-$kind.log" sh -c "$(command_of "$kind")"
  say "$suite, $kind of $(du -h "$file" | cut -f1): answered $seconds s after the command, nothing installed before"
  [ "$kind" != deb ] || check_deb
}

# What else the .deb promises.
check_deb() {
  in_system sh -ec 'fathom --version; fathom doctor >/dev/null; test -s /usr/share/man/man1/fathom.1.gz
    test -s /usr/lib/systemd/system/fathom.service; bash -n /usr/share/bash-completion/completions/fathom
    dpkg --verify fathom; apt-get remove -y fathom >/dev/null; test ! -e /usr/bin/fathom'
}

# A stage of the Dockerfile in a system of its own, the tree at /context and earlier stages below /stages.
run_stage() {
  local stage=$1
  system=$work/system.image-$stage
  copy_system
  # As the slim images are made of minbase.
  [ "$stage" = build ] || rm -rf "$system"/usr/share/{doc,info,lintian,linda,locale,man}/*
  show_folder "$context" /context ro
  if [ "$stage" = build ]; then
    [ -z "$cuda" ] || { show_folder "$cuda" "$cuda" ro && [ "$cuda" = /usr/local/cuda ] || ln -s "$cuda" "$system/usr/local/cuda"; }
    [ -z "$ccache" ] || show_folder "$ccache" /var/ccache
  else
    show_folder "$stages" /stages/build ro
  fi
  python3 -B "$repository/tools/package/dockerfile_steps.py" "$context/deploy/Dockerfile" "$stage" \
    --build-arg CUDA="$([ -n "$cuda" ] && echo ON || echo OFF)" --build-arg COMMIT="$(git -C "$repository" rev-parse --short=12 HEAD)" \
    >"$system/tmp/steps.sh"
  in_system bash /tmp/steps.sh >"$logs/image-$stage.log" 2>&1 ||
    { tail -n 20 "$logs/image-$stage.log"; die "a step of the stage $stage failed"; }
}

try_image() {
  local start=$SECONDS mib
  context=$work/context
  rm -rf "$context"
  git clone --quiet --no-local "$repository" "$context"
  rm -rf "$context/.git"
  settings=()
  [ -z "$cuda" ] || settings+=(PATH="$cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
  [ -z "$ccache" ] || settings+=(CCACHE_DIR=/var/ccache CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content)
  stages=$work/system.image-build
  if [ -n "$built" ]; then
    mkdir -p "$stages"
    cp -rL "$built" "$stages/out"
  else
    run_stage build
    say "the stage build took $((SECONDS - start)) s"
  fi
  settings=()
  run_stage run
  mib=$(du -smx --exclude="$system"/{context,stages,proc,sys,dev,tmp} "$system" | cut -f1)
  say "the image has $mib MiB"
  [ "$mib" -le 150 ] || die "more than 150 MiB"
  install -D -m 644 /dev/stdin "$system/etc/fathom/api-keys" <<<'somebody:a-key-of-the-trial'
  curl_flags=(-H 'Authorization: Bearer a-key-of-the-trial')
  chroot_flags=(--userspec 10001:10001)
  mapfile -t entry < <(python3 -B "$repository/tools/package/dockerfile_steps.py" "$context/deploy/Dockerfile" run --entry)
  # With the flag whose library nothing is linked against.
  serve_and_ask "$logs/image.log" "${entry[@]}" --kv-events-config '{"publisher": "zmq", "endpoint": "ipc:///tmp/kv"}'
  say "the image answered $seconds s after its start"
}

inside() {
  settings=() chroot_flags=() curl_flags=() folder=/srv/new
  if [ -n "$image" ]; then
    folder=/
    try_image
    return
  fi
  try_package "$kind"
}

clean_up() {
  [ -z "$inside_pid" ] || { kill -KILL "$inside_pid" 2>/dev/null; wait "$inside_pid" 2>/dev/null; } || true
  rm -rf --one-file-system "$work"/system.try-* "$work"/system.image-* "$work/context"
}

main() {
  parse "$@"
  logs=$work/logs.packages
  if [ -n "${TRY_PACKAGES_SUITE:-}" ]; then
    suite=$TRY_PACKAGES_SUITE kind=$TRY_PACKAGES_KIND pristine=$work/pristine-$suite system=$work/system.try-$suite-$kind
    inside
    return
  fi
  mkdir -p "$logs"
  exec 9>"$work/lock"
  flock -n 9 || die "another run in $work is under way"
  inside_pid=''
  trap clean_up EXIT
  trap 'exit 130' INT TERM HUP
  [ -z "$image" ] || { suites=trixie only=image; }
  for suite in ${suites//,/ }; do
    pristine=$work/pristine-$suite
    bootstrap
    # Each in namespaces of its own, whose mounts go with them.
    for kind in ${only//,/ }; do
      TRY_PACKAGES_SUITE=$suite TRY_PACKAGES_KIND=$kind unshare --mount --pid --fork --kill-child --mount-proc -- "$0" "$@" &
      inside_pid=$!
      wait $inside_pid
      inside_pid=''
    done
  done
}

main "$@"; exit
