# SPDX-License-Identifier: Apache-2.0
# SMG, a gateway that puts OpenAI's HTTP API in front of the verifier.
FROM python:3.12.12-slim-bookworm
COPY gateway.txt /
RUN pip install --no-cache-dir --no-deps --only-binary=:all: --require-hashes -r /gateway.txt
USER 65532:65532
ENTRYPOINT ["smg", "launch"]
