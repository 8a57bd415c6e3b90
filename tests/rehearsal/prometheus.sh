#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real Prometheus scrapes a verifier and a proposer of each method, and promtool checks all pages. The script asks Prometheus for every
# name that vLLM's dashboards use, and for the exemplars of a traced request. If it fails, monitoring that operators have
# does not work with this server.
#
#   tests/rehearsal/prometheus.sh build/release
#
# Exits with 77 (skipped) without the programs prometheus and promtool.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../testing/services.sh"
build=$(cd "$1" && pwd)

command -v prometheus >/dev/null && command -v promtool >/dev/null || skip "no prometheus and promtool here"

listen=(--listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0)
pages=() proposers=()
start_proposer() {
  start "$1" "$build/bin/foretoken_proposer" --method="$@" "${listen[@]}"
  pages+=("$metrics")
  proposers+=(--proposer="$1=static:$address")
}
start_proposer ngram
start_proposer suffix --suffix_snapshot="$scratch/outputs" --suffix_snapshot_interval=100ms
start_proposer draft --model="$root/deploy/demo/draft"
# An exemplar needs a recorded trace; no collector has to be there for it.
start verifier env OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9 "$build/bin/foretoken_verifier" \
  --model="$root/deploy/demo/target" "${proposers[@]}" --metrics_compat=vllm "${listen[@]}"
pages+=("$metrics")
request=("$build/bin/foretoken" generate --target="$address" --trace --json --max_tokens=64 --ignore_eos
  --speculation=always $'def total(prices):\n    return sum(prices)\n\ndef total(')
for _ in 1 2; do "${request[@]}" >/dev/null 2>&1; done

for port in "${pages[@]}"; do
  # promtool wants no colon in a name; vLLM's names have one.
  curl -fs "http://127.0.0.1:$port/metrics" | grep -v '^\(# [A-Z]* \)\?vllm:' >"$scratch/page"
  promtool check metrics <"$scratch/page" || fail "promtool finds fault with the page above"
done

cat >"$scratch/prometheus.yml" <<YAML
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: foretoken
    static_configs: [{targets: [$(printf '"127.0.0.1:%s",' "${pages[@]}")]}]
YAML
find_ports 1
prometheus --config.file="$scratch/prometheus.yml" --storage.tsdb.path="$scratch/data" \
  --enable-feature=exemplar-storage --web.listen-address="127.0.0.1:${ports[0]}" >"$scratch/prometheus.log" 2>&1 &
pids+=("$!")
python3 "$here/check_prometheus.py" "http://127.0.0.1:${ports[0]}" "${request[@]}"
