# SPDX-License-Identifier: Apache-2.0
"""A client of Foretoken: python_client.py HOST:PORT PROTO_FOLDER PROMPT. It needs grpcio and grpcio-tools."""
import sys

import grpc

target, proto_folder, prompt = sys.argv[1:]
sys.path.append(proto_folder)  # grpc looks for .proto files there
pb, services = grpc.protos_and_services("foretoken/v1/generation.proto")

request = pb.GenerateRequest(
    text=prompt,
    sampling=pb.SamplingOptions(temperature=0.8, seed=7),
    stopping=pb.StoppingOptions(max_tokens=64))
with grpc.insecure_channel(target) as channel:
    stub = services.GenerationServiceStub(channel)
    try:
        for response in stub.Generate(request, timeout=60):
            print(response.text, end="", flush=True)
            if response.HasField("completion"):  # the last message of the sample
                usage, completion = response.completion.usage, response.completion
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
if completion.finish_reason in (pb.FINISH_REASON_ABORT, pb.FINISH_REASON_SHUTDOWN):
    sys.exit("\nthe server ended the request early")
print(f"\n{usage.completion_tokens} tokens in {usage.steps} steps, seed {completion.seed}", file=sys.stderr)
