#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The protos are enough for a third party. The Python proposer of docs/writing-a-proposer.md serves our verifier, and
# foreign clients call it: the Python and the Go client of docs/clients.md, and a Python client that checks every answer.
# Prometheus's parser reads the page of metrics.
# If this test fails, the protos or the pages are not enough for a client or a proposer in another language.
#
#   tests/integration/foreign.sh build/release
#
# Exits with 77 (skipped) without Python or PyPI. Leaves out the Go client without Go or its modules.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../testing/services.sh"
build=$(cd "$1" && pwd)
venv="$build/foreign-venv"
make_venv "$venv" "$here/requirements.txt"

# Builds the Go client as docs/clients.md says; prints why where it cannot.
build_go_client() {
  local folder="$build/foreign-go" name options=() module=example.com/client
  if [[ -x $folder/client && -z $(find "$root/proto" "$root/docs/examples/go_client" -newer "$folder/client") ]]; then
    return
  fi
  command -v go >/dev/null && command -v protoc >/dev/null || { echo "foreign.sh: no Go client: no go or protoc here"; return 1; }
  rm -rf "$folder" && mkdir -p "$folder"
  cp "$root"/docs/examples/go_client/* "$folder"
  GOBIN="$folder/bin" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6 &&
    GOBIN="$folder/bin" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1 ||
    { echo "foreign.sh: no Go client: its generators were not reached"; return 1; }
  for name in generation proposal token_tree; do
    options+=("--go_opt=Mforetoken/v1/$name.proto=$module/foretokenv1")
    options+=("--go-grpc_opt=Mforetoken/v1/$name.proto=$module/foretokenv1")
  done
  (cd "$folder" && PATH="$folder/bin:$PATH" protoc -I "$root/proto" --go_out=. --go-grpc_out=. --go_opt=module=$module \
    --go-grpc_opt=module=$module "${options[@]}" foretoken/v1/{generation,proposal,token_tree}.proto) ||
    fail "no Go code could be made of the protos"
  (cd "$folder" && go mod download) || { echo "foreign.sh: no Go client: its modules were not reached"; return 1; }
  (cd "$folder" && go build -o client .) || fail "the Go client does not build"
}

start proposer "$venv/bin/python" "$root/docs/examples/python_proposer.py" 0 "$root/proto"
# An exemplar needs a recorded trace; no collector has to be there for it.
start verifier env OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9 "$build/bin/foretoken_verifier" \
  --model="$root/deploy/demo/target" --listen=127.0.0.1:0 --metrics_listen=127.0.0.1:0 --metrics_compat=vllm \
  --proposer="python=static:$address"

# Repetitive text, so that a proposer can guess.
prompt=$'def get_alpha(self):\n    return self.alpha\n\ndef get_beta(self):\n    return self.beta\n\ndef get_gamma(self):\n'
"$venv/bin/python" "$here/python_client.py" --target="$address" --prompt="$prompt" --max_tokens=200 \
  2>"$scratch/client.err" || { cat "$scratch/client.err" >&2; fail "the client found an error"; }
accepted=$(sed -n 's/.* \([0-9]*\) accepted guesses.*/\1/p' "$scratch/client.err")
((${accepted:-0} > 0)) || fail "no token of the Python proposer was accepted"

"$venv/bin/python" "$here/check_open_metrics.py" "$metrics" || fail "the page of metrics is wrong"

example="$root/docs/examples/python_client.py"
"$venv/bin/python" "$example" "$address" "$root/proto" "$prompt" >"$scratch/example.out" 2>"$scratch/example.err" ||
  { cat "$scratch/example.err" >&2; fail "$example found an error"; }
[[ -s $scratch/example.out ]] || fail "$example printed no text"
grep -qE '^[0-9]+ tokens in [0-9]+ steps, seed 7$' "$scratch/example.err" || fail "$example printed no usage"
! "$venv/bin/python" "$example" "$address" "$root/proto" "" 2>"$scratch/example.err" || fail "an empty prompt was served"
grep -q '^INVALID_ARGUMENT: text: ' "$scratch/example.err" || fail "$example does not show the server's error"

if build_go_client >&2; then
  "$build/foreign-go/client" "$address" "$prompt" >"$scratch/go.out" 2>"$scratch/go.err" ||
    { cat "$scratch/go.err" >&2; fail "the Go client found an error"; }
  diff "$scratch/example.out" "$scratch/go.out" >&2 || fail "the Go client and the Python client got different texts"
  ! "$build/foreign-go/client" "$address" "" 2>"$scratch/go.err" || fail "an empty prompt was served"
  grep -q 'code = InvalidArgument desc = text: ' "$scratch/go.err" || fail "the Go client does not show the server's error"
fi
