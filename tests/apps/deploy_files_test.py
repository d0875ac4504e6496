"""What deploy/ promises: manifests that Kubernetes takes, a unit that systemd takes and whose restrictions the server
lives with, and a secret that nobody can leave as it is."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402
import venv_python  # noqa: E402

venv_python.enter("package")

import yaml  # noqa: E402
from serve_inputs import SIM  # noqa: E402
from serving_process import ROOT, ServingProcess, run_serve  # noqa: E402

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "fathom.service"
SYSTEMD = shutil.which("systemd-analyze")
NEEDS_SYSTEMD = skipping.because("there is no systemd-analyze", "install systemd")


def manifests(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def of_kind(kind):
    found, = (item for item in manifests("kubernetes.yaml") if item["kind"] == kind)
    return found


class KubernetesTest(unittest.TestCase):
    def test_the_manifest_is_what_its_version_of_the_api_takes(self):
        import kubernetes_validate  # pylint: disable=import-outside-toplevel
        items = manifests("kubernetes.yaml")
        self.assertEqual([item["kind"] for item in items], ["Secret", "Deployment", "Service", "PodDisruptionBudget",
                                                            "NetworkPolicy"])
        for item in items:
            for version in ("1.28", "1.37"):
                kubernetes_validate.validate(item, version, strict=True)
        broken = of_kind("Deployment")
        broken["spec"]["template"]["spec"]["automountServiceAccountTokens"] = False
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, "1.37", strict=True)

    def test_names_and_labels_meet(self):
        pod = of_kind("Deployment")["spec"]["template"]
        labels = pod["metadata"]["labels"]
        self.assertEqual(of_kind("Deployment")["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(of_kind("Service")["spec"]["selector"], labels)
        self.assertEqual(of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"], labels)
        port = pod["spec"]["containers"][0]["ports"][0]["name"]
        self.assertEqual(of_kind("Service")["spec"]["ports"][0]["targetPort"], port)
        self.assertEqual(of_kind("NetworkPolicy")["spec"]["ingress"][0]["ports"], [{"port": port}])
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        self.assertEqual(volumes["api-keys"]["secret"]["secretName"], of_kind("Secret")["metadata"]["name"])
        monitor, = manifests("servicemonitor.yaml")
        self.assertEqual(monitor["spec"]["selector"]["matchLabels"], of_kind("Service")["metadata"]["labels"])
        self.assertEqual(monitor["spec"]["endpoints"][0]["port"], of_kind("Service")["spec"]["ports"][0]["name"])

    def test_the_pod_has_a_gpu_and_no_more_rights_than_it_needs(self):
        spec = of_kind("Deployment")["spec"]["template"]["spec"]
        self.assertIs(spec["automountServiceAccountToken"], False)
        self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
        container, = spec["containers"]
        self.assertEqual(container["securityContext"], {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                        "capabilities": {"drop": ["ALL"]}})
        for kind in ("requests", "limits"):
            self.assertEqual(container["resources"][kind]["nvidia.com/gpu"], "1")
        self.assertEqual(of_kind("NetworkPolicy")["spec"]["egress"], [])
        # What was admitted is not cut off: the sleep before, the drain, and some time.
        drain = int(next(arg for arg in container["args"] if "drain-timeout" in arg).split("=")[1])
        sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
        self.assertGreaterEqual(spec["terminationGracePeriodSeconds"], drain + sleep + 5)

    def test_the_secret_must_be_changed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "api-keys")
            path.write_text(of_kind("Secret")["stringData"]["api-keys"], encoding="utf-8")
            status, error = run_serve("--port", 0, *SIM, "--api-key-file", path)
        self.assertEqual(status, 1)
        self.assertIn("8 to 512", error)


def unit_settings():
    """{name: [values]} of [Service]."""
    settings = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        match = re.match(r"([A-Za-z]+)=(.*)", line)
        if match:
            settings.setdefault(match[1], []).append(match[2])
    return settings


def syscall_group(name):
    """The names in a group of systemd's, groups inside it followed."""
    text = subprocess.run([SYSTEMD, "syscall-filter", "--no-pager", name], capture_output=True, text=True, check=True).stdout
    names = set()
    for line in text.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            names |= syscall_group(word)
        elif word and not word.startswith("#"):
            names.add(word)
    return names


def allowed_syscalls():
    """What SystemCallFilter= of the unit leaves."""
    allowed = set()
    for value in unit_settings()["SystemCallFilter"]:
        names = set()
        for word in value.lstrip("~").split():
            names |= syscall_group(word) if word.startswith("@") else {word}
        allowed = allowed - names if value.startswith("~") else allowed | names
    # systemd adds what starting a program needs.
    return allowed | syscall_group("@default") | {"execve"}


def syscall_numbers():
    for path in ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"):
        if pathlib.Path(path).is_file():
            return {name: int(number) for name, number in
                    re.findall(r"#define __NR_(\w+) (\d+)", pathlib.Path(path).read_text(encoding="utf-8"))}
    return None


def install_filter(allowed):
    """A seccomp filter of this process and its children: other calls fail with EPERM, as SystemCallErrorNumber= says,
    and so does what makes memory executable, as of MemoryDenyWriteExecute=."""
    load, jump, give = 0x20, 0x15, 0x06
    allow, deny = 0x7fff0000, 0x00050000 | 1
    mask, write_and_execute, execute = 0x54, 6, 4
    program = [(load, 0, 0, 0)]
    # mmap of both kinds at once, mprotect to executable. The protection is the third argument, its low half.
    for number, forbidden in ((9, write_and_execute), (10, execute)):
        program += [(jump, 0, 5, number), (load, 0, 0, 16 + 8 * 2), (mask, 0, 0, forbidden), (jump, 0, 1, forbidden),
                    (give, 0, 0, deny), (load, 0, 0, 0)]
    for number in allowed:
        program += [(jump, 0, 1, number), (give, 0, 0, allow)]
    program.append((give, 0, 0, deny))
    code = b"".join(int(op).to_bytes(2, "little") + bytes([yes, no]) + int(value).to_bytes(4, "little")
                    for op, yes, no, value in program)
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
    libc = ctypes.CDLL(None, use_errno=True)
    wanted = Program(len(program), ctypes.addressof(buffer))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(wanted), 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")



class KubernetesNodesTest(unittest.TestCase):
    """The same of a model on several pods."""

    def setUp(self):
        self.items = manifests("kubernetes-nodes.yaml")

    def named(self, kind, name):
        found, = (item for item in self.items if (item["kind"], item["metadata"]["name"]) == (kind, name))
        return found["spec"]

    def test_the_manifest_is_what_its_version_of_the_api_takes(self):
        import kubernetes_validate  # pylint: disable=import-outside-toplevel
        for item in self.items:
            for version in ("1.31", "1.37"):
                kubernetes_validate.validate(item, version, strict=True)

    def test_the_pods_are_nodes_of_one_service(self):
        first, others = (self.named("StatefulSet", "fathom-" + name) for name in ("first", "others"))
        pods = [part["template"]["spec"]["containers"][0] for part in (first, others)]
        for part in ("image", "args", "env", "resources", "securityContext", "volumeMounts"):
            self.assertEqual(pods[0][part], pods[1][part], part)
        flags = dict(arg.removeprefix("--").split("=") for arg in pods[0]["args"])
        self.assertEqual(int(flags["nnodes"]), first["replicas"] + others["replicas"])
        self.assertEqual(others["ordinals"]["start"], first["replicas"])
        self.assertEqual(flags["dist-init-addr"], f"fathom-first-0.{first['serviceName']}:29500")
        self.assertIs(self.named("Service", first["serviceName"])["publishNotReadyAddresses"], True)
        self.assertEqual(self.named("Service", "fathom")["selector"], first["template"]["metadata"]["labels"])
        mounts = {mount["name"]: mount["mountPath"] for mount in pods[0]["volumeMounts"]}
        self.assertTrue(flags["cluster-key-file"].startswith(mounts["cluster-key"] + "/"))


class SlurmTest(unittest.TestCase):
    def run_script(self, directory, srun_status):
        """What srun was called with, and whether the job is begun again."""
        stand_ins = {"scontrol": 'if [ "$1" = show ]; then echo host7; echo host8; else echo "$@" >"$0.called"; fi',
                     "srun": f'printf "%s\\n" "$@" >"$0.called"; exit {srun_status}'}
        for name, body in stand_ins.items():
            path = pathlib.Path(directory, name)
            path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
            path.chmod(0o755)
        done = subprocess.run(
            [DEPLOY / "fathom.sbatch", "--max-running-requests", "8"], check=False, capture_output=True, text=True,
            env={"PATH": directory + ":" + os.environ["PATH"], "HOME": directory, "MODEL": "/srv/model",
                 "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NODELIST": "host[7-8]",
                 "SLURM_JOB_ID": "42"})
        self.assertEqual(done.returncode, srun_status, done.stderr)
        again = pathlib.Path(directory, "scontrol.called")
        if again.exists():
            self.assertEqual(again.read_text(encoding="utf-8"), "requeue 42\n")
        return pathlib.Path(directory, "srun.called").read_text(encoding="utf-8").split("\n"), again.exists()

    def test_the_script_has_srun_start_the_nodes(self):
        with tempfile.TemporaryDirectory() as directory:
            called, _ = self.run_script(directory, 0)
            self.assertEqual(called[:5], ["--kill-on-bad-exit=1", "fathom", "serve", "--model-path", "/srv/model"])
            self.assertEqual(called[called.index("--dist-init-addr") + 1], "host7:29500")
            self.assertEqual(called[called.index("--tp-size") + 1], "4")
            self.assertEqual(called[-3:-1], ["--max-running-requests", "8"])

    def test_a_node_that_failed_or_was_killed_begins_the_job_again_and_a_start_that_failed_does_not(self):
        for status, again in ((0, False), (1, False), (70, True), (137, True)):
            with tempfile.TemporaryDirectory() as directory:
                self.assertEqual(self.run_script(directory, status)[1], again, status)


class SystemdTest(unittest.TestCase):
    @unittest.skipUnless(SYSTEMD, NEEDS_SYSTEMD)
    def test_systemd_takes_the_unit(self):
        with tempfile.TemporaryDirectory() as folder:
            # The program must be there, so the unit is checked with one that is.
            unit = pathlib.Path(folder, "fathom.service")
            text = UNIT.read_text(encoding="utf-8").replace("/usr/local/bin/fathom", os.environ["FATHOM_PROGRAM"])
            unit.write_text(re.sub("^Documentation=.*\n", "", text, flags=re.M), encoding="utf-8")
            drop_in = pathlib.Path(folder, "fathom.service.d")
            for with_gpu in (False, True):
                if with_gpu:
                    drop_in.mkdir()
                    shutil.copy(DEPLOY / "fathom-gpu.conf", drop_in / "gpu.conf")
                done = subprocess.run([SYSTEMD, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
                ours = [line for line in done.stderr.splitlines() if "fathom" in line and "nvidia-modprobe" not in line]
                self.assertEqual((done.returncode, ours), (0, []), done.stderr)

    @unittest.skipUnless(SYSTEMD, NEEDS_SYSTEMD)
    def test_the_unit_is_as_closed_as_it_says(self):
        done = subprocess.run([SYSTEMD, "security", "--offline=true", "--no-pager", "--threshold=15", UNIT],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-300:] + done.stderr)
        settings = unit_settings()
        for name, value in (("UMask", "0077"), ("ProtectProc", "invisible"), ("PrivateUsers", "yes"),
                            ("PrivateDevices", "yes"), ("MemoryDenyWriteExecute", "yes"), ("CapabilityBoundingSet", ""),
                            ("SystemCallErrorNumber", "EPERM")):
            self.assertEqual(settings[name], [value])
        self.assertIn("~@resources @privileged", settings["SystemCallFilter"])

    @unittest.skipUnless(SYSTEMD, NEEDS_SYSTEMD)
    @unittest.skipUnless(os.uname().machine == "x86_64" and syscall_numbers(),
                         skipping.because("there are no names of system calls here", "install linux-libc-dev on x86-64"))
    def test_the_server_lives_with_the_calls_that_the_unit_leaves(self):
        numbers = syscall_numbers()
        allowed = sorted(numbers[name] for name in allowed_syscalls() if name in numbers)
        self.assertNotIn(numbers["setrlimit"], allowed)
        self.assertNotIn(numbers["sched_setaffinity"], allowed)
        with ServingProcess("--cpu-threads", 2, "--max-total-tokens", 8192, "--device", "cpu",
                            before_start=lambda: install_filter(allowed)) as server:
            status, answer = server.post("/v1/completions", {"model": "default", "prompt": "Hello", "max_tokens": 4})
            self.assertEqual((status, len(answer["choices"])), (200, 1))
            self.assertEqual([line for line in server.log_lines() if line["level"] in ("warning", "error")], [])

    def test_the_comments_name_what_is_there(self):
        text = UNIT.read_text(encoding="utf-8") + (DEPLOY / "fathom-gpu.conf").read_text(encoding="utf-8")
        for path in re.findall(r"deploy/[\w./-]+", text):
            self.assertTrue((ROOT / path).is_file(), path)
        default = re.search(r"^Environment=FATHOM_MODEL=/usr/local/(.*)$", text, re.M)[1]
        self.assertIn(f'DESTINATION "${{CMAKE_INSTALL_DATADIR}}/{default.split("/", 1)[1].rsplit("/", 1)[0]}"',
                      (ROOT / "cmake/FathomInstall.cmake").read_text(encoding="utf-8"))


if __name__ == "__main__":
    skipping.main()
