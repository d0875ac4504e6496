"""Large and hostile bodies, for seconds; tests/apps/hostile_bodies.py has the long form."""
import pathlib
import sys
import unittest

import hostile_bodies
import serving_process
from hostile_bodies import MEGABYTE
from serving_process import ROOT, ServingProcess

sys.path.insert(0, str(ROOT / "tests" / "clients"))
import skipping  # noqa: E402

IS_SANITIZED = b"__asan_init" in pathlib.Path(serving_process.PROGRAM).read_bytes()
limits_memory = unittest.skipIf(IS_SANITIZED, skipping.because(
    "a sanitizer's program needs terabytes of address space", "make test"))


class HostileBodies(unittest.TestCase):
    def besiege(self, limit_mb, *args, wanted):
        result = hostile_bodies.besiege(limit_mb, 3, 20 * MEGABYTE, *args, wanted=[wanted])
        self.assertTrue(hostile_bodies.is_good(result), {k: v for k, v in result.items() if k != "log"})
        self.assertLess(result["rss_after_mb"], result["rss_before_mb"] + 100)
        self.assertGreater(result["answers"].get(wanted, 0), 0, result["answers"])
        return result

    @limits_memory
    def test_with_little_memory_everything_is_answered_and_streams_are_exact(self):
        self.besiege(300, wanted=413)  # 20 MB are more than a quarter of 300 allows

    @limits_memory
    def test_memory_that_runs_out_ends_requests_and_not_the_process(self):
        # Bodies are let in that the address space cannot hold: what is left is to fail well.
        result = self.besiege(300, "--max-body-memory", 1 << 40, wanted=503)
        self.assertGreater(result["failures"], 0)

    def test_the_memory_for_bodies_is_shared_and_shown(self):
        with ServingProcess("--engine", "sim", "--max-body-memory", 8 * MEGABYTE) as server:
            metrics = server.metrics()
            self.assertEqual(metrics["fathom:body_memory_limit_bytes"], 8 * MEGABYTE)
            self.assertEqual(metrics["fathom:body_memory_bytes"], 0)
            self.assertEqual(server.get("/server_info")[1]["max_body_memory"], 8 * MEGABYTE)
            fits = b'{"prompt":"' + b"a" * (MEGABYTE - 100) + b'"}'
            self.assertEqual(hostile_bodies.post_raw(server.port, "/tokenize", fits), 200)
            self.assertEqual(hostile_bodies.post_raw(server.port, "/tokenize", fits + b" " * 200), 413)

    def test_short_requests_do_not_wait_behind_long_bodies(self):
        # Generous, for a machine that does other things: without a lane of their own it is seconds.
        for body in (0, 1):
            result = hostile_bodies.measure_waiting(3, 30 * MEGABYTE, body, least_answers=4)
            self.assertGreaterEqual(sum(result["long_answers"].values()), 4, result)
            self.assertLess(result["beside_p50_ms"], 2 * result["alone_p50_ms"] + 100, result)


if __name__ == "__main__":
    skipping.main()
