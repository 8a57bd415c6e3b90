#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `foretoken simulate` against real runs: a profile is measured with 1, 2, 4 and 8 clients, and the simulation predicts the
# runs with 3 and 6 clients, and one with requests at random times. If it fails, operators plan with numbers that are off
# by more than 15 %. Where the machine's own speed changes by as much, the run tells nothing, and counts as skipped.
#
#   tests/rehearsal/simulation.sh build/release
source "$(dirname "${BASH_SOURCE[0]}")/../testing/services.sh"
build=$(cd "$1" && pwd)

# The costly target takes tens of milliseconds for a step, as a model of use does. The demo's tokens take fewer.
mkdir "$scratch/target"
"$build/bin/costly_target" "$root/deploy/demo/target" "$scratch/target" 0.15 >/dev/null || fail "no costly target"
start proposer "$build/bin/foretoken_proposer" --listen=127.0.0.1:0 --method=ngram
start verifier "$build/bin/foretoken_verifier" --listen=127.0.0.1:0 --model="$scratch/target" \
  --proposer="ngram=static:$address" --allow_step_reports --prefix_cache=false  # else repeated prompts take no time
load=(--target="$address" --prompt_file="$root/deploy/demo/prompts.jsonl" --max_tokens=96 --temperature=0.8)
sleep 2  # until the proposer is connected

# One short run, again and again between the others: if its speed changes, so did the machine's.
measure_machine() {
  "$build/bin/foretoken" bench "${load[@]}" --requests=16 --clients=4 --json_out="$scratch/machine.json" >/dev/null 2>&1
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["tokens_per_s"])' "$scratch/machine.json" >>"$scratch/speeds"
}

measure_machine
"$build/bin/foretoken" bench "${load[@]}" --requests=32 --clients=8 --profile="$scratch/profile.json" 2>/dev/null
measure_machine

# compare NAME FIELDS: the real run of real.json against the mean of the simulated ones. FIELDS must be within 15 %.
compare() {
  python3 - "$1" "$2" "$scratch/real.json" "$scratch"/simulated.*.json <<'PY' || failed=1
import json, statistics, sys
name, bounded, real, *simulated = sys.argv[1], sys.argv[2].split(), *(json.load(open(path)) for path in sys.argv[3:])
fields_of = {"tokens/s": ["tokens_per_s"], "inter-token": ["inter_token_ms", "mean"],
             "first-token": ["time_to_first_token_ms", "p50"], "first-token-p90": ["time_to_first_token_ms", "p90"]}

def read(result, fields):
    for field in fields:
        result = result[field]
    return result

ratios = {}
for field, path in fields_of.items():
    is_real, is_simulated = read(real, path), statistics.mean(read(result, path) for result in simulated)
    ratios[field] = is_simulated / is_real
    print(f"{name}, {field}: real {is_real:.2f}, simulated {is_simulated:.2f}, ratio {ratios[field]:.3f}")
sys.exit(any(not 0.85 <= ratios[field] <= 1.15 for field in bounded))
PY
}

# simulate OPTION...: with nine seeds, because a short run depends on chance.
simulate() {
  for seed in {1..9}; do
    "$build/bin/foretoken" simulate "$scratch/profile.json" --replicas=1 --random_seed="$seed" --json "$@" \
      >"$scratch/simulated.$seed.json"
  done
}

# A closed loop begins with all clients at once, and for a while their requests stay together. So the simulation lasts as
# long as the run. When the first tokens come depends on how long they stay together, which differs between equal runs.
for clients in 3 6; do
  "$build/bin/foretoken" bench "${load[@]}" --requests=48 --clients=$clients --json_out="$scratch/real.json" >/dev/null 2>&1
  seconds=$(python3 -c 'import json, sys; print(max(1, json.load(open(sys.argv[1]))["wall_s"]))' "$scratch/real.json")
  simulate --clients=$clients --seconds="$seconds"
  compare "$clients clients" "tokens/s inter-token"
  measure_machine
done
# Requests at random times, at half the rate at which the six clients were served.
rate=$(python3 -c 'import json, sys; print(24 / json.load(open(sys.argv[1]))["wall_s"])' "$scratch/real.json")
"$build/bin/foretoken" bench "${load[@]}" --requests=160 --rate="$rate" --json_out="$scratch/real.json" >/dev/null 2>&1
simulate --rate="$rate" --verifiers=1 --seconds=600
compare "$(printf '%.2f' "$rate") requests/s" "tokens/s inter-token first-token"
measure_machine
read -r -d '' slowest fastest < <(sort -n "$scratch/speeds" | sed -n '1p;$p') || true
printf 'One run between the others: %.0f to %.0f tokens/s\n' "$slowest" "$fastest"
[[ -n ${failed:-} ]] || exit 0
python3 -c 'import sys; sys.exit(float(sys.argv[2]) > 1.15 * float(sys.argv[1]))' "$slowest" "$fastest" ||
  skip "a simulation is off by more than 15 %, and so is the machine from itself: too noisy to tell"
fail "a simulation is off by more than 15 %"
