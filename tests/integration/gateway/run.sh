#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test with a real gateway: SMG, which knows vLLM's gRPC contract, in front of our services, and OpenAI's client in
# front of it. If it fails, what docs/clients.md says of gateways is wrong.
#
#   tests/integration/gateway/run.sh build/release serving_test
#
# Exits with 77 (skipped) without Python or PyPI.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../testing/services.sh"
export FORETOKEN_BUILD
FORETOKEN_BUILD=$(cd "$1" && pwd)
venv="$FORETOKEN_BUILD/gateway-venv"
make_venv "$venv" "$here/requirements.txt"
"$venv/bin/python" "$here/$2.py"
