# SPDX-License-Identifier: Apache-2.0
# SMG, a gateway that puts OpenAI's HTTP API in front of the verifier.
FROM python:3.12.12-slim-bookworm
RUN pip install --no-cache-dir smg==1.13.0 smg-grpc-proto==0.4.28
USER 65532:65532
ENTRYPOINT ["smg", "launch"]
