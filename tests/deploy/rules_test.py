# SPDX-License-Identifier: Apache-2.0
"""What the chart asks Prometheus, read by Prometheus's own promtool. If a test fails, an alert never fires or always
does, or a panel, an alert or a scaler has a query that Prometheus refuses.

    tests/deploy/run.sh build/release rules_test
"""
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

import chart

VALUES = {"model": {"claim": "weights"}, "verifier": {"autoscaling": {"kind": "keda"}},
          "proposerDefaults": {"autoscaling": {"kind": "keda", "lateTreeShare": 0.3}},
          "monitoring": {"podMonitors": True, "alerts": True, "dashboard": True}}


@unittest.skipUnless(shutil.which("promtool"), "./dev setup --tools installs promtool")
class Rules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch = pathlib.Path(folder.name)
        self.documents = chart.render(VALUES)
        self.rules = chart.find(self.documents, "PrometheusRule")[0]["spec"]

    def promtool(self, *arguments):
        return subprocess.run(["promtool", *arguments], cwd=self.scratch, capture_output=True, text=True, check=False)

    def write(self, name, content):
        (self.scratch / name).write_text(yaml.safe_dump(content))

    def test_alerts_are_valid_and_fire_when_they_should(self):
        self.write("rules.yaml", self.rules)
        cases = yaml.safe_load((pathlib.Path(__file__).parent / "alerts.yaml").read_text())
        tested = {row["alertname"] for case in cases["tests"] for row in case["alert_rule_test"] if row["exp_alerts"]}
        quiet = {row["alertname"] for case in cases["tests"] for row in case["alert_rule_test"] if not row["exp_alerts"]}
        alerts = {rule["alert"] for group in self.rules["groups"] for rule in group["rules"]}
        self.assertEqual(tested, alerts, "every alert fires in a case")
        self.assertEqual(quiet, alerts, "every alert is quiet in a case")
        self.write("cases.yaml", cases)
        for command in ["check", "rules", "rules.yaml"], ["test", "rules", "cases.yaml"]:
            result = self.promtool(*command)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_query_is_understood(self):
        board = chart.board(self.documents)[1]
        queries = [t["expr"] for panel in json.loads(board)["panels"] for t in panel.get("targets", [])]
        queries = [query.replace("$__rate_interval", "1m") for query in queries]
        queries += [trigger["metadata"]["query"] for scaled in chart.find(self.documents, "ScaledObject")
                    for trigger in scaled["spec"]["triggers"]]
        self.assertGreater(len(queries), 30)
        self.assertEqual([query for query in queries if re.search("PODS", query)], [])
        self.write("queries.yaml", {"groups": [{"name": "queries", "rules": [
            {"record": f"query_{i}", "expr": query} for i, query in enumerate(queries)]}]})
        result = self.promtool("check", "rules", "queries.yaml")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.write("queries.yaml", {"groups": [{"name": "queries", "rules": [{"record": "bad", "expr": "sum(("}]}]})
        self.assertNotEqual(self.promtool("check", "rules", "queries.yaml").returncode, 0)

    def expect(self, query, series, samples):
        """The query's answer after ten minutes of `series`, which grow as promtool's notation says. The labels of the
        release are added to each of them."""
        query = query.replace("$namespace", "llm").replace("$release", "demo").replace("$__rate_interval", "5m")
        release = 'namespace="llm",app_kubernetes_io_instance="demo",'
        self.write("empty.yaml", {"groups": []})
        self.write("query.yaml", {"rule_files": ["empty.yaml"], "evaluation_interval": "1m", "tests": [{
            "interval": "1m", "input_series": [{"series": name.replace("{", "{" + release), "values": values}
                                               for name, values in series.items()],
            "promql_expr_test": [{"expr": query, "eval_time": "10m", "exp_samples": [
                {"labels": labels, "value": value} for labels, value in samples.items()]}]}]})
        result = self.promtool("test", "rules", "query.yaml")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_autoscalers_ask_for_what_is_wanted(self):
        triggers = chart.find(self.documents, "ScaledObject", "demo-proposer-suffix")[0]["spec"]["triggers"]
        sessions, late = [trigger["metadata"]["query"] for trigger in triggers]
        labels = 'app_kubernetes_io_component="proposer",foretoken_proposer="suffix",proposer="suffix"'
        open_sessions, waiting = "foretoken_proposer_sessions", "foretoken_proposer_waiting_sessions"
        held = {f'{open_sessions}{{{labels},pod="a"}}': "10+0x10", f'{open_sessions}{{{labels},pod="b"}}': "20+0x10"}
        verifier = 'app_kubernetes_io_component="verifier",pod="v",proposer="suffix"'
        self.expect(sessions, {}, {})  # nothing is known, which is not 0
        self.expect(sessions, held, {"{}": 30})
        waits = [(verifier, 2), (verifier.replace('"v"', '"w"'), 1), (verifier.replace("suffix", "draft"), 9)]
        self.expect(sessions, {**held, **{f"{waiting}{{{of}}}": f"{number}+0x10" for of, number in waits}}, {"{}": 33})
        self.expect(late, {}, {"{}": 0})  # nobody asks
        questions, lates = "foretoken_proposer_questions_total", "foretoken_proposer_late_answers_total"
        self.expect(late, {f'{questions}{{{verifier}}}': "0+600x10", f'{lates}{{{verifier}}}': "0+150x10"}, {"{}": 0.25})

    def test_late_trees_add_pods_only_where_that_is_asked_for(self):
        values = {**VALUES, "proposerDefaults": {"autoscaling": {"kind": "keda"}}}
        triggers = chart.find(chart.render(values), "ScaledObject", "demo-proposer-suffix")[0]["spec"]["triggers"]
        self.assertEqual(len(triggers), 1)

    def test_each_group_has_an_alert_of_its_own(self):
        groups = {"a": {"method": "ngram"}, "b": {"method": "ngram"}, "suffix": None,
                  "idle": {"method": "suffix", "replicas": 0},
                  "scaled": {"method": "suffix", "replicas": 0, "autoscaling": {"kind": "keda"}}}
        rules = chart.find(chart.render({**VALUES, "proposerDefaults": {}, "proposers": groups}), "PrometheusRule")[0]["spec"]
        absent = [rule["labels"]["foretoken_proposer"] for rule in rules["groups"][0]["rules"]
                  if rule["alert"] == "ForetokenProposerAbsent"]
        self.assertEqual(absent, ["a", "b", "scaled"])

    def test_panels_are_right_with_several_verifiers(self):
        queries = {panel["title"]: panel["targets"][0]["expr"] for panel in json.loads(
            chart.board(self.documents)[1])["panels"] if "targets" in panel}
        connected, seconds = "foretoken_proposer_replicas_connected", "foretoken_step_seconds_total"
        self.expect(queries["Connected replicas"], {
            f'{connected}{{pod="a",proposer="ngram"}}': "2+0x10", f'{connected}{{pod="b",proposer="ngram"}}': "1+0x10"},
            {'{proposer="ngram"}': 1})
        self.expect(queries["Time of steps by part"], {
            f'{seconds}{{pod="a",part="forward"}}': "0+54x10", f'{seconds}{{pod="b",part="forward"}}': "0+30x10",
            f'{seconds}{{pod="a",part="wait"}}': "0+6x10", f'{seconds}{{pod="b",part="wait"}}': "0+0x10"},
            {'{part="forward"}': 0.7, '{part="wait"}': 0.05})

    def test_the_configuration_of_the_compose_file_is_valid(self):
        result = self.promtool("check", "config", str(chart.ROOT / "deploy/compose/prometheus.yaml"))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_alert_is_explained(self):
        page = (chart.ROOT / "docs/operating.md").read_text()
        for rule in self.rules["groups"][0]["rules"]:
            self.assertTrue(f"| `{rule['alert']}` |" in page, rule["alert"])


if __name__ == "__main__":
    unittest.main()
