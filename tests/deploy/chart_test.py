# SPDX-License-Identifier: Apache-2.0
"""The chart as Helm renders it. If a test fails, an installation is refused by the API server, starts the services with
flags that they do not know, or takes values that mean nothing.

    tests/deploy/run.sh build/release chart_test
"""
import os
import pathlib
import re
import subprocess
import unittest

import helm_python
import yaml

import chart

BIN = pathlib.Path(os.environ["FORETOKEN_BUILD"]) / "bin"
PROGRAMS = {"verifier": BIN / "foretoken_verifier", "proposer": BIN / "foretoken_proposer"}


def flags_of(program):
    usage = subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"^  --(\w+)", usage, re.MULTILINE))


def passed_flags(container):
    return {re.match(r"--(\w+)", argument)[1] for argument in container["args"]}


class Renders(unittest.TestCase):
    def test_are_valid_in_every_supported_kubernetes(self):
        for case in chart.cases():
            documents = chart.render(chart.values_of(case))
            self.assertGreater(len(documents), 8)
            for kubernetes in chart.KUBERNETES:
                for document in documents:
                    with self.subTest(case=case, kubernetes=kubernetes, kind=document["kind"],
                                      name=document["metadata"]["name"]):
                        chart.validate(document, kubernetes)

    def test_pass_helms_lint(self):
        report = helm_python.lint(str(chart.CHART), values=chart.values_of("everything"))
        self.assertEqual(report["errors"], [])
        self.assertEqual([message for message in report["messages"] if message["severity"] > 1], [])

    def test_use_every_kind_that_the_validator_knows(self):
        kinds = {d["kind"] for case in chart.cases() for d in chart.render(chart.values_of(case))}
        self.assertLessEqual({kind for _, kind in chart.OWN_SCHEMAS}, kinds)

    def test_validator_finds_a_wrong_field(self):
        monitor = chart.find(chart.render(chart.values_of("everything")), "PodMonitor")[0]
        monitor["spec"]["podMetricsEndpoint"] = monitor["spec"].pop("podMetricsEndpoints")
        with self.assertRaisesRegex(Exception, "podMetricsEndpoint"):
            chart.validate(monitor, chart.KUBERNETES[0])
        deployment = chart.find(chart.render(chart.values_of("minimal")), "Deployment")[0]
        deployment["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
        with self.assertRaisesRegex(Exception, "livenessprobe"):
            chart.validate(deployment, chart.KUBERNETES[0])

    def test_minimal_one_is_short_and_as_recorded(self):
        text = chart.render_text(chart.values_of("minimal"))
        self.assertLess(len(text.splitlines()), 300)
        golden = pathlib.Path(__file__).parent / "minimal.golden.yaml"
        if os.environ.get("FORETOKEN_UPDATE_GOLDEN"):
            golden.write_text(text)
        self.assertEqual(text, golden.read_text(), "tests/deploy/run.sh BUILD --update writes it anew")

    def test_give_no_two_objects_one_name(self):
        for case in chart.cases():
            names = [(d["kind"], d["metadata"]["name"]) for d in chart.render(chart.values_of(case))]
            self.assertEqual(len(names), len(set(names)), case)

    def test_names_fit_a_service(self):
        values = {"model": {"claim": "weights"}, "proposers": {"a" * 20: {"method": "ngram"}}}
        for service in chart.find(chart.render(values, name="r" * 30), "Service"):
            self.assertLessEqual(len(service["metadata"]["name"]), 63)

    def test_a_group_is_found_by_its_own_service_and_budget_alone(self):
        documents = chart.render(chart.values_of("cpu"))
        pods = {d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"]
                for d in chart.find(documents, "Deployment")}
        for kind, selector_of in [("Service", lambda d: d["spec"]["selector"]),
                                  ("PodDisruptionBudget", lambda d: d["spec"]["selector"]["matchLabels"])]:
            for document in chart.find(documents, kind):
                selector = selector_of(document).items()
                found = [name for name, labels in pods.items() if selector <= labels.items()]
                self.assertEqual(found, [document["metadata"]["name"]])

    def test_proposers_accept_the_verifier_alone(self):
        documents = chart.render(chart.values_of("everything"))
        policies = [d for d in chart.find(documents, "NetworkPolicy") if "proposer" in d["metadata"]["name"]]
        self.assertEqual(len(policies), 4)
        verifier = chart.find(documents, "Deployment", "demo-verifier")[0]
        for policy in policies:
            peers = [rule["from"] for rule in policy["spec"]["ingress"] if rule["ports"] == [{"port": "grpc"}]]
            self.assertEqual(peers, [[{"podSelector": verifier["spec"]["selector"]}]])

    def test_the_pod_of_helm_test_may_call_the_verifier(self):
        documents = chart.render(chart.values_of("secrets"))
        labels = chart.find(documents, "Pod")[0]["metadata"]["labels"].items()
        policy = chart.find(documents, "NetworkPolicy", "demo-verifier")[0]
        peers = [peer["podSelector"]["matchLabels"] for rule in policy["spec"]["ingress"] for peer in rule.get("from", [])
                 if "podSelector" in peer]
        self.assertEqual(len(peers), 2)
        self.assertEqual([peer for peer in peers if peer.items() <= labels], peers[1:])

    def test_a_release_without_proposers_has_none(self):
        documents = chart.render({"model": {"claim": "weights"}, "proposers": {"suffix": None}})
        self.assertEqual([name for name, _ in chart.containers(documents)], ["demo-verifier"])
        self.assertNotIn("--proposer=", str(documents))

    def test_every_container_is_restricted(self):
        for case in chart.cases():
            documents = chart.render(chart.values_of(case))
            specs = [d["spec"]["template"]["spec"] for d in chart.find(documents, "Deployment")]
            specs += [d["spec"] for d in chart.find(documents, "Pod")]
            for spec in specs:
                self.assertTrue(spec["securityContext"]["runAsNonRoot"])
                self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                for container in spec["containers"] + spec.get("initContainers", []):
                    self.assertEqual(container["securityContext"], {
                        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]}})

    def test_a_pod_outlives_its_drain(self):
        for case in chart.cases():
            for deployment in chart.find(chart.render(chart.values_of(case)), "Deployment"):
                spec = deployment["spec"]["template"]["spec"]
                container = spec["containers"][0]
                pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
                drain = next(int(a[len("--drain_grace="):-1]) for a in container["args"]
                             if a.startswith("--drain_grace="))
                self.assertGreater(spec["terminationGracePeriodSeconds"], pause + drain)

    def test_an_update_on_gpus_needs_no_further_gpu(self):
        for name, surge in [("cpu", 1), ("gpu", 0)]:
            deployment = chart.find(chart.render(chart.values_of(name)), "Deployment", "demo-verifier")[0]
            self.assertEqual(deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"], surge)

    def test_an_autoscaler_owns_the_number_of_pods(self):
        documents = chart.render(chart.values_of("gpu"))
        targets = [d["spec"]["scaleTargetRef"]["name"] for d in chart.find(documents, "ScaledObject")]
        self.assertEqual(len(targets), 3)
        for deployment in chart.find(documents, "Deployment"):
            self.assertEqual("replicas" in deployment["spec"], deployment["metadata"]["name"] not in targets)

    def test_a_new_download_restarts_the_pods(self):
        def checksum(letter):
            values = chart.values_of("cpu")
            values["model"]["download"]["files"]["config.json"] = letter * 64
            pods = chart.find(chart.render(values), "Deployment", "demo-verifier")[0]["spec"]["template"]
            return pods["metadata"]["annotations"]["checksum/model"]

        self.assertNotEqual(checksum("0"), checksum("1"))

    def test_notes_give_three_commands(self):
        for case in chart.cases():
            commands = re.findall(r"^  (kubectl|helm) .*$", chart.notes(chart.values_of(case)), re.MULTILINE)
            self.assertEqual(commands, ["kubectl", "helm", "kubectl"], case)

    def test_notes_say_where_a_gpu_is_asked_for_that_none_has_been_tried(self):
        self.assertIn("No release of Foretoken has run on a GPU", chart.notes(chart.values_of("gpu")))
        self.assertNotIn("GPU", chart.notes(chart.values_of("cpu")))


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
            if not node.get("properties"):
                self.assertEqual(node.get("default"), value, path)
                return
            self.assertIs(node["additionalProperties"], False, path)
            optional = {"global"} if not path else {"method"} if path == ".proposerDefaults" else set()
            self.assertEqual(set(node["properties"]) - optional, set(value), path)
            for key in value:
                walk(node["properties"][key], value[key], f"{path}.{key}")

        walk(schema, values, "")

    def test_every_value_is_described(self):
        def walk(node, path):
            self.assertTrue(node.get("description"), path)
            for key, child in node.get("properties", {}).items():
                if "$ref" not in child:
                    walk(child, f"{path}.{key}")

        walk(chart.value_schema(), "")

    def test_readme_has_the_table(self):
        readme = (chart.CHART / "README.md").read_text()
        script = chart.CHART.parent / "describe_values.py"
        table = subprocess.run([script], capture_output=True, text=True, check=True).stdout
        self.assertIn(table, readme, "deploy/helm/describe_values.py prints the table")

    def test_flags_are_the_binaries_own(self):
        schema = chart.value_schema()
        flags = {"verifier": schema["properties"]["verifier"]["properties"]["flags"],
                 "proposer": schema["definitions"]["group"]["properties"]["flags"]}
        passed = {"verifier": set(), "proposer": set()}
        for case in chart.cases():
            for name, container in chart.containers(chart.render(chart.values_of(case))):
                passed[container["name"]] |= passed_flags(container) - set(chart.values_of(case).get(
                    container["name"], {}).get("flags", {}))
        for component, program in PROGRAMS.items():
            known = flags_of(program)
            self.assertGreater(len(known), 20)
            self.assertLessEqual(passed[component], known)
            offered = set(flags[component]["propertyNames"]["enum"])
            self.assertEqual(offered - known, set(), "the schema has flags that the program does not know")
            self.assertEqual(known - offered - passed[component] - {"model"}, set(), "the chart hides flags")


def resolve(schema, node):
    return schema["definitions"][node["$ref"].split("/")[-1]] if "$ref" in node else node


class Dashboard(unittest.TestCase):
    def test_is_what_its_script_prints(self):
        script = chart.CHART.parent / "make_dashboard.py"
        printed = subprocess.run([script], capture_output=True, text=True, check=True).stdout
        self.assertEqual(printed, (chart.CHART / "files/dashboard.json").read_text())


if __name__ == "__main__":
    unittest.main()
