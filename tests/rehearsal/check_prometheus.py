# SPDX-License-Identifier: Apache-2.0
"""Asks a Prometheus that scrapes a verifier for the series that vLLM's dashboards and llm-d's picker query: each must be
there with its type and labels, and the queries of the board for speculation must have values that agree. The last
request was traced, so exemplars must lead to its trace."""
import json
import pathlib
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


def wait_for_scrapes(url: str) -> None:
    for _ in range(200):
        try:
            result = get(url, "/api/v1/query", query="sum(up)")["result"]
            if result and float(result[0]["value"][1]) == 2:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("Prometheus did not scrape both services")


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
        value(url, f'{series}{{{label}="{text}"}}')


def main(url: str, trace_id: str) -> None:
    wait_for_scrapes(url)
    check_exemplars(url, trace_id)
    lines = [line.split() for line in BOARDS.read_text().splitlines() if not line.startswith("#")]
    for kind, metric, *label_values in lines:
        check_series(url, kind, metric, label_values)
    drafts, drafted, accepted = (value(url, f"vllm:spec_decode_num_{name}_total")
                                 for name in ("drafts", "draft_tokens", "accepted_tokens"))
    assert 0 < drafts <= drafted and 0 < accepted <= drafted, (drafts, drafted, accepted)
    assert value(url, "sum(vllm:generation_tokens_total)") == 128
    assert value(url, 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"}') > 0
    own = value(url, "foretoken_proposer_sent_trees_total")
    print(f"{len(lines)} names of vLLM, each with its type; accepted length "
          f"{1 + accepted / drafts:.2f}; the proposer sent {own:.0f} trees")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
