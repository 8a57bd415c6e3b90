#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real Prometheus scrapes a verifier and a proposer, and promtool checks both pages. The script asks Prometheus for every
# name that vLLM's dashboards use. If it fails, monitoring that operators have does not work with this server.
#
#   tests/rehearsal/prometheus.sh build/release
#
# Exits with 77 (skipped) without the programs prometheus and promtool.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
scratch=$(mktemp -d)
pids=()

cleanup() {
  ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
  wait
  rm -rf "$scratch"
}
trap cleanup EXIT

fail() {
  echo "prometheus.sh: $*" >&2
  exit 1
}

command -v prometheus >/dev/null && command -v promtool >/dev/null || {
  echo "prometheus.sh: skipped: no prometheus and promtool here" >&2
  exit 77
}

# start NAME COMMAND...: runs a service and sets `address` and `metrics`, the port of its metrics.
start() {
  local log="$scratch/$1"
  shift
  : >"$log.out"
  "$@" --listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0 >"$log.out" 2>"$log.err" &
  pids+=("$!")
  for _ in {1..300}; do
    address=$(sed -n 's/^listening on //p' "$log.out")
    metrics=$(sed -n 's/.*metrics on port //p' "$log.err")
    [[ -n $address ]] && return
    sleep 0.1
  done
  fail "a service does not listen: $(<"$log.err")"
}

start proposer "$build/bin/foretoken_proposer" --method=ngram
proposer_metrics=$metrics
start verifier "$build/bin/foretoken_verifier" --model="$root/deploy/demo/target" --proposer="ngram=static:$address" \
  --metrics_compat=vllm
for _ in 1 2; do
  "$build/bin/foretoken" generate --target="$address" --max_tokens=64 --ignore_eos --speculation=always \
    $'def total(prices):\n    return sum(prices)\n\ndef total(' >/dev/null 2>&1
done

for port in "$metrics" "$proposer_metrics"; do
  # promtool wants no colon in a name; vLLM's names have one.
  curl -fs "http://127.0.0.1:$port/metrics" | grep -v '^\(# [A-Z]* \)\?vllm:' >"$scratch/page"
  promtool check metrics <"$scratch/page" || fail "promtool finds fault with the page above"
done

cat >"$scratch/prometheus.yml" <<YAML
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: foretoken
    static_configs: [{targets: ["127.0.0.1:$metrics", "127.0.0.1:$proposer_metrics"]}]
YAML
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
prometheus --config.file="$scratch/prometheus.yml" --storage.tsdb.path="$scratch/data" \
  --web.listen-address="127.0.0.1:$port" >"$scratch/prometheus.log" 2>&1 &
pids+=("$!")
python3 "$here/check_vllm_metrics.py" "http://127.0.0.1:$port"
