#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo, on a target that is hardly widened. Every token must be equal, and both columns must show the same text. No
# text may repeat itself, because a repeating text proves little.
#
#   tests/integration/demo.sh build/release
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
  printf '%s\n' "$shown" "demo.sh: $*" >&2
  exit 1
}

shown=$("$here/../../deploy/demo/demo.sh" "$1/bin" 0.1 cpu) || fail "the demo failed"

# expect LINE
expect() { grep -qxF "$1" <<<"$shown" || fail "expected the line: $1"; }
expect "token ids equal in 6 of 6 requests"
expect "token ids equal in 32 of 32 requests"
grep -q '^guesses of eagle3 accepted .* [1-9][0-9]* of' <<<"$shown" || fail "no guess was accepted"

# The texts, without the line above each and the numbers below it.
texts=$(awk '/^─/ { inside = /┼/ && !inside; next } inside' <<<"$shown")
num_lines=$(wc -l <<<"$texts")
((num_lines >= 20)) || fail "expected at least 20 lines of text, got $num_lines"
different=$(awk -F ' *│ ' '{ sub(/ +$/, "", $2) } $1 != $2' <<<"$texts")
[[ -z $different ]] || fail "the columns differ: $different"
repeated=$(awk -F ' *│ ' '{ sub(/^ +/, "", $1) } length($1) >= 8 && ++count[$1] > 3 { print $1 }' <<<"$texts")
[[ -z $repeated ]] || fail "more than three times in the texts: $repeated"
