# SPDX-License-Identifier: Apache-2.0
"""What the chart takes: its values, their schema, and the flags of the programs. If a test fails, values that mean nothing
are taken, or a value or a flag is missing where somebody looks for it.

    tests/deploy/run.sh build/release values_test
"""
import json
import os
import pathlib
import re
import subprocess
import unittest

import helm_python
import kubernetes_validate
import yaml

import chart

BIN = pathlib.Path(os.environ["FORETOKEN_BUILD"]) / "bin"
PROGRAMS = {"verifier": BIN / "foretoken_verifier", "proposer": BIN / "foretoken_proposer"}


def usage_of(program):
    return subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout


def flags_of(program):
    return set(re.findall(r"^  --(\w+)", usage_of(program), re.MULTILINE))


def declared_flags(component):
    """The C++ type of each flag of a program."""
    texts = [(chart.ROOT / path).read_text() for path in [
        f"{component}_service/main.cc", "common/rpc/server_flags.cc", "proposer_service/option_list.inc"]]
    pattern = r"(?:ABSL_FLAG\(|FT_PROPOSER_OPTION\(\s*\"\w*\",)\s*([\w:<>]+),\s*(\w+),"
    return {name: kind for text in reversed(texts) for kind, name in re.findall(pattern, text)}


def flag_schemas():
    """By component and flag."""
    schema = chart.value_schema()
    groups = {"verifier": schema["properties"]["verifier"], "proposer": schema["definitions"]["group"]}
    return {component: {flag: resolve(schema, node) for flag, node in group["properties"]["flags"]["properties"].items()}
            for component, group in groups.items()}


MOST_EXACT = 2**53 - 1  # of a number in JSON. Some flags take more


def bounds(node):
    """The least and the most that a number may be, and what is just beyond them."""
    step = 1 if node["type"] == "integer" else 1e-3
    least = node.get("minimum", node.get("exclusiveMinimum", 0) + step)
    most = node.get("maximum", node.get("exclusiveMaximum", MOST_EXACT + step) - step)
    return (least, most), [least - step] + ([most + step] if most < MOST_EXACT else [])


def sample(node):
    """A value that a flag may have."""
    if "enum" in node:
        return node["enum"][0]
    return {"boolean": True, "string": "1s"}.get(node["type"]) or bounds(node)[0][0]


def method_of(component, flag):
    """A method of the proposer that has the flag. A verifier has none."""
    prefix = flag.split("_")[0]
    return None if component == "verifier" else prefix if prefix in ("ngram", "suffix") else "draft"


def answer(component, method, flags):
    """What a program says: where it listens if it needs no model, else why it ends. It finds no model."""
    command = [PROGRAMS[component], "--listen=127.0.0.1:0", *([f"--method={method}"] if method else []),
               *(["--model=/nowhere"] if method in (None, "draft") else []),
               *(f"--{flag}={value if isinstance(value, str) else json.dumps(value)}" for flag, value in flags.items())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.terminate()
        return line or process.stderr.read()


def passed_flags(container):
    return {re.match(r"--(\w+)", argument)[1] for argument in container["args"]}


class Values(unittest.TestCase):
    def test_nonsense_is_refused_by_name(self):
        table = yaml.safe_load((pathlib.Path(__file__).parent / "nonsense.yaml").read_text())
        self.assertGreater(len(table), 40)
        for row in table:
            values = {"model": {"claim": "weights"}, **row["values"]}
            with self.subTest(values=row["values"]):
                with self.assertRaises(helm_python.HelmError) as refused:
                    chart.render(values, name=row.get("release", "demo"))
                for word in row["says"] if isinstance(row["says"], list) else [row["says"]]:
                    self.assertIn(word, str(refused.exception))

    def test_schema_and_file_have_the_same_keys_and_defaults(self):
        schema, values = chart.value_schema(), yaml.safe_load((chart.CHART / "values.yaml").read_text())

        def walk(node, value, path):
            node = resolve(schema, node)
            if "default" in node:
                self.assertEqual(node["default"], value, path)
                return
            self.assertIs(node["additionalProperties"], False, path)
            optional = {"enabled", "global"} if not path else {"method"} if path == ".proposerDefaults" else set()
            self.assertEqual(set(node["properties"]) - optional, set(value), path)
            for key in value:
                walk(node["properties"][key], value[key], f"{path}.{key}")

        walk(schema, values, "")

    def test_every_value_is_described(self):
        schema = chart.value_schema()

        def walk(node, path):
            self.assertTrue(node.get("description"), path)
            for key, child in node.get("properties", {}).items():
                walk(resolve(schema, child), f"{path}.{key}")

        walk(schema, "")

    def test_readme_has_the_tables(self):
        readme = (chart.CHART / "README.md").read_text()
        script = chart.CHART.parent / "describe_values.py"
        tables = subprocess.run([script], capture_output=True, text=True, check=True).stdout
        self.assertTrue(tables in readme, "deploy/helm/describe_values.py prints other tables")

    def test_flags_are_described_as_the_binaries_do(self):
        script = chart.CHART.parent / "describe_flags.py"
        printed = subprocess.run([script, BIN], capture_output=True, text=True, check=True).stdout
        self.assertEqual(printed, (chart.CHART / "values.schema.json").read_text())

    def test_flags_are_the_binaries_own(self):
        flags = flag_schemas()
        passed = {"verifier": set(), "proposer": set()}
        for case in chart.cases():
            for name, container in chart.containers(chart.render(chart.values_of(case))):
                passed[container["name"]] |= passed_flags(container) - set(chart.values_of(case).get(
                    container["name"], {}).get("flags", {}))
        for component, program in PROGRAMS.items():
            known = flags_of(program)
            self.assertGreater(len(known), 20)
            self.assertLessEqual(passed[component], known)
            offered = set(flags[component])
            self.assertEqual(offered - known, set(), "the schema has flags that the program does not know")
            self.assertEqual(known - offered - passed[component] - {"model"}, set(), "the chart hides flags")

    def test_flags_take_what_the_binaries_take(self):
        types = {"bool": "boolean", "int32_t": "integer", "int64_t": "integer", "float": "number", "std::string": "string",
                 "absl::Duration": "string", "std::vector<std::string>": "string"}
        for component, program in PROGRAMS.items():
            helps = dict(re.findall(r"^  --(\w+)(.*?)(?=^  --|\Z)", usage_of(program), re.MULTILINE | re.DOTALL))
            declared = declared_flags(component)
            for flag, node in flag_schemas()[component].items():
                with self.subTest(component=component, flag=flag):
                    known = re.sub(r"std::optional<(.*)>", r"\1", declared[flag])
                    self.assertEqual(node["type"], types[known])
                    self.assertEqual("/flagTime" in node.get("$ref", ""), known == "absl::Duration")
                    for choice in node.get("enum", []):
                        self.assertRegex(helps[flag], rf"\b{choice}\b")

    def test_bounds_of_flags_are_the_binaries_own(self):
        for component in PROGRAMS:
            numbers = {flag: node for flag, node in flag_schemas()[component].items()
                       if node["type"] in ("integer", "number") and "enum" not in node}
            self.assertGreater(len(numbers), 15)
            for method in {method_of(component, flag) for flag in numbers}:
                own = {flag: node for flag, node in numbers.items() if method_of(component, flag) == method}
                expected = "listening on " if method in ("ngram", "suffix") else "cannot open /nowhere"
                for inside in zip(*(bounds(node)[0] for node in own.values())):
                    self.assertIn(expected, answer(component, method, dict(zip(own, inside))))
            for flag, value in [(flag, value) for flag, node in numbers.items() for value in bounds(node)[1]]:
                with self.subTest(component=component, flag=flag, value=value):
                    self.assertRegex(answer(component, method_of(component, flag), {flag: value}), "expected|Illegal value")

    def test_binaries_take_zero_and_a_second_where_the_chart_does(self):
        taken = 0
        for component in PROGRAMS:
            times = {flag: node for flag, node in flag_schemas()[component].items() if "/flagTime" in node.get("$ref", "")}
            for flag, value in [(flag, value) for flag in times for value in ("0", "0s", "0.0ms", "1s", "inf")]:
                node = times[flag]
                if not re.search(node["pattern"], value) or re.search(node.get("not", {}).get("pattern", "$^"), value):
                    continue
                taken += 1
                with self.subTest(component=component, flag=flag, value=value):
                    expected = "listening on " if flag.startswith("suffix") else "cannot open /nowhere"
                    self.assertIn(expected, answer(component, method_of(component, flag), {flag: value}))
        self.assertGreater(taken, 10)

    def test_a_group_gets_the_flags_that_the_binary_has_for_its_method(self):
        options = re.findall(r'FT_PROPOSER_OPTION\(\s*"(\w*)",\s*[\w:<>]+,\s*(\w+)',
                             (chart.ROOT / "proposer_service/option_list.inc").read_text())
        owner = {flag: method for method, flag in options}
        only = {"feature_layers": {"dflash", "eagle3"}, "expert_memory_mb": {"draft"}}
        offered = flag_schemas()["proposer"]
        methods = chart.value_schema()["definitions"]["group"]["properties"]["method"]["enum"]
        documents = chart.render({
            "model": {"claim": "weights"},
            "proposerDefaults": {"flags": {flag: sample(node) for flag, node in offered.items()}},
            "proposers": {"suffix": None, **{f"group-{i}": {"method": method, **(
                {} if method in ("ngram", "suffix") else {"model": {"claim": "heads"}})} for i, method in enumerate(methods)}}})
        for i, method in enumerate(methods):
            owners = {"", method} if method in ("ngram", "suffix", "draft") else {"", "draft", "features"}
            passed = passed_flags(dict(chart.containers(documents))[f"demo-proposer-group-{i}"]) & set(offered)
            with self.subTest(method=method):
                self.assertEqual(passed, {flag for flag in offered if owner.get(flag, "") in owners
                                          and method in only.get(flag, {method})})
                for flag in set(only) - passed if method not in ("ngram", "suffix") else ():
                    said = subprocess.run([PROGRAMS["proposer"], f"--method={method}", "--model=/nowhere", f"--{flag}=4",
                                           *([] if method == "draft" else ["--target=/nowhere"])],
                                          capture_output=True, text=True, check=False).stderr
                    self.assertIn(f"{flag}: expected", said)

    def test_flags_that_depend_on_each_other_are_refused_as_the_binary_does(self):
        for flags in ({"max_running_samples": 512}, {"max_running_samples": 513}, {"max_step_rows": 64},
                      {"max_step_rows": 63}, {"max_receive_bytes": 4194304}, {"max_receive_bytes": 4194303},
                      {"max_prompt_bytes": 16777216}, {"max_prompt_bytes": 16777217}):
            with self.subTest(flags=flags):
                takes = "cannot open /nowhere" in answer("verifier", None, flags)
                try:
                    chart.render({"model": {"claim": "weights"}, "verifier": {"flags": flags}})
                    self.assertTrue(takes)
                except helm_python.HelmError as refused:
                    self.assertFalse(takes, refused)

    def test_volumes_are_those_of_kubernetes(self):
        for kind in chart.value_schema()["definitions"]["volume"]["propertyNames"]["enum"]:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
                "containers": [{"name": "a"}], "volumes": [{"name": "model", kind: {}}]}}
            try:
                chart.validate(pod, chart.KUBERNETES[-1])
            except kubernetes_validate.ValidationError as error:  # a field that the volume needs
                self.assertEqual(list(error.path), ["spec", "volumes", 0, kind], error)


def resolve(schema, node):
    return {**schema["definitions"][node["$ref"].split("/")[-1]], **node} if "$ref" in node else node


if __name__ == "__main__":
    unittest.main()
