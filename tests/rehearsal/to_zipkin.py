# SPDX-License-Identifier: Apache-2.0
"""Turns a trace of Jaeger's API into spans of Zipkin's API. Prints the trace id.

    to_zipkin.py trace.json zipkin.json
"""
import json
import sys


def main(source: str, target: str) -> None:
    trace = json.load(open(source))["data"][0]
    spans = []
    for span in trace["spans"]:
        parent = next((r["spanID"] for r in span["references"] if r["refType"] == "CHILD_OF"), None)
        tags = {tag["key"]: str(tag["value"]) for tag in span["tags"]}
        kind = tags.pop("span.kind", "internal").upper()
        spans.append({"traceId": span["traceID"], "id": span["spanID"], "name": span["operationName"],
                      "timestamp": span["startTime"], "duration": max(1, span["duration"]), "tags": tags,
                      "localEndpoint": {"serviceName": trace["processes"][span["processID"]]["serviceName"]},
                      **({"parentId": parent} if parent else {}),
                      **({"kind": kind} if kind in ("CLIENT", "SERVER") else {})})
    json.dump(spans, open(target, "w"))
    print(trace["traceID"])


if __name__ == "__main__":
    main(*sys.argv[1:])
