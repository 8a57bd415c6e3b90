#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes docs/pictures/board.png: the panels of the board for Grafana, with the answers of a real Prometheus that scrapes a
# verifier and three proposers under load. Grafana draws other lines of the same numbers.
#
#   tests/rehearsal/board_picture.sh build/release
#
# Needs Prometheus and Chromium. Takes two minutes. Fails if a panel of the board has no answer.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../testing/services.sh"
build=$(cd "$1" && pwd)
readonly PHASE_S=30
listen=(--listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0)
demo=$root/deploy/demo

# start_proposer METHOD [FLAG...]
start_proposer() {
  start "$1" "$build/bin/foretoken_proposer" --method="$1" "${listen[@]}" "${@:2}"
  proposers+="${proposers:+;}$1=static:$address"
  scraped+="${scraped:+, }127.0.0.1:$metrics"
}

# load CLIENTS: so many clients, for a phase.
load() {
  timeout "$PHASE_S" "$build/bin/foretoken" bench --target="$target" --prompt_file="$demo/prompts.jsonl" --clients="$1" \
    --requests=100000 --max_tokens=128 --temperature=0.8 >/dev/null 2>&1 || (($? == 124)) || fail "the load does not run"
}

mkdir "$scratch/target"
"$build/bin/costly_target" "$demo/target" "$scratch/target" 0.15 >/dev/null || fail "no costly target"
start_proposer ngram
start_proposer suffix
start_proposer draft --model="$demo/draft"
draft_pid=${pids[-1]}
start verifier "$build/bin/foretoken_verifier" --model="$scratch/target" --proposer="$proposers" --max_running_samples=12 \
  --kv_cache_mb=64 "${listen[@]}"
target=$address

# As in the compose file, but with addresses of this machine.
find_ports 1
sed "s/verifier:9100/127.0.0.1:$metrics/; s/\[ngram:9100.*draft:9100\]/[$scraped]/; s/scrape_interval: 5s/scrape_interval: 1s/" \
  "$root/deploy/compose/prometheus.yaml" >"$scratch/prometheus.yaml"
prometheus --config.file="$scratch/prometheus.yaml" --storage.tsdb.path="$scratch/data" \
  --web.listen-address="127.0.0.1:${ports[0]}" >"$scratch/prometheus.log" 2>&1 &
pids+=("$!")
wait_for curl -fs "http://127.0.0.1:${ports[0]}/-/ready"
load 2
load 20
kill "$draft_pid"
load 8
python3 "$here/draw_board.py" "http://127.0.0.1:${ports[0]}" "$root/deploy/helm/foretoken/files/dashboard.json" $((3 * PHASE_S)) \
  >"$scratch/board.html" || fail "the board has no picture"
chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync \
  --user-data-dir="$scratch/chromium" --window-size=1320,1450 --hide-scrollbars \
  --screenshot="$root/docs/pictures/board.png" "file://$scratch/board.html" 2>/dev/null
echo "docs/pictures/board.png"
