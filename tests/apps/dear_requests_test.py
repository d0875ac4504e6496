"""The dearest requests of one key beside another's, for seconds; tests/apps/dear_requests.py has the long form."""
import sys
import unittest

import dear_requests
from serving_process import ROOT

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
