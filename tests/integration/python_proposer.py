#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A third party's n-gram proposer, written from the protos alone.

    pip install grpcio grpcio-tools
    python_proposer.py [--port 0] [--protos DIR]

Prints "listening on 127.0.0.1:PORT" once it serves, and ends on SIGTERM.
"""
import argparse
import concurrent.futures
import importlib
import os
import signal
import sys
import tempfile
import threading

import grpc
import grpc_tools
from grpc_tools import protoc

LONGEST, SHORTEST, CHANCE = 6, 2, 0.8


def compile_protos(protos):
    """The generated modules (proposal_pb2, proposal_pb2_grpc)."""
    out = tempfile.mkdtemp(prefix="foretoken_protos_")
    include = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
    files = [os.path.join(protos, "foretoken/v1", name) for name in ("token_tree.proto", "proposal.proto")]
    arguments = ["protoc", f"-I{protos}", f"-I{include}", f"--python_out={out}", f"--grpc_python_out={out}", *files]
    if protoc.main(arguments) != 0:
        sys.exit("python_proposer: the protos do not compile")
    sys.path.insert(0, out)
    return [importlib.import_module("foretoken.v1." + name) for name in ("proposal_pb2", "proposal_pb2_grpc")]


def guess(tokens, budget):
    """A chain: what followed the latest occurrence of the longest n-gram that ends the tokens, again and again."""
    chain = []
    while len(chain) < budget:
        context = tokens + chain
        following = None
        for length in range(min(LONGEST, len(context) - 1), SHORTEST - 1, -1):
            tail = context[-length:]
            starts = (s for s in range(len(tokens) - length - 1, -1, -1) if tokens[s : s + length] == tail)
            start = next(starts, None)
            if start is not None:
                following = tokens[start + length]
                break
        if following is None:
            break
        chain.append(following)
    return chain


def make_servicer(pb, pb_grpc):
    class Proposer(pb_grpc.ProposalServiceServicer):
        def DescribeProposer(self, request, context):
            return pb.DescribeProposerResponse(
                method="python", max_sessions=64, max_context_tokens=1 << 16, max_tree_nodes=16, version="example")

        def Propose(self, requests, context):
            sessions = {}
            for request in requests:
                response = pb.ProposeResponse()
                owed = {}
                for event in request.opens:
                    sessions[event.session_id] = list(event.token_ids)
                    owed[event.session_id] = 0 if event.awaiting_more else event.node_budget
                for event in request.advances:
                    tokens = sessions.get(event.session_id)
                    if tokens is None or len(tokens) != event.base_position:
                        sessions.pop(event.session_id, None)
                        owed.pop(event.session_id, None)
                        response.unknown_session_ids.append(event.session_id)
                        continue
                    tokens.extend(event.token_ids)
                    owed[event.session_id] = 0 if event.awaiting_more else event.node_budget
                for event in request.closes:
                    sessions.pop(event.session_id, None)
                    owed.pop(event.session_id, None)
                for session_id, budget in owed.items():
                    if budget:
                        chain = guess(sessions[session_id], min(budget, 16))
                        response.trees.add(
                            session_id=session_id, position=len(sessions[session_id]), token_ids=chain,
                            parents=range(-1, len(chain) - 1), chances=[CHANCE] * len(chain))
                yield response

    return Proposer()


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--protos", default=os.path.join(here, "../../proto"))
    args = parser.parse_args()
    pb, pb_grpc = compile_protos(os.path.abspath(args.protos))
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=8))
    pb_grpc.add_ProposalServiceServicer_to_server(make_servicer(pb, pb_grpc), server)
    port = server.add_insecure_port(f"127.0.0.1:{args.port}")
    server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    server.stop(grace=1).wait()


if __name__ == "__main__":
    main()
