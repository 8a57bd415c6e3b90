#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes which packages are in an image, as SPDX 2.3, and copies their licences.

    deploy/images/make_sbom.py ROOT PROGRAM...

ROOT/usr/share/doc/foretoken/sbom.spdx.json gets one package per library that a program loads, one per package whose
headers or archives are compiled in, one per library that ./dev setup takes from PyPI as sources, and, where ROOT has NCCL, one
per part of CUDA that ./dev setup --cuda takes from PyPI.
ROOT/usr/share/doc/PACKAGE/copyright gets the licence of each. The time of the SBOM is SOURCE_DATE_EPOCH, or else now.
"""
import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
NAMESPACE = "https://foretoken.invalid/spdx"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def loaded_packages(programs):
    libraries = {str(pathlib.Path(library).resolve()).removeprefix("/usr")
                 for program in programs for library in re.findall(r"(/\S+) \(0x", run("ldd", program))}
    # Debian 12 has moved /lib below /usr, and packages say either. dpkg-query fails if it does not know one name.
    found = subprocess.run(["dpkg-query", "-S", *libraries, *("/usr" + library for library in libraries)],
                           capture_output=True, text=True, check=False).stdout
    owners = {path.removeprefix("/usr"): package for package, path in re.findall(r"^([^:\n]+)(?::\S+)?: (\S+)$", found, re.M)}
    if unknown := libraries - owners.keys():
        raise SystemExit(f"make_sbom.py: no package has {', '.join(sorted(unknown))}")
    return set(owners.values())


TESTS_ALONE = {"libbenchmark-dev", "libboost-context-dev", "libgmock-dev", "libgtest-dev"}


def compiled_in_packages():
    """The -dev packages that ./dev setup installs, and the compiler, whose runtime parts are in every program."""
    listed = re.search(r"readonly PACKAGES=\((.*?)\)", (HERE.parents[1] / "dev").read_text(), re.S)[1].split()
    return {name for name in listed if name.endswith("-dev")} - TESTS_ALONE | {"g++"}


def describe(names):
    form = "-f=${Package}\t${Version}\t${Architecture}\t${source:Package}\n"
    for line in sorted(set(run("dpkg-query", "-W", form, *names).splitlines())):
        yield describe_one(*line.split("\t"))


def describe_one(name, version, architecture, source):
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name), "name": name, "versionInfo": version,
        "supplier": "Organization: Debian", "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
        "sourceInfo": f"built from the source package {source}",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{name}@{version}?arch={architecture}"}],
    }


SOURCES = HERE.parents[1] / ".sources"
TOOLKIT = HERE.parents[1] / ".cuda"


def source_packages(programs):
    """Name and version of each library from PyPI. Only the verifier is linked with them."""
    if not any(pathlib.Path(program).name == "foretoken_verifier" for program in programs):
        return {}
    return dict(re.findall(r'"(\S+) (\S+) [0-9a-f]{64}', (HERE.parents[1] / "dev").read_text()))


def toolkit_packages(root):
    """Name and version of each part of CUDA. NCCL is a file of the root, and the others have parts in the programs."""
    if not list(root.rglob("libnccl.so.*")):
        return {}
    return dict(re.findall(r"(nvidia-\S+)==([\d.]+)", (HERE.parents[1] / "dev").read_text()))


def describe_source(name, version):
    return {
        "SPDXID": f"SPDXRef-pypi-{name.replace('_', '-')}", "name": name, "versionInfo": version,
        "supplier": "NOASSERTION", "downloadLocation": f"https://pypi.org/project/{name}/{version}/",
        "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:pypi/{name}@{version}"}],
    }


def name_document(image, version, has_cuda, packages):
    """The name and the namespace of an image's SBOM. Another device or another package makes another namespace."""
    name = f"{image}-{version}-{'cuda' if has_cuda else 'cpu'}"
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    return {"name": name, "documentNamespace": f"{NAMESPACE}/{name}-{digest}"}


def creation():
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"created": created, "creators": ["Tool: make_sbom.py"]}


def main(root, programs):
    version = run(programs[0], "--version").split()[1]
    product = {
        "SPDXID": "SPDXRef-foretoken", "name": "foretoken", "versionInfo": version, "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION",
    }
    loaded, compiled_in = loaded_packages(programs), compiled_in_packages()
    sources, toolkit = source_packages(programs), toolkit_packages(root)
    packages = [*describe(loaded | compiled_in), *(describe_source(*p) for p in [*sources.items(), *toolkit.items()])]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                  "relatedSpdxElement": "SPDXRef-foretoken"}]
    for package in packages:
        is_file = package["name"] in loaded or package["name"].startswith("nvidia-nccl")
        kind = "DYNAMIC_LINK" if is_file else "STATIC_LINK"
        relations.append({"spdxElementId": "SPDXRef-foretoken", "relationshipType": kind,
                          "relatedSpdxElement": package["SPDXID"]})
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        **name_document(root.name, version, bool(toolkit), packages), "creationInfo": creation(),
        "packages": [product, *packages], "relationships": relations,
    }
    docs = root / "usr/share/doc"
    (docs / "foretoken/sbom.spdx.json").write_text(json.dumps(document, indent=1) + "\n")
    for name in sorted(loaded | compiled_in):
        licence = pathlib.Path("/usr/share/doc", name, "copyright")
        if licence.exists():
            (docs / name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(licence, docs / name / "copyright")
    licences = {name: next((SOURCES / name).rglob("LICENSE")) for name in sources}
    for name in toolkit:
        licences[name] = next(TOOLKIT.glob(f"{name.replace('-', '_')}-*.dist-info/**/License.txt"))
    for name, licence in licences.items():
        (docs / name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(licence, docs / name / "copyright")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
