#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real Prometheus scrapes a verifier and a proposer, and promtool checks both pages. The script asks Prometheus for every
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
start proposer "$build/bin/foretoken_proposer" --method=ngram "${listen[@]}"
proposer_metrics=$metrics
# An exemplar needs a recorded trace; no collector has to be there for it.
start verifier env OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9 "$build/bin/foretoken_verifier" \
  --model="$root/deploy/demo/target" --proposer="ngram=static:$address" --metrics_compat=vllm "${listen[@]}"
request=("$build/bin/foretoken" generate --target="$address" --trace --json --max_tokens=64 --ignore_eos
  --speculation=always $'def total(prices):\n    return sum(prices)\n\ndef total(')
for _ in 1 2; do "${request[@]}" >/dev/null 2>&1; done

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
find_ports 1
prometheus --config.file="$scratch/prometheus.yml" --storage.tsdb.path="$scratch/data" \
  --enable-feature=exemplar-storage --web.listen-address="127.0.0.1:${ports[0]}" >"$scratch/prometheus.log" 2>&1 &
pids+=("$!")
python3 "$here/check_prometheus.py" "http://127.0.0.1:${ports[0]}" "${request[@]}"
