#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A third party's client: checks that a stock Python grpcio can use a verifier with the protos alone.

    python3 -m venv venv && venv/bin/pip install -r tests/integration/requirements.txt
    venv/bin/python tests/integration/python_client.py --target=localhost:50051

Checks health and reflection, streams one Generate, prints its text, and exits with 1 on any error.
"""

import argparse
import importlib
import pathlib
import sys
import tempfile

import grpc
import grpc_tools
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_tools import protoc

PROTO_ROOT = pathlib.Path(__file__).resolve().parents[2] / "proto"
SERVICE = "foretoken.v1.GenerationService"


def expect(condition, what):
    if not condition:
        sys.exit(f"python_client: {what}")


def compile_protos(folder):
    """Generates Python from the protos into `folder` and returns the modules of generation.proto."""
    protos = sorted(str(path) for path in PROTO_ROOT.glob("foretoken/v1/*.proto"))
    builtin = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{PROTO_ROOT}", f"-I{builtin}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    expect(protoc.main(arguments + protos) == 0, "the protos do not compile")
    sys.path.insert(0, folder)
    return [importlib.import_module(f"foretoken.v1.generation_{kind}") for kind in ("pb2", "pb2_grpc")]


def check_health(channel):
    for service in ("", SERVICE):
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        expect(status == "SERVING", f'health of "{service}": expected SERVING, got {status}')


def check_reflection(channel):
    requests = iter([
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ])
    listed, described = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(requests, timeout=10)
    names = [service.name for service in listed.list_services_response.service]
    expect(SERVICE in names, f"reflection: expected {SERVICE} among {names}")
    expect(described.file_descriptor_response.file_descriptor_proto, f"reflection: {SERVICE} is not described")


def stream(stub, pb2, arguments):
    request = pb2.GenerateRequest(
        text=arguments.prompt,
        sampling=pb2.SamplingOptions(temperature=0.0),
        stopping=pb2.StoppingOptions(max_tokens=arguments.max_tokens))
    text, token_ids, speculated, completion = "", [], [], None
    for response in stub.Generate(request, timeout=60):
        expect(completion is None, "a message came after the completion")
        expect(response.request_id, "a message lacks its request_id")
        expect(len(response.speculated) == len(response.token_ids), "speculated is not as long as token_ids")
        expect(len(response.text_ends) == len(response.token_ids), "text_ends is not as long as token_ids")
        text += response.text
        token_ids += response.token_ids
        speculated += response.speculated
        print(response.text, end="", flush=True)
        if response.HasField("completion"):
            completion = response.completion
    print()
    expect(completion is not None, "the stream ended without a completion")
    usage = completion.usage
    expect(token_ids, "no token came")
    expect(len(token_ids) <= arguments.max_tokens, f"{len(token_ids)} tokens came, {arguments.max_tokens} were asked for")
    expect(usage.completion_tokens == len(token_ids),
           f"usage counts {usage.completion_tokens} tokens, {len(token_ids)} came")
    expect(usage.prompt_tokens > 0 and usage.steps > 0, "usage lacks prompt_tokens or steps")
    reason = pb2.FinishReason.Name(completion.finish_reason)
    expect(reason in ("FINISH_REASON_STOP", "FINISH_REASON_LENGTH"), f"it finished with {reason}")
    expect(completion.numerics_fingerprint, "no numerics fingerprint")
    return text, token_ids, speculated, usage


def check_refusal(stub, pb2):
    """The server refuses a bad request with the name of its field, and serves on."""
    refusals = {
        "temperature": (pb2.GenerateRequest(text="x", sampling=pb2.SamplingOptions(temperature=-1.0)),
                        grpc.StatusCode.INVALID_ARGUMENT),
        "expected_numerics_fingerprint": (pb2.GenerateRequest(text="x", expected_numerics_fingerprint="other bits"),
                                          grpc.StatusCode.FAILED_PRECONDITION),
    }
    for field, (request, code) in refusals.items():
        try:
            list(stub.Generate(request, timeout=60))
        except grpc.RpcError as error:
            expect(error.code() == code, f"{field}: got {error.code()}")
            expect(field in error.details(), f'{field}: "{error.details()}" does not name the field')
        else:
            expect(False, f"{field} was not refused")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--prompt", default="def read_config(path):\n")
    parser.add_argument("--max_tokens", type=int, default=48)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, grpc.insecure_channel(arguments.target) as channel:
        grpc.channel_ready_future(channel).result(timeout=10)
        pb2, pb2_grpc = compile_protos(folder)
        stub = pb2_grpc.GenerationServiceStub(channel)
        check_health(channel)
        check_reflection(channel)
        text, token_ids, speculated, usage = stream(stub, pb2, arguments)
        again = stream(stub, pb2, arguments)
        expect(again[:2] == (text, token_ids), "the same request gave other tokens or another text")
        check_refusal(stub, pb2)
        info = stub.GetModelInfo(pb2.GetModelInfoRequest(), timeout=10)
        tokens = stub.Tokenize(pb2.TokenizeRequest(text=arguments.prompt), timeout=10)
    print(f"{len(token_ids)} tokens of {info.model} in {usage.steps} steps, {sum(speculated)} accepted guesses; "
          f"the prompt has {len(tokens.token_ids)} tokens", file=sys.stderr)
    print(token_ids, file=sys.stderr)


if __name__ == "__main__":
    main()
