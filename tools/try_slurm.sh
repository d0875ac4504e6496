#!/usr/bin/env bash
# deploy/fathom.sbatch on a real Slurm: a controller and two nodes, each with a network and a host name of its own, on
# this machine. An ordinary user submits the demo model, asks it a question, cancels it; submits it again, and a process
# is killed. Ends with `N passed, N failed`.
#
#   sudo tools/try_slurm.sh [--keep DIR]       # DIR keeps Slurm's logs and the job's
#
# Needs root, and Debian's slurmctld, slurmd, slurm-client and munge, whose own services may run or not. Everything
# happens in namespaces of its own: nothing stays mounted or running, however it ends. Takes the program from
# build/release, or from FATHOM_BIN_DIR.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

keep=''
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=$2; shift 2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done
die() { echo "try_slurm: $*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || die "needs root, for namespaces and Slurm's daemons"
for program in slurmctld slurmd sbatch scancel munged ip; do
  command -v $program >/dev/null || die "there is no $program: apt-get install slurmctld slurmd slurm-client munge iproute2"
done
bin=$(realpath "${FATHOM_BIN_DIR:-build/release}")/apps
[ -x "$bin/fathom" ] || die "there is no $bin/fathom"

if [ -z "${TRY_SLURM_INSIDE:-}" ]; then
  TRY_SLURM_INSIDE=1 exec unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc \
    "$(realpath "$0")" ${keep:+--keep "$keep"}
fi

out=$(mktemp -d /var/tmp/fathom-slurm.XXXXXX)
finish() {
  [ -z "$keep" ] || { mkdir -p "$keep" && cp -r "$out/logs" "$out/home/"*.out "$keep/" 2>/dev/null; }
  rm -rf --one-file-system "$out"
}
trap finish EXIT
mkdir -p "$out"/{logs,state,munge,bin,home,model,n1,n2}
# The user may not see where this tree lies.
chmod 755 "$out"
cp "$bin/fathom" "$out/bin/"
cp models/demo/*.json models/demo/*.safetensors "$out/model/"
cp deploy/fathom.sbatch "$out/"

# The network: n1 and n2 behind a bridge.
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/munge
hostname controller
ip link set lo up
ip link add bridge type bridge
ip addr add 10.77.0.254/24 dev bridge
ip link set bridge up
printf '127.0.0.1 localhost\n10.77.0.254 controller\n10.77.0.1 n1\n10.77.0.2 n2\n' >"$out/hosts"
mount --bind "$out/hosts" /etc/hosts
for n in 1 2; do
  ip netns add n$n
  ip link add to-n$n type veth peer name eth0 netns n$n
  ip link set to-n$n master bridge up
  ip -n n$n link set lo up
  ip -n n$n addr add 10.77.0.$n/24 dev eth0
  ip -n n$n link set eth0 up
done

cat >"$out/slurm.conf" <<CONF
ClusterName=try
SlurmctldHost=controller
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation=$out/state
SlurmdSpoolDir=$out/%n
SlurmctldPidFile=$out/slurmctld.pid
SlurmdPidFile=$out/%n.pid
SlurmctldLogFile=$out/logs/slurmctld.log
SlurmdLogFile=$out/logs/%n.log
KillWait=10
MinJobAge=300
ReturnToService=2
NodeName=n[1-2] $(slurmd -C | sed -n 's/^NodeName=[^ ]* //p') State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
# The kernel may have no control groups mounted; nothing here wants any.
echo 'CgroupPlugin=cgroup/v1' >"$out/cgroup.conf"
export SLURM_CONF=$out/slurm.conf
head -c 1024 /dev/urandom >"$out/munge/key"
chmod 400 "$out/munge/key"
munged --force --key-file="$out/munge/key" --pid-file="$out/munge/pid" --seed-file="$out/munge/seed" \
  --log-file="$out/logs/munge.log" >/dev/null 2>&1 || die "munged does not start: $(tail -n 1 "$out/logs/munge.log")"
slurmctld -D >/dev/null 2>&1 &
for n in 1 2; do
  unshare --uts sh -c "hostname n$n && exec ip netns exec n$n slurmd -D" >/dev/null 2>&1 &
done

# eventually SECONDS COMMAND...: whether it succeeds within that time.
eventually() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}
nodes_idle() { [ "$(sinfo --noheader --format=%D --states=idle 2>/dev/null)" = 2 ]; }
eventually 60 nodes_idle || { sinfo; tail -n 5 "$out"/logs/*.log; die "Slurm's nodes do not come up"; }

# As a user does.
uid=65534 home=$out/home
as_user() {
  (cd "$home" && exec env HOME="$home" PATH="$out/bin:$PATH" MODEL="$out/model" "$@") 
}
chown -R $uid:$uid "$home"
user() { as_user setpriv --reuid=$uid --regid=$uid --clear-groups "$@"; }
openssl rand -hex 32 | user tee "$home/fathom-cluster-key" >/dev/null
user chmod 600 "$home/fathom-cluster-key"
echo somebody:try-slurm-0123456789 | user tee "$home/fathom-api-keys" >/dev/null
user chmod 600 "$home/fathom-api-keys"

passed=0 failed=0
result() {
  if [ "$1" -eq 0 ]; then passed=$((passed + 1)); echo "ok      $2"; return; fi
  failed=$((failed + 1))
  echo "FAILED  $2"
  tail -n 8 "$log" 2>/dev/null | cut -c1-400
}
job='' log=''
submit() {
  job=$(user sbatch --parsable --nodes=2 "$@" "$out/fathom.sbatch" --max-total-tokens 8192 --cpu-threads 1) || return 1
  log=$home/slurm-$job.out
}
# Or its job has ended.
is_ready_or_over() { is_ready || [[ $(state) =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT)$ ]]; }
becomes_ready() { eventually "$1" is_ready_or_over && is_ready; }
is_ready() { curl --silent --fail --max-time 2 --output /dev/null http://n1:30000/readyz; }
answers() {
  curl --silent --fail --max-time 60 http://n1:30000/v1/chat/completions -H 'authorization: Bearer try-slurm-0123456789' \
    -d '{"temperature": 0, "messages": [{"role": "user", "content": "Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?"}]}' |
    grep -q '"content":"[^"]*19'
}
state() { scontrol show job "$job" 2>/dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }
restarts() { scontrol show job "$job" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p'; }
nothing_runs() { ! pgrep -f "$out/bin/fathom|fathom serve" >/dev/null && nodes_idle; }
# The process on a node, which is a rank of the model.
process_on() { ip netns pids "n$1" | xargs -r ps -o pid=,args= -p 2>/dev/null | awk '$2 ~ /fathom$/ && $3 == "serve" {print $1; exit}'; }

echo "$(slurmctld -V), $("$bin/fathom" --version | head -1)"

submit; result $? "sbatch takes deploy/fathom.sbatch"
began=$SECONDS
becomes_ready 60; result $? "ready on both nodes ($((SECONDS - began)) s after the submission)"
[ -n "$(process_on 1)" ] && [ -n "$(process_on 2)" ]; result $? "a process on each node"
answers; result $? "the question is answered"
began=$SECONDS
user scancel "$job"
eventually 30 nothing_runs; result $? "scancel ends all ($((SECONDS - began)) s)"
[ "$(state)" = CANCELLED ]; result $? "the job is cancelled, and not begun again: $(state)"

for victim in 2 1; do
  submit && becomes_ready 60; result $? "ready again"
  [ -n "$(process_on $victim)" ] || continue
  first=$log
  began=$SECONDS
  kill -9 "$(process_on $victim)"
  again() { [ "$(restarts)" = 1 ]; }
  eventually 30 again; result $? "kill -9 on n$victim ends the job, which Slurm begins again ($((SECONDS - began)) s)"
  why=$(grep -o 'node [0-9] at [^ ]* closed its connection: its process has ended' "$first" | sort -u)
  [[ $why = "node $((victim - 1)) at "* && $why != *$'\n'* ]]; result $? "one sentence says why: $why"
  becomes_ready 240 && answers; result $? "and answers again ($((SECONDS - began)) s after the kill)"
  user scancel "$job"
  eventually 30 nothing_runs; result $? "scancel ends all"
done
submit --ntasks-per-node=2 && becomes_ready 60 && answers; result $? "two processes on each node answer"
user scancel "$job"
eventually 30 nothing_runs; result $? "scancel ends all"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
