#!/usr/bin/env python3
"""Prints what the packaged programs are made of, as SPDX 2.3 in JSON.

    tools/package/sbom.py --tree build/package/fathom-0.2.0-linux-x86_64 --version 0.2.0 --build build/release

The libraries are those of docs/dependencies.md that the programs hold (compiled in) or open (from the system where
they run), each with the version of the Debian package that was there when they were built.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

# Debian package, licence. In the programs themselves; and what they are linked against where they run.
COMPILED_IN = [("nlohmann-json3-dev", "MIT"), ("libspdlog-dev", "MIT"), ("libfmt-dev", "MIT"),
               ("libcli11-dev", "BSD-3-Clause"), ("libboost-dev", "BSL-1.0"), ("libyaml-cpp-dev", "MIT"),
               ("libstdc++-DIGITS-dev", "GPL-3.0-or-later WITH GCC-exception-3.1")]
# In the page, where it was there.
OPTIONAL = [("libjs-katex", "MIT")]
FROM_SYSTEM = [("libssl3", "Apache-2.0"), ("libc6", "LGPL-2.1-or-later"),
               ("libgcc-s1", "GPL-3.0-or-later WITH GCC-exception-3.1")]


def debian_version(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 and done.stdout else None


def compiler_digits(build):
    """12 of GCC 12.2.0, from what CMake found."""
    for path in build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake"):
        match = re.search(r'CMAKE_CXX_COMPILER_VERSION "(\d+)', path.read_text(encoding="utf-8"))
        if match:
            return match[1]
    return ""


def cuda_version(program):
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"^CUDA ([\d.]+)", text, re.M)
    return match and match[1]


def identifier(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def package(name, version, licence, supplier="NOASSERTION", purl=None):
    entry = {"SPDXID": identifier(name), "name": name, "versionInfo": version, "licenseConcluded": licence,
             "licenseDeclared": licence, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
             "copyrightText": "NOASSERTION", "supplier": supplier}
    if purl:
        entry["externalRefs"] = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                  "referenceLocator": purl}]
    return entry


def debian_packages(args):
    """[(package, relationship to the programs)]"""
    digits = compiler_digits(args.build)
    optional = [entry for entry in OPTIONAL if debian_version(entry[0])]
    for names, relation in ((COMPILED_IN + optional, "CONTAINS"), (FROM_SYSTEM, "DYNAMIC_LINK")):
        for name, licence in names:
            name = name.replace("DIGITS", digits)
            version = debian_version(name)
            if version is None:
                sys.exit(f"sbom: {name} is not a package of this system, so its version is not known")
            yield package(name, version, licence, "Organization: Debian", f"pkg:deb/debian/{name}@{version}"), relation


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    args = parser.parse_args()
    programs = sorted((args.tree / "bin").iterdir())
    checksums = [{"fileName": f"./bin/{path.name}", "SPDXID": identifier("file-" + path.name),
                  "checksums": [{"algorithm": kind.upper(), "checksumValue": hashlib.new(kind, path.read_bytes()).hexdigest()}
                                for kind in ("sha1", "sha256")],
                  "licenseConcluded": "Apache-2.0", "copyrightText": "NOASSERTION"} for path in programs]
    own = package("fathom", args.version, "Apache-2.0")
    parts = list(debian_packages(args))
    cuda = cuda_version(args.tree / "bin" / "fathom")
    if cuda:
        parts.append((package("cuda-cudart-static", cuda, "LicenseRef-NVIDIA-CUDA-EULA", "Organization: NVIDIA"), "CONTAINS"))
    stamp = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"fathom-{args.version}",
        "documentNamespace": f"urn:fathom:{args.version}:{checksums[0]['checksums'][1]['checksumValue']}",
        "creationInfo": {"created": datetime.datetime.fromtimestamp(stamp, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: fathom-sbom"]},
        "packages": [own] + [part for part, _ in parts], "files": checksums,
        "hasExtractedLicensingInfos": [{"licenseId": "LicenseRef-NVIDIA-CUDA-EULA", "extractedText":
                                        "NVIDIA CUDA Toolkit End User License Agreement, redistributable part"}] if cuda else [],
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                           "relatedSpdxElement": own["SPDXID"]}] +
                         [{"spdxElementId": own["SPDXID"], "relationshipType": "CONTAINS", "relatedSpdxElement": file["SPDXID"]}
                          for file in checksums] +
                         [{"spdxElementId": own["SPDXID"], "relationshipType": relation,
                           "relatedSpdxElement": part["SPDXID"]} for part, relation in parts]}
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
