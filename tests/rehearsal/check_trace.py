# SPDX-License-Identifier: Apache-2.0
"""Checks the trace of one `foretoken generate --trace` for so many tokens, as Jaeger's API shows it: services, parents,
links, attributes, and that the steps of the decode add up to it."""
import json
import sys

GENERATE = "foretoken.v1.GenerationService/Generate"


def main(path: str, num_tokens: int) -> None:
    trace = json.load(open(path))["data"][0]
    services = {key: process["serviceName"] for key, process in trace["processes"].items()}
    spans = trace["spans"]
    for span in spans:
        span["service"] = services[span["processID"]]
        span["tag"] = {tag["key"]: tag["value"] for tag in span["tags"]}
        span["parent"] = next((r["spanID"] for r in span["references"] if r["refType"] == "CHILD_OF"), None)

    def find(service, name, parent=None):
        return [s for s in spans if s["service"] == service and s["operationName"] == name
                and (parent is None or s["parent"] == parent["spanID"])]

    def one(service, name, parent=None):
        found = find(service, name, parent)
        assert len(found) == 1, f"{service} {name}: expected one span, got {len(found)}"
        return found[0]

    client = one("foretoken-client", GENERATE)
    call = one("foretoken-verifier", GENERATE, client)
    session = one("foretoken-proposer", "session", call)
    assert client["tag"]["span.kind"] == "client" and call["tag"]["span.kind"] == "server"
    assert any(r["refType"] == "FOLLOWS_FROM" and r["traceID"] != trace["traceID"] for r in session["references"]), \
        "the session does not link to its stream"
    assert call["tag"]["rpc.response.status_code"] == "OK"
    assert call["tag"]["server.port"] > 0, call["tag"]
    assert call["tag"]["gen_ai.usage.output_tokens"] == num_tokens, call["tag"]
    assert call["tag"]["foretoken.speculation.accepted_tokens"] > 0, "no guess was accepted"
    assert "foretoken.speculation.accepted_lengths" in call["tag"], call["tag"]
    queue, prompt, decode = (one("foretoken-verifier", name, call) for name in ("queue", "prompt", "decode"))
    steps = find("foretoken-verifier", "step", decode)
    in_steps = sum(step["duration"] for step in steps)
    assert abs(in_steps - decode["duration"]) <= 0.02 * decode["duration"], (in_steps, decode["duration"])
    assert sum(step["tag"]["foretoken.step.tokens"] for step in steps) == num_tokens - 1, "the first token ends the prompt"
    assert all(step["tag"]["foretoken.step.node_budget"] >= step["tag"]["foretoken.step.verified_nodes"] for step in steps)
    asked = [p for step in steps for p in find("foretoken-verifier", "proposal", step)]
    answered = find("foretoken-proposer", "proposal", session)
    assert asked and answered, (len(asked), len(answered))
    assert all(p["tag"]["span.kind"] == "client" for p in asked), "a proposal of the verifier"
    assert all(p["tag"]["span.kind"] == "server" for p in answered), "a proposal of the proposer"
    assert all(any(r["refType"] == "FOLLOWS_FROM" and r["spanID"] == call["spanID"] for r in p["references"])
               for p in answered), "a proposal of the proposer does not link to the call"
    print(f"{len(spans)} spans of 3 processes; {len(steps)} steps take {in_steps} us of the decode's "
          f"{decode['duration']} us ({in_steps / decode['duration']:.4f}); {len(asked)} trees at the verifier, "
          f"{len(answered)} at the proposer")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
