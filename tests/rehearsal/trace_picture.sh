#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes docs/pictures/trace.png: the trace of one request in Zipkin's web page.
#
#   tests/rehearsal/trace_picture.sh build/release
#
# Needs Go (jaeger.sh records the trace), Java, Maven and Chromium. Zipkin comes from Maven Central, 131 MB.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../testing/services.sh"
build=$(cd "$1" && pwd)

"$here/jaeger.sh" "$build" "$scratch" 24  # so few that the spans of all three processes fit on the page
version=3.5.1
jar="$HOME/.m2/repository/io/zipkin/zipkin-server/$version/zipkin-server-$version-exec.jar"
[[ -e $jar ]] || mvn -q dependency:get -Dtransitive=false "-Dartifact=io.zipkin:zipkin-server:$version:jar:exec"
find_ports 1
port=${ports[0]}
java -Xmx400m -jar "$jar" '--armeria.ports[0].ip=127.0.0.1' "--armeria.ports[0].port=$port" \
  '--armeria.ports[0].protocols[0]=http' >"$scratch/zipkin.log" 2>&1 &
pids+=("$!")
wait_for curl -fs "http://127.0.0.1:$port/health"
trace_id=$(python3 "$here/to_zipkin.py" "$scratch/trace.json" "$scratch/zipkin.json")
curl -fs -H 'Content-Type: application/json' --data-binary "@$scratch/zipkin.json" "http://127.0.0.1:$port/api/v2/spans"
sleep 1
mkdir -p "$root/docs/pictures"
chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync \
  --user-data-dir="$scratch/chromium" --window-size=1400,1900 --virtual-time-budget=8000 \
  --screenshot="$root/docs/pictures/trace.png" "http://127.0.0.1:$port/zipkin/traces/$trace_id" 2>/dev/null
echo "docs/pictures/trace.png"
