# SPDX-License-Identifier: Apache-2.0
"""Groups of proposers and what they take from proposerDefaults. If a test fails, a group gets what it replaced or dropped, or
a verifier asks a group that has no pods.

    tests/deploy/run.sh build/release groups_test
"""
import re
import unittest

import chart

VALUES = {"model": {"claim": "weights"}}
SUMS = {letter: letter * 64 for letter in "abc"}


def render(groups, **defaults):
    return chart.render({**VALUES, "proposers": {"suffix": None, **groups}, "proposerDefaults": defaults})


def pod_of(documents, group):
    return chart.find(documents, "Deployment", f"demo-proposer-{group}")[0]["spec"]["template"]["spec"]


class Defaults(unittest.TestCase):
    def source_of(self, model, default):
        """The volume of the model of a group with these values, without its name."""
        documents = render({"draft": {"method": "draft", "model": model}}, model=default)
        (volume,) = [volume for volume in pod_of(documents, "draft")["volumes"] if volume.pop("name") == "model"]
        return volume

    def test_a_groups_source_of_the_model_replaces_the_defaults(self):
        nfs, host = {"nfs": {"server": "files", "path": "/drafts"}}, {"hostPath": {"path": "/drafts"}}
        claim = {"persistentVolumeClaim": {"claimName": "drafts"}}
        self.assertEqual(self.source_of({"volume": host}, {"volume": nfs}), host)
        self.assertEqual(self.source_of({"claim": "drafts"}, {"volume": nfs}), claim)
        self.assertEqual(self.source_of({"volume": host}, {"claim": "drafts"}), host)
        self.assertEqual(self.source_of({"path": "small"}, {"claim": "drafts"}), claim)

    def test_a_groups_files_replace_the_defaults(self):
        documents = render({"draft": {"method": "draft", "model": {"download": {"files": {"b": SUMS["b"]}}}}},
                           model={"download": {"url": "https://hub.example", "minutes": 7, "files": {"a": SUMS["a"]}}})
        files = chart.find(documents, "ConfigMap", "demo-proposer-draft-download")[0]["data"]["SHA256SUMS"]
        self.assertEqual(files, f"{SUMS['b']}  b\n")
        self.assertEqual(chart.find(documents, "Deployment", "demo-proposer-draft")[0]["spec"]["progressDeadlineSeconds"],
                         (10 + 5 + 7) * 60)

    def test_a_groups_maps_of_its_pods_replace_the_defaults(self):
        documents = render({"a": {"method": "ngram"}, "b": {"method": "ngram", "pod": {"nodeSelector": {}}},
                            "c": {"method": "ngram", "pod": {"nodeSelector": {"zone": "c"}}}},
                           pod={"nodeSelector": {"pool": "small"}, "priorityClassName": "low"})
        self.assertEqual([pod_of(documents, group).get("nodeSelector") for group in "abc"],
                         [{"pool": "small"}, None, {"zone": "c"}])
        self.assertEqual({pod_of(documents, group)["priorityClassName"] for group in "abc"}, {"low"})

    def test_flags_are_taken_one_by_one(self):
        documents = render({"a": {"method": "ngram", "flags": {"ngram_max_length": 4}}},
                           flags={"ngram_max_length": 8, "max_streams": 3})
        self.assertLessEqual({"--ngram_max_length=4", "--max_streams=3"}, set(pod_of(documents, "a")["containers"][0]["args"]))

    def test_a_group_takes_the_flags_that_its_method_has(self):
        documents = render({"a": {"method": "ngram"}, "b": {"method": "suffix"},
                            "c": {"method": "draft", "model": {"claim": "drafts"}},
                            "d": {"method": "eagle", "model": {"claim": "heads"}}},
                           flags={"max_streams": 3, "ngram_max_length": 8, "suffix_max_depth": 9, "threads": 2,
                                  "try_on_target": False})
        taken = {group: [argument for argument in pod_of(documents, group)["containers"][0]["args"]
                         if re.match("--(max_streams|ngram_|suffix_|threads|try_on_target)", argument)] for group in "abcd"}
        self.assertEqual(taken, {
            "a": ["--max_streams=3", "--ngram_max_length=8"], "b": ["--max_streams=3", "--suffix_max_depth=9"],
            "c": ["--max_streams=3", "--threads=2"], "d": ["--max_streams=3", "--threads=2", "--try_on_target=false"]})

    def test_a_method_without_a_model_takes_none(self):
        documents = render({"a": {"method": "ngram"}, "draft": {"method": "draft"}}, model={"claim": "drafts"},
                           device="cuda")
        for group, takes in [("a", False), ("draft", True)]:
            arguments = pod_of(documents, group)["containers"][0]["args"]
            self.assertEqual("--device=cuda" in arguments, takes)
            self.assertEqual("--model=/model" in arguments, takes)


class Idle(unittest.TestCase):
    def test_a_group_without_pods_is_not_asked(self):
        documents = render({"a": {"method": "ngram", "replicas": 0}, "b": {"method": "suffix"}, "c": {
            "method": "draft", "model": {"claim": "drafts"}, "replicas": 0, "autoscaling": {"kind": "hpa"}}})
        asked = [argument for argument in dict(chart.containers(documents))["demo-verifier"]["args"]
                 if argument.startswith("--proposer=")]
        self.assertEqual(asked, ["--proposer=draft=dns:///demo-proposer-c.llm.svc:50052;suffix=dns:///demo-proposer-b.llm.svc:50052"])


if __name__ == "__main__":
    unittest.main()
