#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the Grafana dashboard as JSON.

    deploy/helm/make_dashboard.py > deploy/helm/foretoken/files/dashboard.json

It answers three questions, one row each: are users served, does speculation pay, what is the machine doing. A panel is
a title, a unit of Grafana's, and queries with their legends. PODS stands for the labels of the chosen release.
"""
import json

PODS = 'namespace="$namespace",app_kubernetes_io_instance="$release"'
WIDTH, HEIGHT = 8, 7  # three panels abreast; Grafana's grid has 24 columns


def quantiles(name, *shares):
    return [(f"histogram_quantile({share}, sum by (le) (rate({name}_bucket{{PODS}}[$__rate_interval])))",
             f"p{share * 100:g}") for share in shares]


def rate(name, by="", labels=""):
    total = f"rate({name}{{PODS{labels}}}[$__rate_interval])"
    return f"sum by ({by}) ({total})" if by else f"sum({total})"


ROWS = [
    ("Are users served?", [
        ("Time to first token", "s", quantiles("foretoken_time_to_first_token_seconds", 0.5, 0.95, 0.99)),
        ("Time per token after the first", "s", quantiles("foretoken_inter_token_seconds", 0.5, 0.95, 0.99)),
        ("Time in the queue", "s", quantiles("foretoken_queue_wait_seconds", 0.5, 0.95, 0.99)),
        ("Generated tokens", "ops", [(rate("foretoken_generated_tokens_total"), "tokens per second")]),
        ("Calls by end", "ops", [(rate("foretoken_rpc_calls_total", "code", ',rpc="Generate"'), "{{code}}")]),
        ("Refusals by reason", "ops", [(rate("foretoken_refusals_total", "reason"), "{{reason}}")]),
    ]),
    ("Does speculation pay?", [
        ("Speed-up against plain decoding", "x", [
            (rate("foretoken_plain_decode_seconds_total") + " / " + rate("foretoken_decode_step_seconds_total"),
             "times as fast")]),
        ("Tokens per sequence and step", "short", [
            ("1 + " + rate("foretoken_accepted_length_sum") + " / " + rate("foretoken_accepted_length_count"),
             "tokens")]),
        ("Accepted share of verified guesses, of ended samples", "percentunit", [
            (rate("foretoken_accepted_tokens_total", "proposer") + " / " +
             rate("foretoken_proposed_tokens_total", "proposer"), "{{proposer}}")]),
        ("Accepted guesses by proposer, of ended samples", "ops",
         [(rate("foretoken_accepted_tokens_total", "proposer"), "{{proposer}}")]),
        ("Connected replicas", "short",
         [("min by (proposer) (foretoken_proposer_replicas_connected{PODS})", "{{proposer}}")]),
        ("Late trees", "percentunit", [
            (rate("foretoken_proposer_late_answers_total", "proposer") + " / " +
             rate("foretoken_proposer_questions_total", "proposer"), "{{proposer}}")]),
        ("Sessions at proposers", "short",
         [("sum by (proposer) (foretoken_proposer_sessions{PODS})", "{{proposer}}")]),
        ("Sessions that wait for room", "short",
         [("sum by (proposer) (foretoken_proposer_waiting_sessions{PODS})", "{{proposer}}")]),
        ("Round trip to proposers, p95", "s", [
            ("histogram_quantile(0.95, sum by (le, proposer) ("
             "rate(foretoken_proposer_round_trip_seconds_bucket{PODS}[$__rate_interval])))", "{{proposer}}")]),
    ]),
    ("What is the machine doing?", [
        ("Samples", "short", [("sum(foretoken_samples_running{PODS})", "running"),
                              ("sum(foretoken_samples_queued{PODS})", "queued")]),
        ("Time of steps by part", "percentunit",
         [("avg by (part) (rate(foretoken_step_seconds_total{PODS}[$__rate_interval]))", "{{part}}")]),
        ("Rows per step", "short", [(rate("foretoken_rows_total") + " / " + rate("foretoken_steps_total"), "rows")]),
        ("K/V blocks", "percentunit", [
            ("1 - sum(foretoken_kv_blocks_free{PODS}) / sum(foretoken_kv_blocks{PODS})", "taken or cached"),
            ("sum(foretoken_kv_blocks_cached{PODS}) / sum(foretoken_kv_blocks{PODS})", "cached")]),
        ("Preemptions", "ops", [(rate("foretoken_preemptions_total"), "per second")]),
        ("Prompt tokens", "ops", [(rate("foretoken_prompt_tokens_total"), "computed"),
                                  (rate("foretoken_cached_tokens_total"), "from the cache")]),
    ]),
]


def variable(name, label, query):
    return {"type": "query", "name": name, "label": label, "datasource": {"type": "prometheus", "uid": "$datasource"},
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1}


def panel(panel_id, title, unit, queries, x, y):
    return {
        "id": panel_id, "type": "timeseries", "title": title,
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [{"refId": chr(ord("A") + i), "expr": query.replace("PODS", PODS), "legendFormat": legend,
                     "exemplar": "_bucket" in query} for i, (query, legend) in enumerate(queries)],
    }


def dashboard():
    panels, y = [], 0
    for title, of_row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        y += 1
        for i, (name, unit, queries) in enumerate(of_row):
            panels.append(panel(len(panels) + 1, name, unit, queries, i % 3 * WIDTH, y + i // 3 * HEIGHT))
        y += -(-len(of_row) // 3) * HEIGHT
    return {
        "uid": "foretoken", "title": "Foretoken", "tags": ["foretoken"], "schemaVersion": 39, "editable": True,
        "time": {"from": "now-1h", "to": "now"}, "refresh": "30s", "timezone": "browser",
        "templating": {"list": [
            {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"},
            variable("namespace", "Namespace", "label_values(foretoken_steps_total, namespace)"),
            variable("release", "Release",
                     'label_values(foretoken_steps_total{namespace="$namespace"}, app_kubernetes_io_instance)')]},
        "annotations": {"list": []}, "links": [], "panels": panels,
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1))
