#!/bin/bash
# two_hosts.sh COMMAND: runs shell text on one of two hosts that are namespaces of this machine, each with a network and
# a name of its own, and a cable between them. In COMMAND, `mpirun2 ARGUMENTS` is Open MPI over both by TCP, and
# `pull_the_cable` does so. 77: this machine allows no such namespaces, for the reason on standard output.
set -u
if [[ ${TWO_HOSTS_INSIDE:-} != yes ]]; then
  spaces=(--net --uts --mount --pid --fork --kill-child --mount-proc)
  for way in "--user --map-root-user" ""; do
    # shellcheck disable=SC2086
    if why=$(unshare $way "${spaces[@]}" true 2>&1); then
      # shellcheck disable=SC2086
      TWO_HOSTS_INSIDE=yes exec unshare $way "${spaces[@]}" "$BASH" "$0" "$@"
    fi
  done
  echo "no namespaces: $why"
  exit 77
fi

fail() {
  echo "no namespaces: $1"
  exit 77
}
hostname first || fail 'the name of a host'
unshare --net --uts sleep infinity &
other=$!
enter=(nsenter --target "$other" --net --uts --)
for _ in {1..200}; do
  [[ $(readlink "/proc/$other/ns/net") != "$(readlink /proc/$$/ns/net)" ]] && break
  sleep 0.01
done
"${enter[@]}" hostname second || fail 'the name of the other host'
ip link add first type veth peer name second netns "$other" || fail 'a cable'
ip address add 10.77.0.1/24 dev first && ip link set first up && ip link set lo up || fail 'an address'
"${enter[@]}" ip address add 10.77.0.2/24 dev second && "${enter[@]}" ip link set second up &&
  "${enter[@]}" ip link set lo up || fail 'an address of the other host'

agent=$(mktemp)
trap 'rm -f "$agent"' EXIT
# As ssh: a host, then a command for its shell.
printf '#!/bin/bash\nshift\nexec nsenter --target %s --net --uts -- bash -c "$*"\n' "$other" >"$agent"
chmod +x "$agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun2() {
  mpirun --host 10.77.0.1:8,10.77.0.2:8 --map-by node --bind-to none --mca plm_rsh_agent "$agent" \
    --mca btl self,tcp --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 "$@"
}
pull_the_cable() { ip link set first down; }
eval "$1"
