#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `foretoken simulate` against real runs: a profile is measured with 1, 2, 4 and 8 clients, and the simulation predicts the
# runs with 3 and 6. If it fails, operators plan with numbers that are off by more than 15 %. Wants a quiet machine.
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
"$build/bin/foretoken" bench "${load[@]}" --requests=32 --clients=8 --profile="$scratch/profile.json" 2>/dev/null
# A run begins with all clients at once, and for a while their requests stay together. So the simulation lasts as long as the
# run, with nine seeds, because a short one depends on chance.
for clients in 3 6; do
  "$build/bin/foretoken" bench "${load[@]}" --requests=48 --clients=$clients --json_out="$scratch/real.json" >/dev/null 2>&1
  seconds=$(python3 -c 'import json, sys; print(max(1, json.load(open(sys.argv[1]))["wall_s"]))' "$scratch/real.json")
  for seed in {1..9}; do
    "$build/bin/foretoken" simulate "$scratch/profile.json" --clients=$clients --replicas=1 --seconds="$seconds" \
      --random_seed="$seed" --json >"$scratch/simulated.$seed.json"
  done
  python3 - "$clients" "$scratch/real.json" "$scratch"/simulated.*.json <<'PY' || failed=1
import json, statistics, sys
clients, real, *simulated = sys.argv[1], *(json.load(open(path)) for path in sys.argv[2:])
fields_of = {"tokens/s": ["tokens_per_s"], "inter-token ms, mean": ["inter_token_ms", "mean"],
             "first token ms, p50": ["time_to_first_token_ms", "p50"]}

def read(result, fields):
    for field in fields:
        result = result[field]
    return result

pairs = {name: (read(real, fields), statistics.mean(read(result, fields) for result in simulated))
         for name, fields in fields_of.items()}
for name, (is_real, is_simulated) in pairs.items():
    print(f"{clients} clients, {name}: real {is_real:.2f}, simulated {is_simulated:.2f}, ratio {is_simulated / is_real:.3f}")
ratio = pairs["tokens/s"][1] / pairs["tokens/s"][0]
sys.exit(not 0.85 <= ratio <= 1.15)
PY
done
[[ -z ${failed:-} ]] || fail "a simulation is off by more than 15 %"
