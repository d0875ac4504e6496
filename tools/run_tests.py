#!/usr/bin/env python3
"""Runs ctest and ends with what was skipped, what was left out, and the slowest tests.

    tools/run_tests.py --preset release -- -L cpu -j 2
    tools/run_tests.py --preset asan --leave-out '^apps\\.' 'it takes minutes; to run it: make test' -- -L cpu

What follows -- goes to ctest, whose output is shown as it comes and whose exit status is ours. A test run in
which no test was found fails. With --suites the cases of a GoogleTest suite run in one process, some at a time: a
sanitizer's start, and what a suite reads first, take longer than most cases. A test says why it was skipped, and
what would run it, in one line of the form `<reason>; to run it: <what>`: the message of GTEST_SKIP, or behind
`SKIPPED: ` in what a Python test prints (also for a single case of a test that passed). Needs ctest 3.21 or newer.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

NUM_SLOWEST = 10
MAX_NAMES = 3  # of the tests that one --leave-out names, before they are only counted
# ctest cuts what passing tests print down to 1 KiB, and with it the reasons of skipped cases.
OUTPUT_BYTES = 16 << 20
# Groups that ctest's regular expressions can have. With more it says so and leaves nothing out.
MAX_GROUPS = 9
CASES_A_PROCESS = 16
MORE_TIME = 3  # that they have together, in limits of one
FILTER = "--gtest_filter="
NO_WAY = "; it does not say what would run it"
GTEST_SKIPPED = re.compile(r"^.+:\d+: Skipped\n(.*?)(?=\n\n|\n\[|\Z)", re.M | re.S)
PYTHON_SKIPPED = re.compile(r"^SKIPPED: (.*)$", re.M)
UNITTEST_SKIPPED = re.compile(r"^(?:OK|FAILED) \(.*\bskipped=(\d+)", re.M)


def reasons_in(output):
    """The reasons that a test printed, each once and on one line."""
    found = GTEST_SKIPPED.findall(output) + PYTHON_SKIPPED.findall(output)
    lines = [" ".join(reason.split()) or "gives no reason" for reason in found]
    return list(dict.fromkeys(line if "; to run it: " in line else line + NO_WAY for line in lines))


def skipped_in(case):
    """The reasons for which a <testcase> was skipped, whole or in part; none when it ran or failed."""
    output = case.findtext("system-out") or ""
    status = case.get("status")
    if status == "disabled":
        return ["is disabled; to run it: take DISABLED_ out of its name"]
    if status == "notrun":
        # Any other message, as of a program that is not there, is a failure, which ctest itself reports.
        if not case.find("skipped").get("message", "").startswith("SKIP_"):
            return []
        return reasons_in(output) or ["gives no reason"]
    if status != "run":
        return []
    silent = [f"{count} cases give no reason" for count in UNITTEST_SKIPPED.findall(output)]
    return reasons_in(output) or silent


def titled(title, lines):
    return [title] + [f"  {line}" for line in lines] if lines else []


def report(cases, left_out):
    """Lines; cases: the <testcase> elements; left_out: lines of what was not to be run."""
    skipped = [f"{case.get('name')}: {reason}" for case in cases for reason in skipped_in(case)]
    slowest = sorted(cases, key=lambda case: -float(case.get("time")))[:NUM_SLOWEST]
    times = [f"{float(case.get('time')):7.1f} s  {case.get('name')}" for case in slowest]
    return (titled(f"{len(skipped)} skipped:", skipped) + titled("Left out of this run:", left_out)
            + titled(f"Slowest of {len(cases)} tests:", times))


def chosen(ctest_args):
    """The tests that these arguments choose, as ctest describes them, without running any."""
    done = subprocess.run(["ctest", *ctest_args, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout[done.stdout.index("{"):])["tests"]


def suite_of(test):
    """What the cases of a suite have in common; None for a test that is no case of GoogleTest."""
    filters = [word for word in test["command"] if word.startswith(FILTER)]
    if not filters:
        return None
    rest = [word for word in test["command"] if word not in filters]
    return json.dumps([filters[0].partition(".")[0], rest, test["properties"]])


def in_suites(tests):
    """The tests, of which cases of one suite became one, CASES_A_PROCESS at most."""
    together, groups = [], {}
    for test in tests:
        suite = suite_of(test)
        group = groups.get(suite) if suite else None
        if group is None or len(group) == CASES_A_PROCESS:
            group = groups[suite] = []
            together.append(group)
        group.append(test)
    return [joined(group) for group in together]


def joined(group):
    """One test that runs them all. A case that is skipped does not make it a skipped one; the report names it."""
    first = group[0]
    if len(group) == 1:
        return first
    cases = ":".join(word.removeprefix(FILTER) for test in group for word in test["command"] if word.startswith(FILTER))
    command = [FILTER + cases if word.startswith(FILTER) else word for word in first["command"]]
    properties = [{**item, "value": item["value"] * MORE_TIME} if item["name"] == "TIMEOUT" else item
                  for item in first["properties"] if item["name"] != "SKIP_REGULAR_EXPRESSION"]
    return {"name": f"{first['name']} and {len(group) - 1} more", "command": command, "properties": properties}


def bracketed(word):
    return f"[==[{word}]==]"


def write_tests(tests, folder):
    """A CTestTestfile.cmake of them."""
    lines = []
    for test in tests:
        name = bracketed(test["name"])
        lines.append(f"add_test({name} {' '.join(map(bracketed, test['command']))})")
        for item in test["properties"]:
            values = item["value"] if isinstance(item["value"], list) else [item["value"]]
            value = ";".join("TRUE" if value is True else str(value) for value in values)
            lines.append(f"set_tests_properties({name} PROPERTIES {item['name']} {bracketed(value)})")
    folder.mkdir()
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n", encoding="utf-8")


def left_out_lines(names, leave_out, only):
    """What each --leave-out and --only keeps from running, and why."""
    lines = []
    for pattern, reason in leave_out:
        hits = [name for name in names if re.search(pattern, name)]
        if len(hits) <= MAX_NAMES:
            lines += [f"{name}: {reason}" for name in hits]
        else:
            lines.append(f"{len(hits)} tests {pattern}: {reason}")
    for pattern, reason in only:
        lines.append(f"all but {pattern}: {reason}")
    return lines


def selection(leave_out, only):
    """The ctest arguments for the patterns."""
    args = []
    if leave_out:
        joined = "|".join(pattern for pattern, _ in leave_out)
        if joined.count("(") > MAX_GROUPS:
            sys.exit(f"run_tests: --leave-out has {joined.count('(')} groups together, ctest takes {MAX_GROUPS}")
        args += ["-E", joined]
    for pattern, _ in only:
        args += ["-R", pattern]
    return args


def run_ctest(ctest_args, junit, scratch):
    """`scratch` is where the tests' temporary files go: what a killed program or browser leaves goes with it."""
    scratch.mkdir()
    try:
        return subprocess.call(["ctest", *ctest_args, "--no-tests=error", "--output-junit", str(junit),
                                "--test-output-size-passed", str(OUTPUT_BYTES)],
                               env={**os.environ, "TMPDIR": str(scratch)})
    except KeyboardInterrupt:
        return 130


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", help="of ctest")
    parser.add_argument("--leave-out", nargs=2, action="append", default=[], metavar=("REGEX", "WHY"))
    parser.add_argument("--only", nargs=2, action="append", default=[], metavar=("REGEX", "WHY NOT THE OTHERS"))
    parser.add_argument("--suites", action="store_true", help="cases of a suite in one process")
    parser.add_argument("--report", type=pathlib.Path, help="a file that gets the closing report too")
    parser.add_argument("ctest_args", nargs="*", metavar="CTEST ARGUMENT")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if len(args.only) > 1:
        sys.exit("run_tests: --only is given twice, may be given once")
    ctest_args = (["--preset", args.preset] if args.preset else []) + args.ctest_args
    if args.report:
        args.report.unlink(missing_ok=True)  # a run that is cut short leaves no report of another one
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = pathlib.Path(folder)
        junit = folder / "junit.xml"
        to_run = ctest_args + selection(args.leave_out, args.only)
        if args.suites:
            write_tests(in_suites(chosen(to_run)), folder / "suites")
            # A group is named by its first case, so what chose that one chooses the group again.
            to_run = [*args.ctest_args, "--test-dir", str(folder / "suites"), "--output-on-failure"]
        status = run_ctest(to_run, junit, folder / "tmp")
        if not junit.is_file():
            print("run_tests: ctest wrote no results", file=sys.stderr)
            return status or 1
        cases = ElementTree.parse(junit).getroot().findall("testcase")
    names = [test["name"] for test in chosen(ctest_args)] if args.leave_out else []
    text = "\n".join(report(cases, left_out_lines(names, args.leave_out, args.only))) + "\n"
    print(text, end="", flush=True)
    if args.report:
        args.report.write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
