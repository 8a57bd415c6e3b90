#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of the chart's values and of the programs' flags, as values.schema.json describes them.

    deploy/helm/describe_values.py     # for deploy/helm/foretoken/README.md
"""
import json
import pathlib

SCHEMA = json.loads((pathlib.Path(__file__).parent / "foretoken/values.schema.json").read_text())


def resolve(node):
    return {**SCHEMA["definitions"][node["$ref"].split("/")[-1]], **node} if "$ref" in node else node


def row(name, node):
    """A flag without a default is unset or empty."""
    default = f"`{json.dumps(node['default'])}`" if "default" in node else ""
    cells = [text.replace("|", "\\|") for text in (f"`{name}`", default, node["description"])]
    return "| " + " | ".join(cells) + " |"


def rows(node, path):
    for key, child in resolve(node)["properties"].items():
        name = f"{path}.{key}" if path else key
        whole = resolve(child)
        if whole.get("properties") and "default" not in whole:
            yield from rows(child, name)
        elif name not in ("enabled", "global", "proposerDefaults.method"):
            yield row(name, whole)


def table(kind, lines):
    return "\n".join([f"| {kind} | default | meaning |", "|---|---|---|", *lines]) + "\n"


def flags(component, group):
    lines = [row(name, resolve(node)) for name, node in group["properties"]["flags"]["properties"].items()]
    return f"\n### Flags of the {component}\n\n" + table("flag", lines)


if __name__ == "__main__":
    print(table("value", rows(SCHEMA, "")) + flags("verifier", SCHEMA["properties"]["verifier"])
          + flags("proposers", SCHEMA["definitions"]["group"]), end="")
