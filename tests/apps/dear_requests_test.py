"""The dearest requests of one key beside another's, for seconds; tests/apps/dear_requests.py has the long form."""
import contextlib
import http.client
import sys
import unittest

import dear_requests
from serving_process import ROOT, ServingProcess

sys.path.insert(0, str(ROOT / "tests" / "clients"))
import skipping  # noqa: E402


class DearRequests(unittest.TestCase):
    def test_grammars_of_one_key_hold_up_no_other_and_give_their_memory_back(self):
        figures = dear_requests.grammars(8, "--num-workers", "8")
        self.assertEqual(figures["statuses"], {400: 8}, figures)
        # Generous, for a machine that does other things: on the workers of all it would be seconds.
        self.assertLess(figures["one_token_p50_ms"], 200, figures)
        self.assertLess(figures["peak_mb"], 600, figures)
        self.assertLess(figures["after_mb"], figures["before_mb"] + 64, figures)

    def test_an_answer_that_repeats_too_much_is_refused_at_once(self):
        figures = dear_requests.answers(dear_requests.echo(10_000, 128, 20))
        self.assertEqual(figures["statuses"], {400: 1}, figures)
        self.assertLess(figures["peak_mb"], 200, figures)

    def test_copies_of_long_prompts_are_refused_at_once(self):
        for path, body in (("/generate", dear_requests.without_logprobs(100_000, 128)),
                           ("/v1/score", dear_requests.scores(100_000, 1, 1024))):
            figures = dear_requests.answers(body, path=path)
            self.assertEqual(figures["statuses"], {400: 1}, figures)
            self.assertLess(figures["peak_mb"], 100, figures)

    def test_what_long_answers_take_is_bounded_by_the_memory_of_bodies(self):
        with ServingProcess(*dear_requests.SETTINGS, "--max-body-memory", "2000000") as server:
            for tokens, status in ((1000, 429), (100, 200), (1000, 429)):
                body = dear_requests.native(10, 1, 20, tokens, start=-1)
                self.assertEqual(server.ask("POST", "/generate", body, dear_requests.ALICE)[0], status, tokens)
            body = dear_requests.without_logprobs(50_000, 8)
            self.assertEqual(server.ask("POST", "/generate", body, dear_requests.ALICE)[0], 400)

    def test_a_stream_whose_events_repeat_everything_ends_where_they_are_large(self):
        with ServingProcess(*dear_requests.SETTINGS) as server:
            body = dear_requests.native(10, 128, 20, 600, start=-1, stream=True)
            connection, response = server.open("POST", "/generate", body, dear_requests.ALICE)
            last = b""
            with contextlib.suppress(http.client.IncompleteRead):  # the stream ends without its end
                while piece := response.read1(1 << 20):
                    last = (last + piece)[-1000:]
            connection.close()
            self.assertIn(b"larger than 128 MiB", last)
            self.assertLess(dear_requests.memory_mb(server, "VmHWM"), 250)
            self.assertEqual(server.ask("POST", "/generate", dear_requests.ONE_TOKEN, dear_requests.BOB)[0], 200)

    def test_no_hello_costs_its_server_much(self):
        # The dearest group of TLS 1.3 takes more than 100 ms.
        with dear_requests.tls_server() as server:
            for curve in ("secp521r1", "secp384r1", "prime256v1"):
                self.assertLess(dear_requests.hello_cost(server, dear_requests.hello(curve), 60), 15, curve)

    def test_a_large_answer_is_given(self):
        figures = dear_requests.answers(dear_requests.echo(5_000, 4, 20))
        self.assertEqual(figures["statuses"], {200: 1}, figures)
        self.assertLess(figures["one_token_p50_ms"], 500, figures)

    def test_a_body_of_many_prompts_or_choices_takes_turns_with_others(self):
        for figures in (dear_requests.fan_out(64, 10_000), dear_requests.choices(96, 200, 500)):
            self.assertEqual(figures["statuses"], {200: 1}, figures)
            # Without turns a request waits for most of the body.
            self.assertLess(figures["one_token_max_ms"], 250 * figures["seconds"], figures)


if __name__ == "__main__":
    skipping.main()
