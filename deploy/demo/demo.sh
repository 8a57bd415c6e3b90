#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows a verifier with two proposers, each in a process of its own, and the same texts with speculation off and on. The
# texts are sampled, not greedy, with a fixed seed: a small model that always takes the likeliest token soon repeats one line,
# and a repeated line is too easy to guess. Exits with an error unless every token is equal.
#
#   deploy/demo/demo.sh build/release/bin GIGABYTES DEVICE [PROMPT]
#
# GIGABYTES: what a step of the widened model reads. Its weights lie in a temporary folder while the demo runs.
# DEVICE: cpu, or cuda for the verifier and the EAGLE-3 head, on one GPU.
set -euo pipefail

bin=$(cd "$1" && pwd)
gigabytes=$2
device=$3
shift 3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
pids=()

stop_services() {
  ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
  wait
  pids=()
}
trap 'stop_services; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# start NAME BINARY OPTION...: starts a service in the background and sets `address` to where it listens.
start() {
  local name=$1 out="$folder/$1.out" log="$folder/$1.log"
  shift
  : >"$out"  # the loop may look before the background shell opens it
  "$bin/$1" "${@:2}" --listen=127.0.0.1:0 >"$out" 2>"$log" &
  pids+=("$!")
  for ((tries = 0; tries < 600; ++tries)); do
    address=$(sed -n 's/^listening on //p' "$out")
    [[ -n $address ]] && return
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  cat "$log" >&2
  echo "demo.sh: $name did not start" >&2
  exit 1
}

# serve MODEL: a verifier and two proposers, all of them new, so that nothing is remembered. Sets `address`.
serve() {
  local suffix eagle3
  stop_services
  start suffix foretoken_proposer --method=suffix
  suffix=$address
  start eagle3 foretoken_proposer --method=eagle3 --model="$here/eagle3" --target="$here/target" --device="$device" \
    --threads=1
  eagle3=$address
  start verifier foretoken_verifier --model="$1" --device="$device" --proposer="suffix=static:$suffix;eagle3=static:$eagle3"
}

request=(--temperature=0.8 --seed=10)
if (($# > 0)); then
  texts=("$1")
else
  sed -n '1p;4p;6,9p' "$here/prompts.jsonl" >"$folder/prompts.jsonl"
  texts=(--show=3 --prompt_file="$folder/prompts.jsonl")
fi

cat <<TEXT
An EAGLE-3 head and a suffix tree guess ahead, each in a process of its own. The head reads the hidden states of the target
model, which the verifier sends. The verifier keeps only the tokens that the target draws itself. Every text is written with speculation off and on, at temperature 0.8 and with one seed.

The target has 7 million parameters. Here zero weights widen it: it says the same, but a step reads $gigabytes GB, as a
step of a larger model does. In colour, what was guessed ahead is green.
TEXT
mkdir "$folder/target"
"$bin/costly_target" "$here/target" "$folder/target" "$gigabytes"
serve "$folder/target"
"$bin/foretoken" compare --target="$address" "${request[@]}" --max_tokens=80 "${texts[@]}"

cat <<TEXT

The same target as it is, 32 texts. A step takes less than a millisecond, so a guess costs about what it saves:
TEXT
serve "$here/target"
"$bin/foretoken" bench --compare --target="$address" "${request[@]}" --max_tokens=80 \
  --prompt_file="$here/prompts.jsonl" 2>/dev/null | tail -n 2
