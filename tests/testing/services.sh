# SPDX-License-Identifier: Apache-2.0
# For scripts that test services with programs of others. A script sources this file:
#
#   source "$(dirname "${BASH_SOURCE[0]}")/../testing/services.sh"
#   start proposer "$build/bin/foretoken_proposer" --listen=127.0.0.1:0
#   echo "$address"
#
# Sets `root`, the repository, `scratch`, a folder that is removed at the script's end, and `pids`, the processes that
# end with the script.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
pids=()

end_all() {
  ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
  wait
  rm -rf "$scratch"
}
trap end_all EXIT

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# CTest counts the exit status 77 as skipped.
skip() {
  echo "${0##*/}: skipped: $*" >&2
  exit 77
}

# make_venv FOLDER REQUIREMENTS: a Python virtual environment with these packages. Skips the script without Python or PyPI.
make_venv() {
  exec 9>"$1.lock"
  flock 9  # two tests may want it at the same time
  if [[ ! $1/ready -nt $2 ]]; then
    python3 -m venv "$1" && "$1/bin/pip" install -q -r "$2" || skip "no Python virtual environment with $2 could be made"
    touch "$1/ready"
  fi
  exec 9>&-
}

# find_ports COUNT: sets `ports` to free ones.
find_ports() {
  mapfile -t ports < <(python3 -c '
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in sockets: s.bind(("127.0.0.1", 0))
for s in sockets: print(s.getsockname()[1])' "$1")
}

# wait_for COMMAND...: until it succeeds, or fails after a minute.
wait_for() {
  for _ in {1..600}; do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  fail "a minute was not enough for: $*"
}

# start NAME COMMAND...: runs a service in the background. Sets `address`, where it listens, and `metrics`, the port of its
# metrics, or nothing without them. Its lines are in $scratch/NAME.err.
start() {
  local name=$1 pid
  shift
  : >"$scratch/$name.out"  # the loop may read before the background shell opens the file
  "$@" >"$scratch/$name.out" 2>"$scratch/$name.err" &
  pid=$!
  pids+=("$pid")
  for _ in {1..600}; do
    address=$(sed -n 's/^listening on //p' "$scratch/$name.out")
    metrics=$(sed -n 's/.*metrics on port //p' "$scratch/$name.err")
    [[ -n $address ]] && return
    kill -0 "$pid" 2>/dev/null || fail "$name ended before it listened: $(<"$scratch/$name.err")"
    sleep 0.1
  done
  fail "$name does not listen: $(<"$scratch/$name.err")"
}
