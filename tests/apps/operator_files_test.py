"""What operators put around a server: alerts, the dashboard, nginx and Caddy in front, by the programs that read them."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402
from serve_inputs import SIM, make_certificate, native  # noqa: E402
from serving_process import ROOT, ServingProcess, eventually, occupied_port  # noqa: E402

DEPLOY = ROOT / "deploy"


def program_of(package, path):
    """The installed program, or that of the package, unpacked below build/."""
    installed = shutil.which(pathlib.Path(path).name, path=os.environ["PATH"] + ":/usr/sbin")
    if installed:
        return installed
    done = subprocess.run([ROOT / "tools/unpack_package.sh", package], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise unittest.SkipTest(done.stderr.strip().removeprefix("unpack_package: "))
    return str(pathlib.Path(done.stdout.strip(), path))


def promtool(*args, stdin=None):
    return subprocess.run([program_of("prometheus", "usr/bin/promtool"), *map(str, args)], input=stdin,
                          capture_output=True, text=True, check=False, cwd=DEPLOY)


def dashboard_expressions():
    board = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    yield "Starts", board["annotations"]["list"][0]["expr"]


def names_in(expression):
    return set(re.findall(r"\b(?:fathom:|process_)[a-z0-9_]+", re.sub(r'"[^"]*"', "", expression)))


class PrometheusTest(unittest.TestCase):
    def test_the_alerts_are_read_and_fire_when_they_should(self):
        done = promtool("check", "rules", "rules.yaml")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = promtool("test", "rules", "rules_test.yaml")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder, "rules.yaml")
            broken.write_text((DEPLOY / "rules.yaml").read_text(encoding="utf-8").replace("rate(", "rat("), encoding="utf-8")
            self.assertNotEqual(promtool("check", "rules", broken).returncode, 0)

    def test_the_dashboards_expressions_are_read(self):
        rules = [{"record": f"panel:{i}", "expr": expression.replace("$__rate_interval", "1m").replace("$__range", "1h")}
                 for i, (_, expression) in enumerate(dashboard_expressions())]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "panels.yaml")
            path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
            done = promtool("check", "rules", path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertGreater(len(rules), 25)

    def test_every_name_is_one_that_the_server_has_and_metrics_are_well_formed(self):
        with ServingProcess(*SIM, "--api-key", "team:sk-12345678", key="sk-12345678") as server:
            self.assertEqual(server.post("/generate", native(8))[0], 200)
            self.assertEqual(server.get("/readyz")[0], 200)
            eventually(lambda: "fathom:key_completion_tokens_total" in server.get("/metrics")[1], "tokens by key")
            text = server.get("/metrics")[1]
        families = set(re.findall(r"^# TYPE (\S+) ", text, re.M))
        # Of a machine with a GPU; tests/metrics/gpu_metrics_test.cc has them.
        families |= set(re.findall(r"fathom:gpu_\w+", (ROOT / "src/metrics/gpu_metrics.cc").read_text(encoding="utf-8")))
        known = families | {name + end for name in families for end in ("_bucket", "_count", "_sum")}
        for title, expression in dashboard_expressions():
            self.assertEqual(names_in(expression) - known, set(), title)
        rules = (DEPLOY / "rules.yaml").read_text(encoding="utf-8")
        for expression in re.findall(r"expr: ((?:>-\n(?: {10}.*\n)+)|.*)", rules):
            self.assertEqual(names_in(expression) - known, set(), expression)
        done = promtool("check", "metrics", stdin=text)
        # Its taste in names aside: a family that it cannot read is an error of the text's form.
        self.assertNotIn("error while linting", done.stderr)
        self.assertEqual(re.findall(r"^fathom:key_completion_tokens_total\{.*key_name=\"team\"\} 8$", text, re.M)[1:], [])
        self.assertRegex(text, r'(?m)^fathom:key_completion_tokens_total\{[^}]*key_name="team"\} 8$')
        self.assertRegex(text, r'(?m)^fathom:build_info\{[^}]*version="\d+\.\d+\.\d+",commit="[^"]+",cuda="[^"]+"\} 1$')
        self.check_process(text)
        self.check_times(text)

    def check_times(self, text):
        sums = {name: float(value) for name, value in re.findall(r"^fathom:(\w+)_sum\{[^}]*\} (\S+)$", text, re.M)}
        self.assertRegex(text, r"(?m)^vllm:request_decode_time_seconds_count\{[^}]*\} 1$")
        parts = sums["queue_time_seconds"] + sums["request_prefill_seconds"], sums["request_decode_seconds"]
        self.assertAlmostEqual(parts[0], sums["time_to_first_token_seconds"], 6)
        self.assertAlmostEqual(sum(parts), sums["e2e_request_latency_seconds"], 6)

    def check_process(self, text):
        values = {name: float(value) for name, value in re.findall(r"^(process_\w+)\{[^}]*\} (\S+)$", text, re.M)}
        self.assertLess(abs(values["process_start_time_seconds"] - time.time()), 600)
        self.assertGreater(values["process_resident_memory_bytes"], 10e6)
        self.assertGreater(values["process_virtual_memory_bytes"], values["process_resident_memory_bytes"])
        self.assertTrue(5 < values["process_open_fds"] < 200 < values["process_max_fds"])
        self.assertGreater(values["process_threads"], 4)
        self.assertGreater(values["process_cpu_seconds_total"], 0)

    def test_probes_that_are_told_to_wait_are_counted_apart(self):
        with ServingProcess(*SIM, "--sim-step-us", 100_000) as server:
            connection, _ = server.open("POST", "/generate", {**native(40), "stream": True})
            server.process.terminate()
            eventually(lambda: server.get("/readyz")[0] == 503, "the drain")

            def counted_in_both():
                metrics = server.metrics()
                return metrics["fathom:probe_refusals_total"] == metrics["fathom:http_responses_total{status_class=5xx}"] >= 1

            eventually(counted_in_both, "the count of the answer, which comes after it was sent")
            connection.close()


class Proxy:
    """A proxy with a file of deploy/, in front of `server`."""

    def __init__(self, command, log):
        self.log = open(log, "wb")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)  # pylint: disable=consider-using-with

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)
        self.log.close()


def free_port():
    listener, port = occupied_port()
    listener.close()
    return port


class ProxyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.port = free_port()

    def replaced(self, name, *pairs):
        """The example with its addresses and paths exchanged; each must be there."""
        text = (DEPLOY / name).read_text(encoding="utf-8")
        for old, new in pairs:
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def check(self, base, context=None, **page):
        """Through the proxy: readiness, a stream event by event, the page's own calls, and no metrics."""
        def open_url(path, body=None, **headers):
            request = urllib.request.Request(base + path, json.dumps(body).encode() if body else None,
                                             {"Authorization": "Bearer sk-12345678", "Content-Type": "application/json",
                                              **headers})
            return urllib.request.urlopen(request, timeout=60, context=context)

        def is_up():
            try:
                return open_url("/readyz").status == 200
            except OSError:
                return False
        eventually(is_up, "the proxy")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            open_url("/metrics")
        self.assertEqual(refused.exception.code, 403)
        times = []
        with open_url("/generate", {**native(20), "stream": True}, **page) as answer:
            self.assertEqual(answer.status, 200)
            for line in answer:
                if line.startswith(b"data: "):
                    times.append(time.monotonic())
        # Steps of 50 ms: the events must not come together at the end.
        self.assertGreater(len(times), 10)
        self.assertGreater(times[-1] - times[0], 0.4)
        return open_url("/generate", native(1)).headers

    def server(self):
        return ServingProcess(*SIM, "--sim-step-us", 50_000, "--api-key", "sk-12345678", key="sk-12345678")

    @unittest.skipUnless(shutil.which("openssl"), skipping.because("there is no openssl", "install openssl"))
    def test_nginx_passes_streams_through(self):
        nginx = program_of("nginx", "usr/sbin/nginx")
        certificate, key = self.folder / "cert.pem", self.folder / "key.pem"
        make_certificate(certificate, key)
        with self.server() as server:
            site = self.replaced("nginx.conf", ("127.0.0.1:30000", f"127.0.0.1:{server.port}"),
                                 ("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl"),
                                 ("/etc/ssl/certs/llm.example.org.pem", str(certificate)),
                                 ("/etc/ssl/private/llm.example.org.key", str(key)))
            paths = " ".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in
                             ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            main = self.folder / "main.conf"
            main.write_text(f"pid {self.folder}/pid; error_log stderr; daemon off; worker_processes 1; "
                            f"{'user root;' if os.getuid() == 0 else ''} events {{}} "
                            f"http {{ access_log off; {paths} include {site}; }}", encoding="utf-8")
            done = subprocess.run([nginx, "-t", "-c", main], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            with Proxy([nginx, "-c", main], self.folder / "log"):
                import ssl  # pylint: disable=import-outside-toplevel
                headers = self.check(f"https://127.0.0.1:{self.port}", ssl.create_default_context(cafile=certificate),
                                     Host="llm.example.org", Origin="https://llm.example.org")
                self.assertRegex(headers["x-request-id"], "^[0-9a-f]{32}$")

    def test_caddy_passes_streams_through(self):
        caddy = program_of("caddy", "usr/bin/caddy")
        os.environ.update(HOME=str(self.folder), XDG_DATA_HOME=str(self.folder), XDG_CONFIG_HOME=str(self.folder))
        with self.server() as server:
            path = self.replaced("Caddyfile", ("127.0.0.1:30000", f"127.0.0.1:{server.port}"),
                                 ("llm.example.org {", f"{{\n\tadmin off\n}}\n\nhttp://127.0.0.1:{self.port} {{"))
            with Proxy([caddy, "run", "--config", path, "--adapter", "caddyfile"], self.folder / "log"):
                base = f"http://127.0.0.1:{self.port}"
                self.check(base, Origin=base)


if __name__ == "__main__":
    skipping.main()
