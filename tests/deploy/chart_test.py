# SPDX-License-Identifier: Apache-2.0
"""The chart as Helm renders it. If a test fails, an installation is refused by the API server, its pods wait forever, or
it disturbs another installation.

    tests/deploy/run.sh build/release chart_test
"""
import contextlib
import functools
import http.server
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import unittest

import helm_python
import yaml

import chart

VALUES = {"model": {"claim": "weights"}}


def variables(names):
    return [{"name": name, "value": "mine"} for name in names]


@contextlib.contextmanager
def cluster(replicas):
    """The address of an API server that has Deployments of these names, each with its number of pods, and nothing else."""
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            name = path.rpartition("/")[2]
            if path == "/apis/apps/v1":
                answer = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [
                    {"name": "deployments", "namespaced": True, "kind": "Deployment", "verbs": ["get"]}]}
            elif path == f"/apis/apps/v1/namespaces/llm/deployments/{name}" and name in replicas:
                answer = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": name},
                          "spec": {"replicas": replicas[name]}}
            else:
                answer = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            text = json.dumps(answer).encode()
            self.send_response(answer.get("code", 200))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def render_in_cluster(values, replicas):
    """As Helm upgrades a release where these Deployments are."""
    with cluster(replicas) as address:
        config = helm_python.Config(kubeconfig_content=json.dumps({"apiVersion": "v1", "kind": "Config"}),
                                    kube_apiserver=address, namespace="llm")
        files = config.render(helm_python.Chart.load(str(chart.CHART)), values, name="demo", namespace="llm", is_upgrade=True)
    return [document for path, text in files.items() if not path.endswith("NOTES.txt")
            for document in yaml.safe_load_all(text) if document]


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
        values = {**VALUES, "proposers": {"a" * 20: {"method": "ngram"}}}
        for service in chart.find(chart.render(values, name="r" * 30), "Service"):
            self.assertLessEqual(len(service["metadata"]["name"]), 63)

    def test_whole_numbers_stay_whole(self):
        flags = {"max_total_tokens": 16777216, "draft_min_path_chance": 0.05, "threads": 4}
        values = {**VALUES, "monitoring": {"podMonitors": True}, "proposers": {"draft": {
            "method": "draft", "model": {"claim": "drafts"}, "flags": flags,
            "autoscaling": {"kind": "keda", "sessions": 1000000}}}}
        documents = chart.render(values)
        arguments = dict(chart.containers(documents))["demo-proposer-draft"]["args"]
        self.assertLessEqual({f"--{flag}={value}" for flag, value in flags.items()}, set(arguments))
        trigger = chart.find(documents, "ScaledObject", "demo-proposer-draft")[0]["spec"]["triggers"][0]
        self.assertEqual(trigger["metadata"]["threshold"], "1000000")

    def test_texts_stay_as_they_are(self):
        documents = chart.render(chart.values_of("texts"))
        containers = dict(chart.containers(documents))
        for argument in ["--model=/model/2024:", "--model_name=Llama 3: chat #2"]:
            self.assertIn(argument, containers["demo-verifier"]["args"])
        self.assertIn("--model=/model/7:", containers["demo-proposer-draft"]["args"])
        self.assertEqual(chart.find(documents, "InferencePool")[0]["spec"]["endpointPickerRef"]["name"], "9002")
        self.assertEqual(chart.find(chart.render(chart.values_of("texts"), name="true"), "InferencePool")[0]["metadata"][
            "name"], "true")

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
        self.assertEqual(len(peers), 3)
        self.assertEqual([peer for peer in peers if peer.items() <= labels], peers[1:2])

    def test_a_pod_of_the_verifier_may_call_the_verifier(self):
        """The notes' command does."""
        documents = chart.render({**VALUES, "networkPolicy": {"clients": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}})
        labels = chart.find(documents, "Deployment", "demo-verifier")[0]["spec"]["template"]["metadata"]["labels"]
        rules = chart.find(documents, "NetworkPolicy", "demo-verifier")[0]["spec"]["ingress"]
        (peers,) = [rule["from"] for rule in rules if rule["ports"] == [{"port": "grpc"}]]
        self.assertTrue(any(peer["podSelector"]["matchLabels"].items() <= labels.items() for peer in peers
                            if "podSelector" in peer))

    def test_a_downloaded_gguf_file_is_where_the_program_looks(self):
        for path, folder in [("a/llama.gguf", "/model/a"), ("llama.gguf", "/model"), ("llama", "/model/llama"), ("", "/model")]:
            download = {"url": "https://hub.example/m", "files": {"llama.gguf": "0" * 64}}
            documents = chart.render({"model": {"path": path, "download": download}})
            pod = chart.find(documents, "Deployment", "demo-verifier")[0]["spec"]["template"]["spec"]
            variables_of = {v["name"]: v["value"] for v in pod["initContainers"][0]["env"]}
            self.assertEqual(variables_of["FOLDER"], folder)
            self.assertIn(f"--model=/model/{path}".rstrip("/"), pod["containers"][0]["args"])

    def test_a_value_may_be_cleared(self):
        """`null` is Helm's way to take a default away."""
        pod = dict.fromkeys(["resources", "labels", "annotations", "env", "nodeSelector", "tolerations", "affinity"])
        chart.render({**VALUES, "networkPolicy": {"clients": None, "metrics": None}, "verifier": {"pod": pod, "flags": None},
                      "proposerDefaults": {"pod": pod, "flags": None}, "downloader": {"env": None, "resources": None},
                      "check": {"resources": None}})

    def test_metrics_can_be_closed(self):
        def open_ports(metrics):
            policy = chart.find(chart.render({**VALUES, "networkPolicy": {"metrics": metrics}}), "NetworkPolicy")[0]
            return [rule["ports"][0]["port"] for rule in policy["spec"]["ingress"]]

        self.assertIn("metrics", open_ports([{"podSelector": {}}]))
        self.assertNotIn("metrics", open_ports([]))

    def test_the_pod_of_helm_test_has_a_file_with_one_token(self):
        documents = chart.render(chart.values_of("everything"))
        self.assertIn("--token_file=/tokens/tokens", dict(chart.containers(documents))["demo-verifier"]["args"])
        self.assertIn("--token_file=/tokens/check", chart.find(documents, "Pod")[0]["spec"]["containers"][0]["args"])

    def test_the_pod_of_helm_test_runs_where_the_verifier_does(self):
        documents = chart.render(chart.values_of("everything"))
        pod = chart.find(documents, "Pod")[0]["spec"]
        verifier = chart.find(documents, "Deployment", "demo-verifier")[0]["spec"]["template"]["spec"]
        for field in ["imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName", "securityContext"]:
            self.assertEqual(pod[field], verifier[field], field)
        self.assertEqual(pod["containers"][0]["imagePullPolicy"], "Always")

    def test_the_verifiers_certificate_is_among_the_clients(self):
        arguments = dict(chart.containers(chart.render(chart.values_of("everything"))))["demo-verifier"]["args"]
        self.assertIn("--tls_client_identities=spiffe://cluster/ns/llm/sa/gateway,gateway.llm.svc,demo-verifier.llm.svc",
                      arguments)

    def test_the_verifiers_certificate_alone_has_names_for_clients_outside(self):
        specs = {d["metadata"]["name"]: d["spec"] for d in chart.find(chart.render(chart.values_of("everything")), "Certificate")}
        verifier = specs.pop("demo-verifier")
        inside = ["demo-verifier.llm.svc", "demo-verifier.llm.svc.cluster.local", "demo-verifier"]
        self.assertEqual(verifier["dnsNames"], [*inside, "llm.example.com"])
        self.assertEqual(verifier["ipAddresses"], ["203.0.113.7", "2001:db8::7"])
        for name, spec in specs.items():
            self.assertEqual([dns.split(".")[0] for dns in spec["dnsNames"]], [name] * 3)
            self.assertNotIn("ipAddresses", spec)

    def test_a_pod_names_a_claim_once(self):
        def volumes(head_claim):
            values = {**VALUES, "proposers": {"eagle": {"method": "eagle3", "model": {"claim": head_claim, "path": "head"}}}}
            spec = chart.find(chart.render(values), "Deployment", "demo-proposer-eagle")[0]["spec"]["template"]["spec"]
            mounts = {m["mountPath"]: m["name"] for m in spec["containers"][0]["volumeMounts"]}
            claims = {v["name"]: v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"]
                      if "persistentVolumeClaim" in v}
            return [claims[mounts["/model"]], claims[mounts["/target"]], len(claims)]

        self.assertEqual(volumes("weights"), ["weights", "weights", 1])
        self.assertEqual(volumes("heads"), ["heads", "weights", 2])

    def test_the_cluster_may_choose_the_user(self):
        ids = {"runAsUser", "runAsGroup", "fsGroup"}
        for user in [65532, 1000650000, 0]:
            documents = chart.render({**VALUES, "podUser": user})
            specs = [d["spec"]["template"]["spec"] for d in chart.find(documents, "Deployment")]
            for spec in [*specs, chart.find(documents, "Pod")[0]["spec"]]:
                context = spec["securityContext"]
                self.assertTrue(context["runAsNonRoot"])
                self.assertEqual([context[i] for i in ids & context.keys()], [user] * 3 if user else [])

    def test_what_outlives_a_release_has_its_label(self):
        documents = chart.render(chart.values_of("everything"))
        left = [d["spec"]["secretTemplate"] for d in chart.find(documents, "Certificate")]
        left += [d["metadata"] for d in documents if "helm.sh/hook" in d["metadata"].get("annotations", {})]
        self.assertEqual(len(left), 6)
        for metadata in left:
            self.assertEqual(metadata["labels"]["app.kubernetes.io/instance"], "demo")

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

    def test_no_container_has_a_variable_twice(self):
        given = ["OTEL_TRACES_SAMPLER", "POD_NAME", "TEAM", "URL", "TOKEN"]
        more = {**chart.values_of("everything"), "downloader": {"env": variables(given)},
                "proposerDefaults": {"pod": {"env": variables(given)}}}
        for values in [*map(chart.values_of, chart.cases()), more]:
            for deployment in chart.find(chart.render(values), "Deployment"):
                spec = deployment["spec"]["template"]["spec"]
                for container in spec["containers"] + spec.get("initContainers", []):
                    names = [variable["name"] for variable in container.get("env", [])]
                    self.assertEqual(sorted(names), sorted(set(names)), container["name"])

    def test_a_variable_of_the_users_replaces_the_charts(self):
        def environment(given):
            values = {**VALUES, "tracing": {"endpoint": "http://collector:4317"}, "verifier": {"pod": {"env": given}}}
            return dict(chart.containers(chart.render(values)))["demo-verifier"]["env"]

        charts = environment([])
        self.assertEqual(len(charts), 7)
        for variable in charts:
            mine = {"name": variable["name"], "value": "mine"}
            found = environment([mine])
            self.assertIn(mine, found)
            self.assertEqual({v["name"] for v in found}, {v["name"] for v in charts})
            self.assertEqual(len(found), 7)
        # A variable knows the ones before it.
        mine = [{"name": "TEAM", "value": "$(NODE_NAME)"}, {"name": "POD_NAME", "value": "mine"}]
        names = [variable["name"] for variable in environment(mine)]
        for before, after in [("NODE_NAME", "TEAM"), ("TEAM", "POD_NAME"), ("POD_NAME", "OTEL_RESOURCE_ATTRIBUTES")]:
            self.assertLess(names.index(before), names.index(after))

    def test_a_variable_of_the_downloader_replaces_the_charts(self):
        values = {**chart.values_of("everything"), "downloader": {"env": variables(["TOKEN", "HTTPS_PROXY"])}}
        pod = chart.find(chart.render(values), "Deployment", "demo-verifier")[0]["spec"]["template"]["spec"]
        (download,) = pod["initContainers"]
        self.assertEqual([v["name"] for v in download["env"]], ["TOKEN", "HTTPS_PROXY", "URL", "FOLDER"])
        self.assertEqual(download["env"][0]["value"], "mine")

    def test_a_label_of_the_users_replaces_the_one_for_pickers(self):
        label = "llm-d.ai/engine-type"
        for given, expected in [({}, "vllm"), ({label: "mine"}, "mine")]:
            values = {**chart.values_of("texts"), "verifier": {"pod": {"labels": given}}}
            self.assertEqual(len(re.findall(label, chart.render_text(values))), 1)
            pod = chart.find(chart.render(values), "Deployment", "demo-verifier")[0]["spec"]["template"]
            self.assertEqual(pod["metadata"]["labels"][label], expected)

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

    def test_a_snapshot_is_free_before_the_next_pod_opens_it(self):
        for name, strategy in [("cpu", "Recreate"), ("minimal", "RollingUpdate")]:
            deployment = chart.find(chart.render(chart.values_of(name)), "Deployment", "demo-proposer-suffix")[0]
            self.assertEqual(deployment["spec"]["strategy"].get("type", "RollingUpdate"), strategy)
            self.assertEqual("rollingUpdate" in deployment["spec"]["strategy"], strategy == "RollingUpdate")

    def test_an_autoscaler_owns_the_number_of_pods(self):
        documents = chart.render(chart.values_of("gpu"))
        targets = [d["spec"]["scaleTargetRef"]["name"] for d in chart.find(documents, "ScaledObject")]
        self.assertEqual(len(targets), 3)
        for deployment in chart.find(documents, "Deployment"):
            self.assertEqual("replicas" in deployment["spec"], deployment["metadata"]["name"] not in targets)

    def test_an_upgrade_leaves_an_autoscaler_the_pods_that_are_there(self):
        values = {**VALUES, "monitoring": {"scrapedOtherwise": True}, "proposers": {"suffix": None, **{
            kind: {"method": "ngram", "replicas": 7, "autoscaling": {"kind": kind, "minReplicas": 2}}
            for kind in ["none", "hpa", "keda"]}}}
        # An HPA ignores a Deployment without pods, and starts at its minReplicas. KEDA may have been paused at 0.
        for there, expected in [(5, {"none": 7, "hpa": 5, "keda": 5}), (1, {"none": 7, "hpa": 2, "keda": 1}),
                                (0, {"none": 7, "hpa": 2, "keda": 0})]:
            with self.subTest(there=there):
                documents = render_in_cluster(values, {f"demo-proposer-{kind}": there for kind in expected})
                self.assertEqual({kind: chart.find(documents, "Deployment", f"demo-proposer-{kind}")[0]["spec"]["replicas"]
                                  for kind in expected}, expected)
                self.assertEqual(chart.find(documents, "Deployment", "demo-verifier")[0]["spec"]["replicas"], 1)

    def test_a_deployment_that_is_not_there_yet_has_no_number_beside_an_autoscaler(self):
        values = {**VALUES, "verifier": {"autoscaling": {"kind": "hpa", "minReplicas": 2}}}
        self.assertNotIn("replicas", chart.find(render_in_cluster(values, {}), "Deployment", "demo-verifier")[0]["spec"])

    def test_an_autoscaler_that_learns_nothing_does_nothing(self):
        for scaled in chart.find(chart.render(chart.values_of("everything")), "ScaledObject"):
            for trigger in scaled["spec"]["triggers"]:
                self.assertEqual(trigger["metadata"]["ignoreNullValues"], "false")

    def test_an_autoscaler_shows_prometheus_its_credentials(self):
        for case, reference, modes in [
                ("everything", {"name": "prometheus", "kind": "ClusterTriggerAuthentication"}, "bearer"), ("gpu", None, None)]:
            scaled = chart.find(chart.render(chart.values_of(case)), "ScaledObject")
            self.assertEqual(len(scaled), 2 if case == "everything" else 3)
            for trigger in [trigger for document in scaled for trigger in document["spec"]["triggers"]]:
                self.assertEqual(trigger.get("authenticationRef"), reference)
                self.assertEqual(trigger["metadata"].get("authModes"), modes)

    def test_the_verifiers_name_can_have_the_addresses_of_all_pods(self):
        for kind, fields in [("Headless", {"clusterIP": "None"}), ("ClusterIP", {"type": "ClusterIP"})]:
            documents = chart.render({**VALUES, "verifier": {"service": {"type": kind}}})
            service = chart.find(documents, "Service", "demo-verifier")[0]
            chart.validate(service, chart.KUBERNETES[0])
            self.assertEqual({key: service["spec"][key] for key in ["clusterIP", "type"] if key in service["spec"]}, fields)

    def test_notes_give_three_commands_for_what_is_there(self):
        for case in chart.cases():
            documents = chart.render(chart.values_of(case))
            rollout, test, ask = re.findall(r"^  ((?:kubectl|helm) .*)$", chart.notes(chart.values_of(case)), re.MULTILINE)
            self.assertEqual(rollout, "kubectl -n llm rollout status deployment/demo-verifier")
            self.assertEqual(test, "helm -n llm test demo --logs")
            program, *flags = ask.removeprefix("kubectl -n llm exec deployment/demo-verifier -- ").split()
            self.assertEqual([program, flags[0]], ["foretoken", "info"])
            pod = chart.find(documents, "Deployment", "demo-verifier")[0]["spec"]["template"]["spec"]
            mounts = {m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
            files = [flag.split("=")[1] for flag in flags if "=/" in flag]
            self.assertLessEqual({str(pathlib.Path(file).parent) for file in files}, mounts)
            self.assertEqual({d["metadata"]["annotations"]["helm.sh/hook"] for d in chart.find(documents, "Pod")}, {"test"})

    def test_the_readme_tells_endpoint_pickers_the_port_of_metrics(self):
        container = dict(chart.containers(chart.render(VALUES)))["demo-verifier"]
        port = next(port["containerPort"] for port in container["ports"] if port["name"] == "metrics")
        self.assertIn(f"--model-server-metrics-port={port} ", (chart.CHART / "README.md").read_text())

    def test_notes_say_where_a_gpu_is_asked_for_that_none_has_served(self):
        self.assertIn("No release of Foretoken has served on a GPU", chart.notes(chart.values_of("gpu")))
        self.assertNotIn("GPU", chart.notes(chart.values_of("cpu")))

    def test_notes_name_the_groups_that_have_pods(self):
        groups = {"ngram": {"method": "ngram"}, "away": {"method": "ngram", "replicas": 0}, "suffix": {"replicas": 0}}
        self.assertIn("with the proposers ngram.", chart.notes({"model": {"claim": "weights"}, "proposers": groups}))


class SideBySide(unittest.TestCase):
    """Several installations in one cluster, or in one release of a parent chart."""

    def test_boards_differ(self):
        values = {**VALUES, "monitoring": {"dashboard": True}}
        files = [chart.board(chart.render(values, name=name, namespace=namespace))
                 for name, namespace in [("a", "llm"), ("b", "llm"), ("a", "other")]]
        boards = [json.loads(text) for _, text in files]
        for keys in [name for name, _ in files], [b["uid"] for b in boards], [b["title"] for b in boards]:
            self.assertEqual(len(set(keys)), 3, keys)
        self.assertEqual({len(b["uid"]) for b in boards}, {40})  # Grafana takes no longer one
        shown = [{v["name"]: v["current"]["value"] for v in b["templating"]["list"] if "current" in v} for b in boards]
        self.assertEqual(shown, [{"namespace": namespace, "release": name}
                                 for name, namespace in [("a", "llm"), ("b", "llm"), ("a", "other")]])

    def render_parent(self, **values):
        """A chart that has this one twice."""
        with tempfile.TemporaryDirectory() as folder:
            parent = pathlib.Path(folder) / "parent"
            shutil.copytree(chart.CHART, parent / "charts/foretoken")
            (parent / "Chart.yaml").write_text(yaml.safe_dump({
                "apiVersion": "v2", "name": "parent", "version": "0.1.0", "dependencies": [
                    {"name": "foretoken", "version": "0.1.0", "alias": alias, "condition": f"{alias}.enabled"}
                    for alias in ["chat", "code"]]}))
            values = {"global": {"team": "llm"}, **values}
            return chart.render(values, path=parent)

    def test_a_parent_chart_can_have_it_twice(self):
        everything = {**chart.values_of("everything"), "enabled": True}
        documents = self.render_parent(chat={**everything, "fullnameOverride": "chat"},
                                       code={**everything, "fullnameOverride": "code"})
        names = [(d["kind"], d["metadata"]["name"]) for d in documents]
        self.assertEqual(len(names), len(set(names)))
        for name in [name for _, name in names]:
            self.assertRegex(name, "^(chat|code)(-|$)")
        pods = {d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"]
                for d in chart.find(documents, "Deployment")}
        for service in chart.find(documents, "Service"):
            found = [name for name, labels in pods.items() if service["spec"]["selector"].items() <= labels.items()]
            self.assertEqual(found, [service["metadata"]["name"]])
        self.assertNotIn("demo", str(documents))

    def test_a_parent_chart_can_leave_it_out(self):
        documents = self.render_parent(chat={"enabled": False}, code=VALUES)
        self.assertEqual({name for name, _ in chart.containers(documents)}, {"demo-verifier", "demo-proposer-suffix"})


class NewcomersPath(unittest.TestCase):
    """The commands of docs/operating.md, which tests/rehearsal/cluster.sh runs without images and files."""

    def setUp(self):
        page = (chart.ROOT / "docs/operating.md").read_text()
        self.commands = [shlex.split(line) for line in re.search(
            r"^## In a cluster$.*?^```sh\n(.*?)^```$", page, re.M | re.S)[1].splitlines()]
        values, self.renders = {}, []
        for command in self.commands:
            if command[0] == "helm" and {"install", "upgrade"} & set(command):
                for setting in [after for flag, after in zip(command, command[1:]) if flag == "--set"]:
                    path, value = setting.split("=")
                    *folders, key = path.split(".")
                    functools.reduce(lambda node, folder: node.setdefault(folder, {}), folders, values)[key] = value
                self.renders.append(chart.render(values, name="llama", namespace="models"))

    def words_after(self, program, *words):
        return [command[-1] for command in self.commands if command[0] == program and set(words) <= set(command)]

    def test_builds_and_pushes_what_it_installs(self):
        built = {command[command.index("-t") + 1] for command in self.commands if command[:2] == ["docker", "build"]}
        self.assertEqual(len(self.renders), 2)
        for render in self.renders:
            images = {container["image"] for _, container in chart.containers(render)}
            self.assertEqual(images, built)
        self.assertEqual(set(self.words_after("docker", "push")), built)

    def test_gives_each_model_its_own_folder_of_a_volume_that_a_cluster_provides(self):
        text = (chart.ROOT / self.words_after("kubectl", "create", "-f")[0]).read_text()
        claim, pod = yaml.safe_load_all(text)
        self.assertNotIn("storageClassName", claim["spec"])  # "" would ask for a volume that an administrator made
        self.assertEqual(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"])
        filled = [place.removeprefix(pod["metadata"]["name"] + ":") for place in self.words_after("kubectl", "cp")]
        models = []
        for deployment in chart.find(self.renders[-1], "Deployment"):
            spec = deployment["spec"]["template"]["spec"]
            for argument in spec["containers"][0]["args"]:
                if argument.startswith("--model="):
                    models.append(argument.removeprefix("--model="))
                    claims = [v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"] if v["name"] == "model"]
                    self.assertEqual(claims, [claim["metadata"]["name"]])
        self.assertEqual(sorted(models), sorted(filled))
        self.assertEqual(len(set(models)), 2)
        for kubernetes in chart.KUBERNETES:
            for document in [claim, pod]:
                chart.validate(document, kubernetes)


class Dashboard(unittest.TestCase):
    def test_is_what_its_script_prints(self):
        script = chart.CHART.parent / "make_dashboard.py"
        printed = subprocess.run([script], capture_output=True, text=True, check=True).stdout
        self.assertEqual(printed, (chart.CHART / "files/dashboard.json").read_text())


if __name__ == "__main__":
    unittest.main()
