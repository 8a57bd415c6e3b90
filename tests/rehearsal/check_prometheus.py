# SPDX-License-Identifier: Apache-2.0
"""Asks a Prometheus that scrapes a verifier and three proposers for the series that vLLM's dashboards and llm-d's picker
query: each must be there with its type and labels, and the queries of the boards for speculation and for targets of
latency must have values that agree. The command is a traced request for 64 tokens. Two such requests came before the
first scrape. The command sends a third one after it, because rates need an increase, and exemplars must lead to its
trace.

    check_prometheus.py URL COMMAND..."""
import json
import pathlib
import subprocess
import sys
import time
import urllib.parse
import urllib.request

BOARDS = pathlib.Path(__file__).parent.parent / "cases" / "vllm_boards.txt"


def get(url: str, path: str, **query: str):
    with urllib.request.urlopen(f"{url}{path}?{urllib.parse.urlencode(query)}") as answer:
        return json.load(answer)["data"]


def value(url: str, expression: str) -> float:
    result = get(url, "/api/v1/query", query=expression)["result"]
    assert result, f"{expression}: no value"
    return float(result[0]["value"][1])


def wait_for(url: str, expression: str, expected: float) -> None:
    for _ in range(200):
        try:
            result = get(url, "/api/v1/query", query=expression)["result"]
            if result and float(result[0]["value"][1]) == expected:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"Prometheus did not reach {expression} == {expected}")


def check_exemplars(url: str, trace_id: str) -> None:
    now = time.time()
    for name in ("time_to_first_token", "request", "inter_token"):
        series = get(url, "/api/v1/query_exemplars", query=f"foretoken_{name}_seconds_bucket", start=f"{now - 60}",
                     end=f"{now + 60}")
        traces = {exemplar["labels"]["trace_id"] for entry in series for exemplar in entry["exemplars"]}
        assert trace_id in traces, f"{name}: expected an exemplar of {trace_id}, got {traces}"


def check_series(url: str, kind: str, metric: str, label_values: list[str]) -> None:
    # OpenMetrics names a counter's family without _total.
    family = metric.removesuffix("_total") if kind == "counter" else metric
    types = [entry["type"] for entry in get(url, "/api/v1/metadata", metric=family).get(family, [])]
    assert types == [kind], f"{metric}: expected {kind}, got {types}"
    series = f"{metric}_count" if kind == "histogram" else metric
    value(url, f'{series}{{engine="0",model_name="target"}}')
    label, *values = label_values or [""]
    for text in values:
        if label == "le":
            share = f'sum(rate({metric}_bucket{{le="{text}"}}[1m])) / (sum(rate({metric}_count[1m])) > 0)'
            assert 0 <= value(url, share) <= 1, share
        else:
            value(url, f'{series}{{{label}="{text}"}}')


def main(url: str, request: list[str]) -> None:
    wait_for(url, "sum(up)", 4)
    wait_for(url, "sum(vllm:generation_tokens_total)", 128)
    answer = json.loads(subprocess.run(request, check=True, capture_output=True).stdout)
    wait_for(url, "sum(vllm:generation_tokens_total)", 192)
    check_exemplars(url, answer["trace_id"])
    lines = [line.split() for line in BOARDS.read_text().splitlines() if not line.startswith("#")]
    for kind, metric, *label_values in lines:
        check_series(url, kind, metric, label_values)
    drafts, drafted, accepted = (value(url, f"vllm:spec_decode_num_{name}_total")
                                 for name in ("drafts", "draft_tokens", "accepted_tokens"))
    assert 0 < drafts <= drafted and 0 < accepted <= drafted, (drafts, drafted, accepted)
    assert value(url, 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"}') > 0
    own = value(url, "sum(foretoken_proposer_sent_trees_total)")
    print(f"{len(lines)} names of vLLM, each with its type; accepted length "
          f"{1 + accepted / drafts:.2f}; the proposers sent {own:.0f} trees")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
