# SPDX-License-Identifier: Apache-2.0
"""The programs with the arguments that the chart renders, on loopback addresses in place of pods. If a test fails, an
installation does not start, serves nothing, or shows nothing to Prometheus.

    tests/deploy/run.sh build/release services_test
"""
import copy
import json
import os
import pathlib
import queue
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request
from concurrent import futures

import grpc
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

import chart

BIN = pathlib.Path(os.environ["FORETOKEN_BUILD"]) / "bin"
DEMO = chart.ROOT / "deploy/demo"
COMPOSE = chart.ROOT / "deploy/compose"
MINUTE = 60


def wait_for(condition, what, pause=0.05):
    deadline = time.monotonic() + MINUTE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"a minute was not enough for: {what}")
        time.sleep(pause)


class Pods:
    """Runs each Deployment of a render as one process with an address of its own. Names of Services become addresses,
    and the folders of volumes become folders of this machine; nothing else of the arguments changes."""

    verifier, domain = "demo-verifier", ".llm.svc"

    def __init__(self, documents, scratch, folders=None):
        self.documents, self.scratch, self.processes = documents, pathlib.Path(scratch), []
        block = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"  # other tests run at the same time
        names = [name for name, _ in chart.containers(documents)]
        self.addresses = {name: f"{block}.{i + 1}" for i, name in enumerate(names)}
        self.folders = folders or {}

    def start(self):
        for name, container in chart.containers(self.documents):
            program = [BIN / f"foretoken_{container['name']}"] + self.local(container["args"], name)
            variables = {v["name"]: v["value"] for v in container.get("env", []) if "value" in v}
            with open(self.scratch / f"{name}.log", "wb") as log:
                self.processes.append(subprocess.Popen(program, stdout=log, stderr=log, env={**os.environ, **variables}))
        for name in self.addresses:
            wait_for(lambda name=name: self.is_serving(name), f"{name} serves")
        if self.verifier in self.addresses:
            proposers = len(self.addresses) - 1
            wait_for(lambda: self.num_connected() >= proposers, "the verifier reaches every proposer")

    def local(self, arguments, name):
        def change(argument):
            argument = argument.replace("=0.0.0.0:", f"={self.addresses[name]}:")
            for other, address in self.addresses.items():
                argument = argument.replace(f"dns:///{other}{self.domain}:", f"static:{address}:")
                argument = argument.replace(f"--target={other}{self.domain}:", f"--target={address}:")
            for place, folder in {**self.folders, **self.folders.get(name, {})}.items():
                if isinstance(folder, (str, pathlib.Path)):
                    argument = re.sub(rf"={place}(/|$)", rf"={folder}\1", argument)
            return argument

        return [change(argument) for argument in arguments]

    def is_serving(self, name):
        if any(process.poll() is not None for process in self.processes):
            raise AssertionError("a process has ended:\n" + "\n".join(self.log(n) for n in self.addresses))
        try:
            with grpc.insecure_channel(f"{self.addresses[name]}:50061") as channel:
                status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=1).status
            return status == health_pb2.HealthCheckResponse.SERVING
        except grpc.RpcError:
            return False

    def num_connected(self):
        page = self.metrics(self.verifier)
        return sum(float(n) for n in re.findall(r"^foretoken_proposer_replicas_connected\{.*\} (\S+)", page, re.M))

    def metrics(self, name):
        with urllib.request.urlopen(f"http://{self.addresses[name]}:9100/metrics", timeout=10) as page:
            return page.read().decode()

    def check(self):
        """The container of `helm test`."""
        container = chart.find(self.documents, "Pod")[0]["spec"]["containers"][0]
        return self.run(container["command"] + container["args"])

    def run(self, command):
        """Runs a command with the client in the verifier's pod."""
        program, *arguments = self.local(command, self.verifier)
        return subprocess.run([BIN / program, *arguments], capture_output=True, text=True, check=False)

    def log(self, name):
        return (self.scratch / f"{name}.log").read_text()

    def end(self):
        """Returns the exit statuses."""
        for process in self.processes:
            process.terminate()
        return [process.wait(MINUTE) for process in self.processes]

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()


def make_certificates(folder, authority, names):
    """tls.crt, tls.key and ca.crt, as a secret of cert-manager has them."""
    def openssl(*arguments, text=None):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, input=text, text=True)

    folder.mkdir()
    if not authority.exists():
        authority.mkdir()
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=authority",
                "-keyout", authority / "ca.key", "-out", authority / "ca.crt", "-days", "1")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=pod", "-keyout",
            folder / "tls.key", "-out", folder / "request")
    (folder / "names").write_text("subjectAltName=" + ",".join(names))
    openssl("x509", "-req", "-in", folder / "request", "-CA", authority / "ca.crt", "-CAkey", authority / "ca.key",
            "-CAcreateserial", "-days", "1", "-extfile", folder / "names", "-out", folder / "tls.crt")
    (folder / "ca.crt").write_bytes((authority / "ca.crt").read_bytes())


def unknown_labels(queries, pages, from_target):
    """What queries ask for and no sample has, but for the labels that Prometheus adds."""
    samples, unknown = re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", pages, re.M), []
    for query in queries:
        grouped = {label for labels in re.findall(r"\bby \(([^)]*)\)", query) for label in re.split(", *", labels)}
        for name, matchers in re.findall(r"\b(foretoken_[a-z_]+)\{([^}]*)\}", query):
            asked = [(label, None) for label in grouped]
            asked += [(label, choice) for label, kind, value in re.findall(r'(\w+)(=~?)"([^"]*)"', matchers)
                      for choice in (value.split("|") if kind == "=~" else [value])]
            shown = [dict(re.findall(r'(\w+)="([^"]*)"', labels)) for sample, labels in samples if sample == name]
            unknown += [f"{name}: {label}={choice}" for label, choice in asked if label not in from_target
                        and not any(label in labels and choice in (None, labels[label]) for labels in shown)]
    return unknown


class Services(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch = pathlib.Path(folder.name)

    def start(self, values, folders=None):
        pods = Pods(chart.render(values), self.scratch, folders)
        self.addCleanup(pods.kill)
        return pods

    def expect_to_serve(self, pods, values, num_proposers):
        command = re.search(r" -- (foretoken info.*)", chart.notes(values))[1].split()
        if not any(argument.startswith("--target=") for argument in command):  # then it asks the pod's own address
            command.append(f"--target={pods.verifier}{pods.domain}:50051")
        asked = pods.run(command)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.assertIn("proposer", asked.stdout)
        checked = pods.check()
        self.assertEqual(checked.returncode, 0, checked.stderr)
        self.assertEqual(len(re.findall(r"^proposer \w+: 1 connected$", checked.stdout, re.M)), num_proposers)
        self.assertIn("the same with speculation and without", checked.stdout)
        self.assertIn("ends a request that its client cancels", checked.stdout)

    def test_the_minimal_render_generates_text_and_drains(self):
        pods = self.start(chart.values_of("minimal"), {"/model": DEMO / "target"})
        pods.start()
        self.expect_to_serve(pods, chart.values_of("minimal"), 1)
        self.assertEqual(pods.end(), [0, 0])

    @unittest.skipUnless(shutil.which("openssl"), "./dev setup --tools installs openssl")
    def test_every_pod_without_a_gpu_starts_with_its_arguments(self):
        started = set()
        for case in chart.cases():
            documents = [d for d in chart.render(chart.values_of(case)) if d["kind"] != "Deployment"
                         or "--device=cuda" not in d["spec"]["template"]["spec"]["containers"][0]["args"]]
            scratch = self.scratch / case
            scratch.mkdir()
            pods = Pods(documents, scratch)
            self.addCleanup(pods.kill)
            self.give_folders(pods)
            with self.subTest(case=case):
                pods.start()
            started |= {f"{case} {name.removeprefix('demo-')}" for name in pods.addresses}
            pods.kill()
        self.assertEqual(started, {
            "cpu verifier", "cpu proposer-ngram", "cpu proposer-suffix", "cpu proposer-draft", "everything proposer-ngram",
            "everything proposer-suffix", "gpu proposer-suffix", "gpu proposer-draft-cpu", "minimal verifier",
            "minimal proposer-suffix", "secrets verifier", "secrets proposer-suffix", "texts verifier",
            "texts proposer-suffix", "texts proposer-draft"})

    def give_folders(self, pods):
        """Makes what the volumes of the pods have: the demo's models, certificates and tokens."""
        authority = pods.scratch / "authority"
        for name, container in chart.containers(pods.documents):
            folder = pods.scratch / name
            make_certificates(folder, authority, [f"DNS:{name}.llm.svc", f"IP:{pods.addresses[name]}"])
            model = next((a for a in container["args"] if a.startswith("--model=/model")), "--model=/model")
            place = folder / "volume" / model.removeprefix("--model=/model").strip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(DEMO / ("target" if container["name"] == "verifier" else "draft"))
            (folder / "snapshot").mkdir()
            pods.folders[name] = {"/model": folder / "volume", "/tls": folder, "/snapshot": folder / "snapshot",
                                  "/projections": folder / "volume"}
        pods.folders["/tokens"] = pods.scratch
        for key in ["tokens", "all"]:
            (pods.scratch / key).write_text("a-token-of-one-client\nanother-clients-token\n")
        for key in ["check", "1"]:
            (pods.scratch / key).write_text("a-token-of-one-client\n")

    def test_all_methods_serve_and_show_every_metric_that_boards_alerts_and_scalers_ask_for(self):
        values = {
            "model": {"claim": "weights", "path": "target"},
            "projectionClaim": "projections",
            "proposers": {"ngram": {"method": "ngram", "autoscaling": {"kind": "keda"}},
                          "suffix": {"method": "suffix", "snapshotClaim": "memory"},
                          "draft": {"method": "draft", "model": {"claim": "weights", "path": "draft"},
                                    "autoscaling": {"kind": "keda", "lateTreeShare": 0.3}},
                          "eagle": {"method": "eagle3", "model": {"claim": "weights", "path": "eagle3"}}},
            "verifier": {"flags": {"kv_cache_mb": 64}, "autoscaling": {"kind": "keda"}},
            "monitoring": {"podMonitors": True, "alerts": True, "dashboard": True},
            "tracing": {"endpoint": "http://127.0.0.1:9", "details": True},
        }
        for folder in ["memory", "projections"]:
            (self.scratch / folder).mkdir()
        pods = self.start(values, {"/model": DEMO, "/target": DEMO, "/snapshot": self.scratch / "memory",
                                   "/projections": self.scratch / "projections"})
        pods.start()
        self.expect_to_serve(pods, values, 4)
        self.assertEqual(len(list((self.scratch / "projections").glob("*.projection"))), 1)
        pages = "".join(pods.metrics(name) for name in pods.addresses)
        shown = set(re.findall(r"^# TYPE (\S+)", pages, re.M))
        queries = [target["expr"] for panel in json.loads(
            chart.board(pods.documents)[1])["panels"]
            for target in panel.get("targets", [])]
        queries += [rule["expr"] for group in chart.find(pods.documents, "PrometheusRule")[0]["spec"]["groups"]
                    for rule in group["rules"]]
        queries += [trigger["metadata"]["query"] for scaled in chart.find(pods.documents, "ScaledObject")
                    for trigger in scaled["spec"]["triggers"]]
        asked = {re.sub("_(bucket|sum|count)$", "", name) for query in queries
                 for name in re.findall(r"\b(foretoken_[a-z_]+)\{", query)} - {"foretoken_proposer"}
        self.assertGreater(len(asked), 25)
        self.assertEqual(asked - shown, set())
        from_target = {re.sub(r"\W", "_", label) for label in chart.find(
            pods.documents, "PodMonitor")[0]["spec"]["podTargetLabels"]} | {"namespace", "pod"}
        self.assertEqual(unknown_labels(queries, pages, from_target), [])
        for wrong in ["sum by (colour) (foretoken_steps_total{})", 'foretoken_rpc_calls_total{rpc=~"Generate|Guess"}']:
            self.assertEqual(len(unknown_labels([wrong], pages, from_target)), 1)
        readme = (chart.CHART / "README.md").read_text()
        picked = set(re.findall(r"reads (vllm:\w+)", readme))
        self.assertEqual(len(picked), 2)
        self.assertEqual(picked - shown, set(), "an endpoint picker finds no such metric")
        self.assertEqual(pods.end(), [0] * 5)
        self.assertTrue((self.scratch / "memory/outputs").exists())

    @unittest.skipUnless(shutil.which("openssl"), "./dev setup --tools installs openssl")
    def test_mutual_tls_and_tokens_let_the_release_in_and_strangers_out(self):
        pods = self.start(chart.values_of("secrets"))
        self.give_folders(pods)
        pods.start()
        self.expect_to_serve(pods, chart.values_of("secrets"), 1)

        def call(certificate=None, token=None):
            command = ["foretoken", "check", f"--target={pods.verifier}{pods.domain}:50051", "--connect_timeout=2s",
                       f"--tls_ca={self.scratch}/authority/ca.crt"]
            if certificate:
                folder = self.scratch / certificate
                make_certificates(folder, self.scratch / "authority", [f"DNS:{certificate}"])
                command += [f"--tls_certificate={folder}/tls.crt", f"--tls_key={folder}/tls.key"]
            return pods.run(command + ([f"--token_file={self.scratch}/{token}"] if token else []))

        allowed = call("gateway.llm.svc", "1")
        self.assertEqual(allowed.returncode, 0, allowed.stderr)
        for refused, code in [(call(), "UNAVAILABLE"), (call("other.llm.svc", "1"), "UNAVAILABLE"),
                              (call("client.llm.svc"), "UNAUTHENTICATED")]:
            self.assertEqual(refused.returncode, 1)
            self.assertIn(code, refused.stderr)


def metrics_page(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        return page.read().decode()


def some_metrics_address():
    return f"127.{random.randrange(1, 255)}.{random.randrange(256)}.1:9100"  # other tests run at the same time


class Drain(unittest.TestCase):
    """What --drain_grace of a proposer is for, as docs/limits.md says."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log, self.metrics = pathlib.Path(folder.name) / "log", some_metrics_address()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([
                BIN / "foretoken_proposer", "--method=ngram", "--listen=127.0.0.1:0", f"--metrics_listen={self.metrics}",
                "--drain_grace=2s"], stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)

    @staticmethod
    def end_of(call):
        """The code with which a call ends, and when."""
        try:
            for _ in call:
                pass
            return grpc.StatusCode.OK, time.monotonic()
        except grpc.RpcError as error:
            return error.code(), time.monotonic()

    def test_a_proposers_streams_end_at_once_and_a_watch_at_the_end_of_the_grace(self):
        address = re.match(r"listening on (\S+)", self.process.stdout.readline())[1]
        requests = queue.SimpleQueue()  # there is none before the end
        self.addCleanup(requests.put, None)
        with grpc.insecure_channel(address) as channel, futures.ThreadPoolExecutor() as threads:
            propose = channel.stream_stream("/foretoken.v1.ProposalService/Propose")
            stream = propose(iter(requests.get, None), timeout=MINUTE)
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=MINUTE)
            next(watch)
            wait_for(lambda: 'foretoken_proposer_streams{proposer="ngram"} 1' in metrics_page(self.metrics), "a stream")
            ends = [threads.submit(self.end_of, call) for call in (stream, watch)]
            begin = time.monotonic()
            self.process.terminate()
            (code, end), (_, watch_end) = [end.result() for end in ends]
            requests.put(None)
        self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
        self.assertLess(end - begin, 1.5)
        self.assertGreater(watch_end - begin, 1.9)
        self.assertEqual(self.process.wait(MINUTE), 0)
        self.assertIn("streams end; calls that do not end by themselves get 2s", self.log.read_text())


class Loading(unittest.TestCase):
    """The families by which alerts know that a pod serves."""

    def families(self):
        documents = chart.render({"model": {"claim": "weights"}, "monitoring": {"scrapedOtherwise": True, "alerts": True}})
        rules = chart.find(documents, "PrometheusRule")[0]["spec"]["groups"][0]["rules"]
        return {rule["alert"]: re.search(r"absent\((\w+)\{", rule["expr"])[1] for rule in rules if "Absent" in rule["alert"]}

    def is_missing_before_the_end(self, family, command):
        """Whether a page before the first one with the family lacks it. Fails if no page ever has it."""
        address = some_metrics_address()
        process = subprocess.Popen([*command, "--listen=127.0.0.1:0", f"--metrics_listen={address}"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        pages = []

        def has_family():
            self.assertIsNone(process.poll())
            try:
                pages.append(metrics_page(address))
            except OSError:  # there is none yet
                return False
            return f"# TYPE {family} " in pages[-1]

        try:
            wait_for(has_family, family, pause=0.002)
        finally:
            process.kill()
            process.wait()
        return len(pages) > 1

    def test_they_are_missing_while_a_model_loads(self):
        families = self.families()
        for alert, command in [
                ("ForetokenVerifierAbsent", [BIN / "foretoken_verifier", f"--model={DEMO}/target", "--kv_cache_mb=64"]),
                ("ForetokenProposerAbsent", [BIN / "foretoken_proposer", "--method=draft", f"--model={DEMO}/target"])]:
            # The demo's model loads so fast that a page may come too late.
            self.assertTrue(any(self.is_missing_before_the_end(families[alert], command) for _ in range(20)), alert)


class Balancer:
    """Like a Service: an address whose connections go to the next verifier each."""

    def __init__(self, addresses):
        self.addresses, self.num_connections = addresses, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.sockets = [self.listener]
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:  # closed
                return
            server = socket.create_connection((self.addresses[self.num_connections % len(self.addresses)], 50051))
            self.num_connections += 1
            self.sockets += [client, server]
            for pair in (client, server), (server, client):
                threading.Thread(target=self.copy, args=pair, daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        for each in self.sockets:
            each.close()

    @staticmethod
    def copy(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # the other direction has ended both
            pass


class SeveralVerifiers(unittest.TestCase):
    """How clients spread over the pods of one Service, as docs/operating.md says."""

    def start(self, age):
        """Two verifiers with the chart's arguments."""
        documents = chart.render({"model": {"claim": "weights"}, "proposers": {"suffix": None},
                                  "verifier": {"flags": {"max_connection_age": age, "kv_cache_mb": 64}}})
        second = copy.deepcopy(chart.find(documents, "Deployment")[0])
        second["metadata"]["name"] = "demo-verifier-2"
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        pods = Pods([*documents, second], folder.name, {"/model": DEMO / "target"})
        pods.verifier = None  # there is no proposer to reach
        self.addCleanup(pods.kill)
        pods.start()
        return pods

    def calls(self, pods, rpc):
        """The calls of each verifier, by code."""
        lines = [re.findall(rf'^foretoken_rpc_calls_total\{{(.*rpc="{rpc}".*)\}} (\d+)$', pods.metrics(name), re.M)
                 for name in pods.addresses]
        return [{re.search('code="(\w+)"', labels)[1]: int(count) for labels, count in of_pod if count != "0"}
                for of_pod in lines]

    def bench(self, pods):
        """Calls of one client through one address, that of a Service."""
        balancer = Balancer(list(pods.addresses.values()))
        self.addCleanup(balancer.close)
        done = subprocess.run([
            BIN / "foretoken", "bench", f"--target={balancer.address}", f"--prompt_file={DEMO}/prompts.jsonl", "--clients=4",
            "--requests=192", "--max_tokens=96", "--temperature=0.8"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return balancer.num_connections

    def test_connections_of_limited_age_spread_a_clients_calls_and_cut_none(self):
        pods = self.start("250ms")  # far less than the calls take together
        self.assertGreater(self.bench(pods), 2)
        first, second = self.calls(pods, "Generate")
        self.assertEqual([set(first), set(second)], [{"OK"}, {"OK"}])
        self.assertGreaterEqual(first["OK"] + second["OK"], 192)

    def test_one_connection_sends_all_calls_to_one_verifier(self):
        pods = self.start(None)
        self.bench(pods)
        self.assertEqual(len([calls for calls in self.calls(pods, "Generate") if calls]), 1)

    def test_a_client_takes_the_addresses_of_a_headless_service_in_turn(self):
        pods = self.start("5m")
        page = (chart.ROOT / "docs/operating.md").read_text()
        policy = json.loads("{" + re.search(r'`("loadBalancingConfig": .*?)`', page)[1] + "}")
        target = "ipv4:" + ",".join(f"{address}:50051" for address in pods.addresses.values())  # as from the name
        with grpc.insecure_channel(target, [("grpc.service_config", json.dumps(policy))]) as channel:
            ask = channel.unary_unary("/foretoken.v1.GenerationService/GetModelInfo")
            def shares(num_calls):
                for _ in range(num_calls):
                    ask(b"", timeout=10, wait_for_ready=True)
                return [calls.get("OK", 0) for calls in self.calls(pods, "GetModelInfo")]

            wait_for(lambda: min(shares(1)) > 0, "both connections")
            before, after = shares(0), shares(40)
        self.assertEqual([b - a for a, b in zip(before, after)], [20, 20])


class ComposePods(Pods):
    """The services of compose.yaml, with health checks on a port of their own in addition."""

    verifier, domain = "verifier", ""

    def __init__(self, scratch, folders):
        services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
        super().__init__([{"kind": "Deployment", "metadata": {"name": name}, "spec": {"template": {"spec": {"containers": [{
            "name": service["image"].removeprefix("foretoken-").split(":")[0],
            "args": [*service["command"], "--health_listen=0.0.0.0:50061"]}]}}}}
            for name, service in services.items() if service["image"].startswith("foretoken-")], scratch, folders)


class Compose(unittest.TestCase):
    def test_its_services_generate_text_together(self):
        with tempfile.TemporaryDirectory() as scratch:
            pods = ComposePods(scratch, {"draft": {"/model": DEMO / "draft"}, "verifier": {"/model": DEMO / "target"}})
            self.addCleanup(pods.kill)
            pods.start()
            self.assertEqual(len(pods.processes), 4)
            checked = subprocess.run([BIN / "foretoken", "check", f"--target={pods.addresses['verifier']}:50051"],
                                     capture_output=True, text=True, check=False)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            self.assertEqual(pods.num_connected(), 3)

    def expect_pinned_packages(self):
        """Each package of the gateway has its sums, and SMG is the release that our tests call."""
        self.assertRegex((COMPOSE / "gateway.Dockerfile").read_text(),
                         r"(?m)^RUN pip install .*--require-hashes -r /gateway.txt$")
        packages = re.findall(r"^(\S+?)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})*)$",
                              (COMPOSE / "gateway.txt").read_text(), re.M)
        self.assertGreaterEqual(len(packages), 8)
        self.assertEqual([name for name, _, sums in packages if not sums], [])
        tested = (chart.ROOT / "tests/integration/gateway/requirements.txt").read_text()
        for name, version, _ in packages:
            if name.startswith("smg"):
                self.assertIn(f"{name}=={version}\n", tested)

    def test_names_only_what_is_there(self):
        services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
        for name, service in services.items():
            for volume in service.get("volumes", []):
                source = re.sub(r"^\$\{\w+:-(.*?)\}", r"\1", volume).split(":")[0]
                self.assertTrue((COMPOSE / source).exists(), f"{name}: {volume}")
            self.assertRegex(service["image"], r":v?\d+\.\d+\.\d+$", f"{name} is not pinned")
        bases = re.findall(r"^FROM (\S+)", (COMPOSE / "gateway.Dockerfile").read_text(), re.M)
        self.assertEqual(len(bases), 1)
        self.assertRegex(bases[0], r":\d+\.\d+\.\d+-slim-\w+$")
        self.expect_pinned_packages()
        jobs = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text())["scrape_configs"]
        scraped = {target.split(":")[0] for job in jobs for static in job["static_configs"] for target in static["targets"]}
        self.assertEqual(scraped, {name for name, s in services.items() if s["image"].startswith("foretoken-")})


if __name__ == "__main__":
    unittest.main()
