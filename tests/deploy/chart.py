# SPDX-License-Identifier: Apache-2.0
"""Renders the chart with Helm, and checks objects as an API server would."""
import functools
import json
import pathlib

import helm_python
import jsonschema
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/foretoken"
CASES = pathlib.Path(__file__).resolve().parent / "values"
CRDS = ROOT.parent / "shared/crds"
KUBERNETES = ("1.35", "1.36", "1.37")  # the newest minor versions

# PyYAML refuses the plain scalar "=", which a definition has as the name of an operator.
yaml.SafeLoader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: node.value)


def values_of(case):
    return yaml.safe_load((CASES / f"{case}.yaml").read_text())


def cases():
    return sorted(path.stem for path in CASES.glob("*.yaml"))


def render_text(values, name="demo", namespace="llm", path=CHART):
    """The manifests in one text, without NOTES.txt. Raises helm_python.HelmError."""
    files = helm_python.Chart.load(str(path)).render(values, name=name, namespace=namespace)
    texts = [f"---\n# Source: {path}\n{text.strip()}\n" for path, text in sorted(files.items())
             if text.strip() and not path.endswith("NOTES.txt")]
    return "".join(texts)


def render(values, **release):
    return [document for document in yaml.safe_load_all(render_text(values, **release)) if document]


def notes(values, **release):
    files = helm_python.Chart.load(str(CHART)).render(values, name=release.get("name", "demo"),
                                                      namespace=release.get("namespace", "llm"))
    return next(text for path, text in files.items() if path.endswith("NOTES.txt"))


def find(documents, kind, name=None):
    return [d for d in documents if d["kind"] == kind and name in (None, d["metadata"]["name"])]


def containers(documents):
    """Pairs of a workload's name and its main container."""
    return [(d["metadata"]["name"], d["spec"]["template"]["spec"]["containers"][0])
            for d in find(documents, "Deployment")]


def board(documents):
    """The name and the text of the dashboard's file."""
    return next(file for d in find(documents, "ConfigMap") if "grafana_dashboard" in d["metadata"]["labels"]
                for file in d["data"].items())


# A clone without the definitions checks the fields that the chart sets.
OWN_SCHEMAS = {
    ("monitoring.coreos.com/v1", "PodMonitor"): {"selector", "podTargetLabels", "podMetricsEndpoints"},
    ("monitoring.coreos.com/v1", "PrometheusRule"): {"groups"},
    ("cert-manager.io/v1", "Certificate"): {"secretName", "secretTemplate", "issuerRef", "usages", "privateKey", "dnsNames",
                                          "ipAddresses"},
    ("keda.sh/v1alpha1", "ScaledObject"): {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval",
                                           "advanced", "triggers"},
    ("inference.networking.k8s.io/v1", "InferencePool"): {"selector", "appProtocol", "targetPorts",
                                                          "endpointPickerRef"},
}


def close(node):
    """Makes a schema refuse unknown fields, as a strict API server does."""
    if isinstance(node, dict):
        if node.get("x-kubernetes-int-or-string"):
            node.pop("type", None)
            node["oneOf"] = [{"type": "string"}, {"type": "integer"}]
        if ("properties" in node and "additionalProperties" not in node
                and not node.get("x-kubernetes-preserve-unknown-fields")):
            node["additionalProperties"] = False
        for value in list(node.values()):
            close(value)
    elif isinstance(node, list):
        for value in node:
            close(value)


@functools.cache
def custom_schemas():
    """By apiVersion and kind."""
    if not CRDS.is_dir():
        return {key: {"properties": {"spec": {"additionalProperties": False, "properties": {f: {} for f in fields}}}}
                for key, fields in OWN_SCHEMAS.items()}
    schemas = {}
    for path in CRDS.glob("*.yaml"):
        for definition in yaml.safe_load_all(path.read_text()):
            spec = (definition or {}).get("spec")
            for version in spec["versions"] if spec else []:
                schema = version["schema"]["openAPIV3Schema"]
                close(schema.get("properties", {}).get("spec", {}))
                schemas[f'{spec["group"]}/{version["name"]}', spec["names"]["kind"]] = schema
    return schemas


def validate(document, kubernetes):
    """Raises an exception that names the field."""
    schema = custom_schemas().get((document["apiVersion"], document["kind"]))
    if schema is not None:
        jsonschema.Draft7Validator(schema).validate(document)
    else:
        kubernetes_validate.validate(document, kubernetes, strict=True)


def value_schema():
    return json.loads((CHART / "values.schema.json").read_text())
