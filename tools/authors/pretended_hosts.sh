# shellcheck shell=bash
# Sourced by try_hosts and try_slurm: hosts that are not there. A pretended host is a process with a
# network, a host name, shared memory and a temporary folder of its own; a bridge joins them.
#
# All of it lives in namespaces that belong to the calling script alone: the script starts itself
# again as their first process. When that process ends, however it ends, the kernel ends every
# process in them and takes networks, mounts and files away, so nothing can be left over, and
# nothing of the machine's own network is ever touched.

world=/run/aisc # all hosts see it: the shared file system. A tmpfs that nobody else sees.
hosts=0
network=10.77.0 # host i has the address 10.77.0.i

say() { printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2; }
fail() {
  say "$1"
  exit 2
}
section() { printf '\n=== %s\n' "$*"; }

failures=0
# check <what> <command>: prints whether the command holds; the script ends with the count of those
# that do not.
check() {
  local what=$1
  shift
  if "$@"; then
    printf 'passed: %s\n' "$what"
  else
    printf 'FAILED: %s\n' "$what"
    failures=$((failures + 1))
  fi
}

need_programs() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || fail "the program '$program' is missing"
  done
}

# own_world <arguments of the script>: returns within the new namespaces; the caller's process only
# waits. Ctrl-C or a signal ends everything at once.
own_world() {
  if [ "${AISC_OWN_WORLD:-}" = yes ] && [ $$ = 1 ]; then
    enter_world
    return
  fi
  [ "$(id -u)" = 0 ] || fail "needs root, to make network namespaces: sudo $0 $*"
  need_programs ip nsenter setpriv unshare
  set -m # the child gets its own process group, so that Ctrl-C reaches this process alone
  AISC_OWN_WORLD=yes setpriv --pdeathsig KILL unshare --mount --uts --ipc --net --pid --fork \
    --kill-child --mount-proc -- "$0" "$@" </dev/null &
  local child=$!
  # shellcheck disable=SC2064  # the child of now
  {
    trap "kill -KILL $child; say 'interrupted; everything is removed'; exit 130" INT
    trap "kill -KILL $child; exit 143" TERM HUP
  }
  wait $child
  exit $?
}

enter_world() {
  mount -t tmpfs -o mode=755 aisc /run
  mkdir -p $world/pid /run/local
  hostname aisc-switch
  ip link set lo up
  ip link add aisc-switch type bridge
  ip link set aisc-switch up
  # mpirun starts its daemons on the other hosts with this in place of ssh. Like ssh it hands on no
  # variable of the caller.
  cat >$world/agent <<'END'
#!/usr/bin/env bash
host=$1
shift
exec nsenter --target "$(cat /run/aisc/pid/"$host")" --mount --uts --ipc --net -- \
  env -i HOME=/root PATH="$PATH" TMPDIR=/run/local bash -c "$*"
END
  chmod +x $world/agent
  export TMPDIR=/run/local # every host's own
  # Root may start MPI programs here: they cannot leave these namespaces.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  # More ranks than cores share them: a rank that waits lets the others go first.
  export OMPI_MCA_mpi_yield_when_idle=1 OMP_WAIT_POLICY=passive
  # Between hosts TCP over the pretended network only, within a host shared memory.
  export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp
  export OMPI_MCA_btl_tcp_if_include=$network.0/24 OMPI_MCA_oob_tcp_if_include=$network.0/24
}

# make_hosts <count>: host1, host2, ... on one network.
make_hosts() {
  local i pid
  printf '127.0.0.1 localhost\n' >$world/hosts
  for ((i = 1; i <= $1; ++i)); do printf '%s.%d host%d\n' $network "$i" "$i" >>$world/hosts; done
  mount --bind $world/hosts /etc/hosts
  for ((i = 1; i <= $1; ++i)); do
    unshare --mount --uts --ipc --net sleep infinity &
    pid=$!
    until [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/self/ns/net)" ] &&
      [ "$(cat /proc/$pid/comm)" = sleep ]; do sleep 0.01; done
    echo $pid >$world/pid/host"$i"
    ip link add aisc-host"$i" type veth peer name eth0 netns $pid
    ip link set aisc-host"$i" master aisc-switch up
    on_host "$i" bash -e <<END
hostname host$i
mount -t tmpfs aisc /run/local
mount -t tmpfs aisc /dev/shm
ip link set lo up
ip address add $network.$i/24 dev eth0
ip link set eth0 up
END
    hosts=$i
  done
}

# on_host <number> <command>: runs it there, in the current folder.
on_host() {
  local pid
  pid=$(cat $world/pid/host"$1")
  shift
  nsenter --target "$pid" --mount --uts --ipc --net -- env -C "$PWD" "$@"
}

# Bytes that a host has sent over its network.
# shellcheck disable=SC2016  # awk's fields
sent_bytes() { on_host "$1" awk '$1 == "eth0:" { print $10 }' /proc/self/net/dev; }

# slow_down <delay or ''> <rate or ''>: of what every host sends.
slow_down() {
  local i
  for ((i = 1; i <= hosts; ++i)); do
    if [ -n "$1" ]; then
      on_host "$i" tc qdisc add dev eth0 root netem delay "$1" ${2:+rate "$2"} 2>/dev/null ||
        fail "--delay $1: not understood, or this kernel has no netem (CONFIG_NET_SCH_NETEM)"
    elif [ -n "$2" ]; then
      on_host "$i" tc qdisc add dev eth0 root tbf rate "$2" burst 1mb latency 10ms 2>/dev/null ||
        fail "--rate $2: not understood, or this kernel has no tbf (CONFIG_NET_SCH_TBF)"
    fi
  done
}

# same_losses <folder> <folder>: of two runs of train_gpt. A sum of floats depends on its order, and
# so on the ranks: a relative difference of 1e-4 is allowed.
same_losses() {
  python3 - "$1" "$2" <<'END'
import json, sys
def read(folder):
    with open(folder + "/metrics.jsonl") as file:
        return [json.loads(line)["loss"] for line in file]
try:
    one, many = (read(folder) for folder in sys.argv[1:])
except FileNotFoundError as error:
    sys.exit(str(error))
worst = max((abs(a - b) / abs(a) for a, b in zip(one, many)), default=float("inf"))
print(f"{len(one)} and {len(many)} steps; last losses {one[-1]:.6f} and {many[-1]:.6f}; "
      f"largest relative difference {worst:.1e}")
sys.exit(0 if len(one) == len(many) > 0 and worst < 1e-4 else 1)
END
}

finish() {
  [ $failures = 0 ] && exit 0
  printf '\n%d failed\n' $failures
  exit 1
}
