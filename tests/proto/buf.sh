#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# buf checks the style of our protos, and checks that they break no client of the published protos in
# tests/cases/proto/foretoken.binpb. Then the test changes copies of the protos and shows that buf finds each fault.
# `./dev protos` publishes the present protos. Run it after a compatible change, or before anybody depends on the old
# protos.
#
#   tests/proto/buf.sh build/release
#
# Exits with 77 (skipped) without Python or PyPI.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
protos="$here/../../proto"
published="$here/../cases/proto/foretoken.binpb"
venv="$(cd "$1" && pwd)/buf-venv"
buf="$venv/bin/buf"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

fail() {
  printf 'buf.sh: %s\n' "$*" >&2
  exit 1
}

if ! cmp -s "$here/requirements.txt" "$venv/ready"; then
  if ! { python3 -m venv --clear "$venv" && "$venv/bin/pip" install -q -r "$here/requirements.txt"; }; then
    echo "buf.sh: skipped: no Python virtual environment with $here/requirements.txt could be made" >&2
    exit 77
  fi
  cp "$here/requirements.txt" "$venv/ready"
fi

# change FILE SCRIPT: copies the protos and edits one file of the copy with sed.
change() {
  rm -rf "$copy/proto"
  cp -R "$protos" "$copy/proto"
  sed -i -e "$2" "$copy/proto/foretoken/v1/$1"
  ! cmp -s "$protos/foretoken/v1/$1" "$copy/proto/foretoken/v1/$1" || fail "$1: $2 changes nothing"
}

# expect_finding RULE COMMAND...: the command finds that this rule is broken.
expect_finding() {
  local rule=$1 found
  shift
  found=$("$@" --error-format=json | grep -o '"type":"[A-Z_]*"') || true
  [[ $found == *"\"$rule\""* ]] || fail "expected a finding of $rule for the change $script, got ${found:-none}"
}

check_breaking() { "$buf" breaking "$1" --against "$published" "${@:2}"; }

"$buf" lint "$protos" || fail "the protos break a rule of proto/buf.yaml"
check_breaking "$protos" || fail "the protos break those who use the published ones"

# Each line: the rule that is broken, the file, and the change that breaks it.
while read -r rule file script; do
  change "$file" "$script"
  expect_finding "$rule" check_breaking "$copy/proto"
done <<'BREAKING'
FIELD_NO_DELETE           generation.proto /^message AbortRequest/,/^}/ { /request_id/d }
FIELD_SAME_NAME           generation.proto /^message AbortRequest/,/^}/ s/request_id/id/
FIELD_SAME_TYPE           generation.proto /^message AbortRequest/,/^}/ s/string request_id/bytes request_id/
FIELD_SAME_CARDINALITY    generation.proto /^message AbortRequest/,/^}/ s/string request_id/repeated string request_id/
FIELD_SAME_CARDINALITY    generation.proto /^message DetokenizeRequest/,/^}/ s/optional bool/bool/
FIELD_SAME_ONEOF          generation.proto /^  oneof prompt {/,/^  }/ { /oneof\|}/d }
ENUM_VALUE_SAME_NAME      generation.proto s/FINISH_REASON_STOP = 1/FINISH_REASON_END = 1/
RPC_SAME_SERVER_STREAMING generation.proto s/returns (stream GenerateResponse)/returns (GenerateResponse)/
RPC_NO_DELETE             proposal.proto   /rpc DescribeProposer/d
BREAKING

while read -r rule file script; do
  change "$file" "$script"
  expect_finding "$rule" "$buf" lint "$copy/proto"
done <<'STYLE'
FIELD_LOWER_SNAKE_CASE    token_tree.proto s/token_ids = /tokenIds = /
ENUM_VALUE_PREFIX         token_tree.proto s/DRAW_METHOD_POINT = 1/POINT = 1/
COMMENT_RPC               generation.proto /Ends a request of the same tenant/,+1d
STYLE

change generation.proto '/^message AbortRequest/,/^}/ s/}/  string reason = 3;\n}/'
"$buf" lint "$copy/proto" && check_breaking "$copy/proto" || fail "a field was added, and that breaks nobody"
