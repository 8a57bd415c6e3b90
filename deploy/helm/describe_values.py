#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of the chart's values, of values.schema.json and with the defaults of values.yaml.

    deploy/helm/describe_values.py     # for deploy/helm/foretoken/README.md
"""
import json
import pathlib

SCHEMA = json.loads((pathlib.Path(__file__).parent / "foretoken/values.schema.json").read_text())


def resolve(node):
    return SCHEMA["definitions"][node["$ref"].split("/")[-1]] if "$ref" in node else node


def rows(node, path):
    for key, child in resolve(node)["properties"].items():
        name = f"{path}.{key}" if path else key
        whole = resolve(child)
        if whole.get("properties") and "default" not in whole:
            yield from rows(child, name)
        elif name not in ("enabled", "global", "proposerDefaults.method"):
            default = json.dumps(whole["default"]).replace("|", "\\|")
            yield f"| `{name}` | `{default}` | {whole['description'].replace('|', chr(92) + '|')} |"


def table():
    return "| value | default | meaning |\n|---|---|---|\n" + "\n".join(rows(SCHEMA, "")) + "\n"


if __name__ == "__main__":
    print(table(), end="")
