"""Who gets in to `fathom serve` and how many: keys, TLS, hosts, salts, connections."""
import pathlib
import resource
import shutil
import signal
import socket
import ssl
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402
from serve_inputs import LONG, SIM, make_certificate, native, slow_engine  # noqa: E402
from serving_process import ServingProcess, eventually  # noqa: E402


class AccessTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("openssl"), skipping.because(
        "no openssl to make a certificate with", "tools/install_packages.sh test, or install openssl"))
    def test_tls_serves_a_client_that_verifies_and_no_plain_one(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = pathlib.Path(folder, "cert.pem"), pathlib.Path(folder, "key.pem")
            make_certificate(cert, key)
            with ServingProcess(*SIM, "--ssl-certfile", cert, "--ssl-keyfile", key, tls=str(cert)) as server:
                status, answer = server.post("/generate", native(5))
                self.assertEqual((status, len(answer["output_ids"])), (200, 5))
                self.assertEqual(server.read_stream(native(5))[-1], "[DONE]")
                server.tls = None
                with self.assertRaises(OSError):
                    server.get("/livez")

    def test_probes_and_metrics_ask_for_a_key_unless_they_are_opened(self):
        key = ["--api-key", "sk-12345678"]
        paths = ["/health", "/health_generate", "/ping", "/metrics"]
        for flags, opened in (([], []), (["--open-health"], paths[:3]), (["--open-metrics"], paths[3:])):
            with ServingProcess(*SIM, *key, *flags) as server:
                self.assertEqual([path for path in paths if server.get(path)[0] == 200], opened)
                self.assertEqual([server.get(path)[0] for path in ("/v1/models", "/version", "/load")], [401] * 3)
                self.assertEqual(server.get("/server_info", key="sk-12345678")[1]["open_health"], "--open-health" in flags)

    def test_keys_are_read_again_on_sighup_and_stay_when_the_file_is_bad(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "keys")
            file.write_text("# tenants\nann:sk-ann-12345\n")
            with ServingProcess(*SIM, "--api-key-file", file, env={"FATHOM_API_KEY": "sk-env-12345"}) as server:
                def status(key):
                    return server.get("/v1/models", key=key)[0]

                def reload(event):
                    num_before = len(server.log_lines(event))
                    server.process.send_signal(signal.SIGHUP)
                    eventually(lambda: len(server.log_lines(event)) > num_before, f"the log to say: {event}")
                self.assertEqual([status(k) for k in (None, "sk-ann-12345", "sk-env-12345", "sk-bob-12345")],
                                 [401, 200, 200, 401])
                file.write_text("bob:sk-bob-12345\n")
                reload("keys read again")
                eventually(lambda: status("sk-bob-12345") == 200, "the new key to be let in")
                eventually(lambda: status("sk-ann-12345") == 401, "the old key to be refused")
                file.write_text("x\n")
                reload("keys not read again, the old ones stay")
                self.assertEqual(status("sk-bob-12345"), 200)
                self.assertEqual(server.get("/livez")[0], 200)
                log = server.log_text()
        for secret in ("sk-ann-12345", "sk-bob-12345", "sk-env-12345"):
            self.assertNotIn(secret, log)

    @unittest.skipUnless(shutil.which("openssl"), skipping.because(
        "no openssl to make a certificate with", "tools/install_packages.sh test, or install openssl"))
    def test_a_certificate_is_read_again_on_sighup_and_stays_when_the_pair_is_bad(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = pathlib.Path(folder, "cert.pem"), pathlib.Path(folder, "key.pem")
            make_certificate(cert, key)
            with ServingProcess(*SIM, "--ssl-certfile", cert, "--ssl-keyfile", key, tls=str(cert)) as server:
                def shown():
                    return ssl.get_server_certificate(("127.0.0.1", server.port))

                def reload(event):
                    num_before = len(server.log_lines(event))
                    server.process.send_signal(signal.SIGHUP)
                    eventually(lambda: len(server.log_lines(event)) > num_before, f"the log to say: {event}")
                first = shown()
                kept = server.connection()
                kept.request("GET", "/livez")
                self.assertEqual(kept.getresponse().read(), b'{"status":"alive"}')
                make_certificate(cert, key)
                self.assertEqual(shown(), first)
                reload("TLS certificate read again")
                renewed = shown()
                self.assertEqual(renewed, cert.read_text())
                self.assertNotEqual(renewed, first)
                self.assertEqual(server.get("/livez")[0], 200)  # verified with the new one
                kept.request("GET", "/livez")
                self.assertEqual(kept.getresponse().status, 200)
                kept.close()
                make_certificate(cert, pathlib.Path(folder, "another.pem"))
                reload("TLS certificate not read again, the old one stays")
                self.assertIn("does not belong to", server.log_lines("TLS certificate not read again, the old one stays")[0]["why"])
                self.assertEqual(shown(), renewed)

    def test_admin_keys_come_from_a_file_too_which_sighup_reads_again(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "admins")
            file.write_text("ops:sk-ops-12345\n")
            with ServingProcess(*SIM, "--api-key", "web:sk-web-12345", "--admin-api-key-file", file) as server:
                def status(key):
                    return server.post("/flush_cache", key=key)[0]
                self.assertEqual([status(key) for key in (None, "sk-web-12345", "sk-ops-12345")], [401, 401, 200])
                self.assertNotIn("admins", str(server.get("/server_info", key="sk-web-12345")[1]))
                file.write_text("ops:sk-new-12345\n")
                server.process.send_signal(signal.SIGHUP)
                eventually(lambda: status("sk-new-12345") == 200, "the new admin key to be let in")
                self.assertEqual(status("sk-ops-12345"), 401)

    def test_admin_routes_ask_for_the_admin_key_where_there_is_one(self):
        with ServingProcess(*SIM, "--api-key", "web:sk-web-12345", "--admin-api-key", "ops:sk-ops-12345") as server:
            for path in ("/flush_cache", "/abort_request", "/pause_generation", "/continue_generation", "/start_profile",
                         "/stop_profile"):
                self.assertEqual(server.post(path)[0], 401, path)
                self.assertEqual(server.post(path, key="sk-web-12345")[0], 401, path)
            self.assertEqual(server.post("/flush_cache", key="sk-ops-12345")[0], 200)
            self.assertEqual(server.post("/abort_request", {"rid": "none"}, key="sk-ops-12345")[0], 200)
            self.assertEqual(server.post("/generate", native(1), key="sk-web-12345")[0], 200)

    def test_hosts_and_origins_are_those_of_the_flags(self):
        with ServingProcess(*SIM, "--allowed-host", "a.example", "--allowed-host", "b.example",
                            "--cors-origin", "https://app.example", "--cors-origin", "http://localhost:5173") as server:
            for host, status in (("a.example", 200), ("b.example:80", 200), ("localhost", 200), ("c.example", 403)):
                self.assertEqual(server.get("/v1/models", headers={"Host": host})[0], status, host)
            for origin, status in (("https://app.example", 200), ("http://localhost:5173", 200), ("null", 403),
                                   (f"http://127.0.0.1:{server.port}", 200), ("http://127.0.0.1:1", 403)):
                self.assertEqual(server.post("/generate", native(1), headers={"Origin": origin})[0], status, origin)
            for path in ("/flush_cache", "/start_profile", "/stop_profile"):
                answer = server.get(path, headers={"Sec-Fetch-Site": "none"})
                self.assertEqual((answer[0], answer[1]["error"]["code"]), (403, "post_needed"), path)
            self.assertEqual(server.get("/flush_cache")[0], 200)
            info = server.get("/server_info")[1]
            self.assertEqual(info["allowed_host"], ["a.example", "b.example"])
            self.assertEqual(info["cors_origin"], ["https://app.example", "http://localhost:5173"])

    def test_tenants_share_no_cached_prefix(self):
        with ServingProcess(*SIM, "--api-key", "ann:sk-ann-12345", "--api-key", "bob:sk-bob-12345") as server:
            def cached(key, **fields):
                status, answer = server.post("/generate", native(2, LONG, **fields), key=key)
                self.assertEqual(status, 200, answer)
                return answer["meta_info"]["cached_tokens"]
            self.assertEqual(cached("sk-ann-12345"), 0)
            self.assertGreaterEqual(cached("sk-ann-12345"), 64)
            self.assertEqual(cached("sk-bob-12345"), 0)
            self.assertGreaterEqual(cached("sk-bob-12345"), 64)
            self.assertEqual(cached("sk-ann-12345", cache_salt="a"), 0)
            self.assertGreaterEqual(cached("sk-ann-12345", cache_salt="a"), 64)
            self.assertEqual(cached("sk-bob-12345", cache_salt="a"), 0)


class LimitTest(unittest.TestCase):
    def crowd(self, server, num):
        """That many connections that say nothing."""
        sockets = []
        for _ in range(num):
            sockets.append(socket.create_connection(("127.0.0.1", server.port)))
            self.addCleanup(sockets[-1].close)
        return sockets

    def assert_probes(self, server):
        for path in ("/livez", "/readyz", "/health"):
            self.assertEqual(server.get(path)[0], 200, path)

    def test_probes_and_new_clients_get_in_past_idle_connections(self):
        with ServingProcess(*SIM, "--max-connections", 50) as server:
            idle = self.crowd(server, 120)
            self.assert_probes(server)
            self.assertEqual(server.post("/generate", native(2))[0], 200)
            self.assertGreaterEqual(server.metrics()["fathom:closed_idle_connections_total"], 70)
            self.assertEqual(server.metrics()["fathom:http_rejected_total{reason=overloaded}"], 0)
            self.assertEqual(idle[0].recv(1), b"")  # the oldest gave way

    def test_probes_get_in_past_busy_connections_and_nothing_else_does(self):
        with ServingProcess(*slow_engine(5000), "--max-connections", 4, key="sk-12345678",
                            env={"FATHOM_API_KEY": "sk-12345678"}) as server:
            streams = [server.open("POST", "/generate", native(5000, stream=True)) for _ in range(4)]
            for _, response in streams:
                self.assertTrue(response.readline())
            self.crowd(server, 100)
            self.assert_probes(server)
            self.assertEqual(server.get("/readyz", key="sk-12345678")[1]["running"], 4)
            for path in ("/metrics", "/v1/models", "/health_generate"):
                status, answer = server.get(path)
                self.assertEqual((status, answer["error"]["code"]), (503, "too_many_connections"), path)
            server.key = None
            self.assertEqual(server.get("/health")[0], 401)
            for connection, response in streams:
                response.close()
                connection.close()

    def test_a_low_limit_on_open_files_bounds_the_connections_and_leaves_the_probes_alone(self):
        def few_files():
            resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
        with ServingProcess(*SIM, before_start=few_files) as server:
            self.crowd(server, 500)
            self.assert_probes(server)
            info = server.get("/server_info")[1]
            self.assertLess(info["max_connections"], 400)
            warnings = server.log_lines("the limit on open files is below --max-connections")
            self.assertEqual([line["max_connections"] for line in warnings], [info["max_connections"]])

    def test_an_address_may_have_a_limit_of_its_own(self):
        with ServingProcess(*slow_engine(5000), "--max-connections-per-address", 2) as server:
            streams = [server.open("POST", "/generate", native(5000, stream=True)) for _ in range(2)]
            for _, response in streams:
                self.assertTrue(response.readline())
            status, answer = server.get("/v1/models")
            self.assertEqual((status, answer["error"]["code"]), (503, "too_many_connections_from_address"))
            self.assert_probes(server)
            for connection, response in streams:
                response.close()
                connection.close()


if __name__ == "__main__":
    skipping.main()
