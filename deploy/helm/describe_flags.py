#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints values.schema.json with the descriptions and the defaults that the programs give their flags.

    deploy/helm/describe_flags.py build/release/bin > schema && mv schema deploy/helm/foretoken/values.schema.json

The schema says which flags the chart takes, with their types and bounds. A flag without a default is unset or empty.
"""
import json
import pathlib
import re
import subprocess
import sys

SCHEMA = pathlib.Path(__file__).parent / "foretoken/values.schema.json"
BLOCK = r'(further flags of foretoken_{}, .*?"properties": \{{\n)(.*?)(\n *\}}\n)'  # its second group has the flags


def help_of(program):
    """{flag: (default, description)}, both as they are printed."""
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
    flags = re.findall(r"^  --(\w+)(?: \(default (.*)\))?\n((?:      .*\n?)+)", text, re.MULTILINE)
    return {name: (default, " ".join(lines.split())) for name, default, lines in flags}


def describe(node, kind, default, description):
    """The node of a flag, with its description first."""
    node = {key: value for key, value in node.items() if key not in ("description", "default")}
    if default:
        node["default"] = default if kind == "string" else json.loads(default)
    return {"description": description, **node}


def describe_block(flags, helps, definitions):
    lines = []
    for name, node in flags.items():
        kind = node.get("type") or definitions[node["$ref"].split("/")[-1]]["type"]
        lines.append(f'            "{name}": {json.dumps(describe(node, kind, *helps[name]), ensure_ascii=False)}')
    return ",\n".join(lines)


def describe_schema(folder):
    text = SCHEMA.read_text()
    definitions = json.loads(text)["definitions"]
    for component in ["verifier", "proposer"]:
        helps = help_of(folder / f"foretoken_{component}")
        text = re.sub(BLOCK.format(component), lambda match, helps=helps: match[1] + describe_block(
            json.loads("{" + match[2] + "}"), helps, definitions) + match[3], text, count=1, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    print(describe_schema(pathlib.Path(sys.argv[1])), end="")
