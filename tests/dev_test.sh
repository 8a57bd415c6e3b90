#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `./dev` makes of skipped tests and of sanitizers' reports. If this test fails, a night without the programs of
# operators looks like a success, or one with a race in a process that a test killed.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp "$(dirname "${BASH_SOURCE[0]}")/../dev" "$scratch"
mkdir -p "$scratch/build/release"

# run COMMAND LINE...: the command of ./dev, with a ctest that prints the lines, and in which a process with a sanitizer
# makes the report $found. Prints its output and "status N".
found=
run() {
  local status=0
  printf '%s\n' "${@:2}" >"$scratch/lines"
  (
    source "$scratch/dev" help >/dev/null
    install_packages() { :; }
    build() { :; }
    ctest() {
      cat lines
      [[ -z $found ]] || echo "$found" >"${TSAN_OPTIONS##*log_path=}.foretoken_verifier.1"
    }
    $1
  ) 2>&1 || status=$?
  echo "status $status"
}

expect() {
  [[ $2 == *"$1"* ]] || { printf 'expected "%s" in:\n%s\n' "$1" "$2"; exit 1; }
}

passed='1/2 Test #1: rehearsal/jaeger ...   Passed  1.00 sec'
skipped='2/2 Test #2: rehearsal/prometheus ...***Skipped  0.01 sec'
end=('100% tests passed, 0 tests failed out of 2' 'The following tests did not run:' $'\t2 - rehearsal/prometheus (Skipped)')
output=$(run rehearse "$passed" "$skipped" "${end[@]}")
expect '1 passed, 0 failed' "$output"
expect 'rehearse: 1 of the tests above proved nothing' "$output"
expect 'status 1' "$output"
output=$(run rehearse "$passed" '100% tests passed, 0 tests failed out of 1')
expect $'1 passed, 0 failed\nstatus 0' "$output"

found='WARNING: ThreadSanitizer: data race'
output=$(run 'run_tests release' "$passed" '100% tests passed, 0 tests failed out of 1')
expect "$found" "$output"
expect 'status 1' "$output"
