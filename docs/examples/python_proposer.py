# SPDX-License-Identifier: Apache-2.0
"""An n-gram proposer for Foretoken: python_proposer.py PORT PROTO_FOLDER. It needs grpcio and grpcio-tools."""
import concurrent.futures
import sys

import grpc

sys.path.append(sys.argv[2])  # grpc looks for .proto files there
pb, services = grpc.protos_and_services("foretoken/v1/proposal.proto")
MAX_NODES, MAX_SESSIONS, MAX_TOKENS = 16, 64, 8192


def guess(tokens, num_nodes):
    """The tokens that followed the latest earlier copy of the last 4, 3 or 2 tokens."""
    for length in (4, 3, 2):
        for start in range(len(tokens) - length - 1, -1, -1):
            if tokens[start : start + length] == tokens[-length:]:
                return tokens[start + length : start + length + num_nodes]
    return []


class Proposer(services.ProposalServiceServicer):
    def DescribeProposer(self, request, context):
        return pb.DescribeProposerResponse(
            method="python", version="example", protocol_version=1, features=["refusals"],
            max_sessions=MAX_SESSIONS, max_context_tokens=MAX_TOKENS, max_tree_nodes=MAX_NODES)

    def Propose(self, requests, context):
        sessions = {}  # session id -> tokens; sessions belong to this stream
        for request in requests:
            response, budgets = pb.ProposeResponse(), {}
            sessions.update((event.session_id, []) for event in request.opens)
            for event in (*request.opens, *request.advances):
                session_id, tokens = event.session_id, sessions.get(event.session_id)
                budgets[session_id] = 0
                if tokens is None or len(tokens) != getattr(event, "base_position", 0):  # an open starts at 0
                    sessions.pop(session_id, None)
                    response.unknown_session_ids.append(session_id)
                elif len(tokens) + len(event.token_ids) > MAX_TOKENS:
                    del sessions[session_id]
                    response.refusals.add(session_id=session_id, reason=pb.REFUSAL_REASON_CONTEXT_TOO_LONG)
                else:
                    tokens.extend(event.token_ids)
                    budgets[session_id] = 0 if event.awaiting_more else min(event.node_budget, MAX_NODES)
            for event in request.closes:
                sessions.pop(event.session_id, None)
            for session_id, num_nodes in budgets.items():
                if num_nodes > 0 and session_id in sessions:  # an empty tree is an answer, too
                    tokens = sessions[session_id]
                    chain = guess(tokens, num_nodes)
                    response.trees.add(session_id=session_id, position=len(tokens), token_ids=chain,
                                       parents=range(-1, len(chain) - 1), chances=[0.8] * len(chain))
            yield response


server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=8))
services.add_ProposalServiceServicer_to_server(Proposer(), server)
print(f"listening on 127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{sys.argv[1]}')}", flush=True)
server.start()
server.wait_for_termination()
