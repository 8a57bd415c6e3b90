#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a service's page of metrics in the OpenMetrics format with Prometheus's own Python parser, which is strict. At least
one latency must have an exemplar.

    check_open_metrics.py PORT
"""
import sys
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families


def main(port: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": "application/openmetrics-text"})
    with urllib.request.urlopen(request) as answer:
        kind, page = answer.headers["Content-Type"], answer.read().decode()
    assert kind.startswith("application/openmetrics-text; version=1.0.0"), kind
    families = list(text_string_to_metric_families(page))
    names = [family.name for family in families]
    assert len(set(names)) == len(names), "a family is there twice"
    assert any(sample.exemplar for family in families for sample in family.samples), "no exemplar"


if __name__ == "__main__":
    main(sys.argv[1])
