#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real Jaeger receives one request's trace from three processes: the client, a verifier and a proposer. The script reads
# the trace back and checks it. If it fails, operators do not see a request whole in the tools that they use.
#
#   tests/rehearsal/jaeger.sh build/release [FOLDER [TOKENS]]
#
# With a FOLDER it also writes trace.json there, as Jaeger's API shows the trace of a request for so many TOKENS. Builds Jaeger once with Go, which takes
# minutes, into build/release/jaeger. Exits with 77 (skipped) without Go or its modules.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../testing/services.sh"
build=$(cd "$1" && pwd)
jaeger="$build/jaeger/jaeger"
out=${2:-$scratch}
tokens=${3:-200}

# Jaeger's own module has replacements, which `go install` refuses; a module of ours may have the one that matters.
build_jaeger() {
  local version=v1.62.0
  [[ -x $jaeger ]] && return
  command -v go >/dev/null || skip "no Go here"
  rm -rf "$build/jaeger" && mkdir -p "$build/jaeger"
  cd "$build/jaeger"
  export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
  go mod init example.com/jaeger
  go mod edit -replace github.com/Shopify/sarama=github.com/Shopify/sarama@v1.33.0
  go get -tool "github.com/jaegertracing/jaeger/cmd/all-in-one@$version" || skip "Jaeger's modules were not reached"
  go build -ldflags "-s -w" -o jaeger github.com/jaegertracing/jaeger/cmd/all-in-one || fail "Jaeger does not build"
}

(build_jaeger)
find_ports 8
query="http://127.0.0.1:${ports[0]}"
"$jaeger" --query.http-server.host-port="127.0.0.1:${ports[0]}" --query.grpc-server.host-port="127.0.0.1:${ports[1]}" \
  --admin.http.host-port="127.0.0.1:${ports[2]}" --collector.otlp.grpc.host-port="127.0.0.1:${ports[3]}" \
  --collector.otlp.http.host-port="127.0.0.1:${ports[4]}" --collector.grpc-server.host-port="127.0.0.1:${ports[5]}" \
  --collector.http-server.host-port="127.0.0.1:${ports[6]}" --http-server.host-port="127.0.0.1:${ports[7]}" \
  --processor.jaeger-compact.server-host-port=127.0.0.1:0 --processor.jaeger-binary.server-host-port=127.0.0.1:0 \
  --processor.zipkin-compact.server-host-port=127.0.0.1:0 >"$scratch/jaeger.log" 2>&1 &
pids+=("$!")
wait_for curl -fs "$query/api/services"

# One process of each kind. Two send by gRPC and one by HTTP, so that both ways are proven.
export OTEL_BSP_SCHEDULE_DELAY=100
by_grpc=(env OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:${ports[3]}")
by_http=(env OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:${ports[4]}" OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf
  OTEL_EXPORTER_OTLP_COMPRESSION=gzip)
start proposer "${by_http[@]}" "$build/bin/foretoken_proposer" --method=draft --model="$root/deploy/demo/draft" \
  --listen=127.0.0.1:0 --trace_proposals --log_level=warning
start verifier "${by_grpc[@]}" "$build/bin/foretoken_verifier" --model="$root/deploy/demo/target" \
  --listen=127.0.0.1:0 --proposer="draft=static:$address" --trace_steps --log_level=warning
target=$address
is_connected() { "$build/bin/foretoken" info --target="$target" --json | grep -q '"num_connected": 1'; }
wait_for is_connected
"${by_grpc[@]}" "$build/bin/foretoken" generate --target="$target" --trace --json --max_tokens="$tokens" --ignore_eos \
  --temperature=0.8 --seed=7 --speculation=always $'def total(prices):\n    ' >"$scratch/answer.json"
trace_id=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["trace_id"])' <"$scratch/answer.json")
kill "${pids[@]:1}" && wait "${pids[@]:1}" || true  # the services send their last spans
is_stored() {
  curl -fs "$query/api/traces/$trace_id" >"$out/trace.json" && grep -q '"operationName":"session"' "$out/trace.json"
}
wait_for is_stored
python3 "$here/check_trace.py" "$out/trace.json" "$tokens"
