# Bare Debian systems to try things in, for scripts that are sourced with it: bootstrapped once, a copy for each run.
#
#   suite=trixie mirror='' pristine=DIR/pristine-trixie system=DIR/system
#   bootstrap                # makes $pristine, where it is not there yet
#   copy_system              # makes $system; in a mount namespace of its own (unshare --mount)
#
#   read_options 'keep no-pypi' 'mirror work' "$@"      # --keep: keep=yes, --no-pypi: no_pypi=yes, --work DIR: work=DIR
#
# Needs root, debootstrap, and die() and say() of the script. Mirror and proxy are those of this machine's apt.

# The mirrors of the suite as lines of sources.list: $mirror, or those that this machine's apt uses for its own suite.
sources() {
  [ -z "$mirror" ] || { echo "deb $mirror $suite main"; return; }
  local own
  own=$(. /etc/os-release && echo "$VERSION_CODENAME")
  apt-get indextargets --format '$(CREATED_BY) $(REPO_URI) $(RELEASE) $(COMPONENT)' |
    awk -v own="$own" -v suite="$suite" '$1 == "Packages" && $3 ~ "^" own && $4 == "main" {
      sub("^" own, suite, $3); print "deb", $2, $3, $4}' | sort -u
}

bootstrap() {
  [ -e "$pristine.done" ] && return
  local from
  from=$(sources | awk -v suite="$suite" '$3 == suite {print $2; exit}')
  [ -n "$from" ] || die "this machine's apt uses no mirror of Debian: name one with --mirror"
  say "bootstrapping $suite into $pristine (once; the log is $pristine.log)"
  rm -rf "$pristine"
  debootstrap --variant=minbase "$suite" "$pristine" "$from" >"$pristine.log" 2>&1 ||
    die "debootstrap failed: $(tail -n 1 "$pristine.log")"
  touch "$pristine.done"
}

# A copy of the pristine system, with the way to this machine's mirrors and nothing more.
copy_system() {
  rm -rf --one-file-system "$system"
  cp -a "$pristine" "$system"
  sources >"$system/etc/apt/sources.list"
  apt-config dump | grep -E '^Acquire::(https?|Check)[-:A-Za-z]* ' >"$system/etc/apt/apt.conf.d/90mirror" || true
  # Certificates that this machine trusts besides the public ones; ca-certificates picks them up when it comes.
  [ ! -d /usr/local/share/ca-certificates ] ||
    cp -r /usr/local/share/ca-certificates "$system/usr/local/share/"
  cp -L /etc/resolv.conf "$system/etc/resolv.conf"
  echo fresh >"$system/etc/hostname"
  echo "127.0.0.1 localhost $(hostname)" >"$system/etc/hosts"
  mount --rbind /dev "$system/dev"
  mount -t proc proc "$system/proc"
  mount -t sysfs -o ro sysfs "$system/sys"
  mount -t tmpfs tmpfs "$system/tmp"
  chmod 1777 "$system/tmp"
}

# show_folder FROM TO [ro]: a folder of this machine at a path of the system's.
show_folder() {
  mkdir -p "$system$2"
  mount --bind "$1" "$system$2"
  [ "${3:-}" != ro ] || mount -o remount,bind,ro "$system$2"
}

# The question of the README, to a server at $1, whose answer goes to the file $2; more arguments are curl's.
ask_question() {
  local url=$1 file=$2 question='Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?'
  shift 2
  curl -sf "$@" "$url/v1/chat/completions" -o "$file" -d \
    '{"messages": [{"role": "user", "content": "'"$question"'"}], "temperature": 0}' || die "the chat request failed"
  grep -o '"content": *"[^"]*19[^"]*"' "$file" || die "no 19 in $(cat "$file")"
}

# read_options FLAGS NAMES ARGUMENT...: a variable for each option. What is none shows how the script is used.
read_options() {
  local flags=$1 names=$2 name
  shift 2
  while [ $# -gt 0 ]; do
    name=${1#--}
    [ "$1" = "--$name" ] || name=-  # no option
    if [[ " $flags " = *" $name "* ]]; then
      printf -v "${name//-/_}" yes
    elif [[ " $names " = *" $name "* ]]; then
      [ $# -ge 2 ] || die "$1 needs a value"
      printf -v "$name" %s "$2"
      shift
    else
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
      die "unknown argument '$1'"
    fi
    shift
  done
}
