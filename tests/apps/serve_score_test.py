"""/v1/score of the demo model against the log-probabilities that /generate tells of the same tokens."""
import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import skipping  # noqa: E402
from serve_inputs import SMALL  # noqa: E402
from serving_process import ServingProcess  # noqa: E402

QUERY = "Question: Tom has 3 apples and buys 4 more. How many apples has Tom?\nAnswer:"
ITEMS = [" Tom has", " The fox", ""]


class ScoreTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServingProcess(*SMALL).__enter__()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.end() == 0, cls.server.log_text()

    def ask(self, path, body):
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def ids(self, text):
        return self.ask("/tokenize", {"prompt": text})["tokens"]

    def close(self, score, logprob):
        # Another length of the prompt is another form of attention: the last bits differ.
        self.assertAlmostEqual(score, math.exp(logprob), delta=1e-3 * math.exp(logprob) + 1e-7)

    def test_scores_are_the_probabilities_of_the_prompts_tokens(self):
        labels = [1, 300, 301, 302]
        scores = self.ask("/v1/score", {"query": QUERY, "items": ITEMS, "label_token_ids": labels})["scores"]
        for item, of_item in zip(ITEMS, scores, strict=True):
            for label, score in zip(labels, of_item, strict=True):
                told = self.ask("/generate", {"input_ids": self.ids(QUERY + item) + [label], "return_logprob": True,
                                              "logprob_start_len": 0, "sampling_params": {"max_new_tokens": 0}})
                self.close(score, told["meta_info"]["input_token_logprobs"][-1][0])

    def test_scores_are_the_probabilities_of_the_likeliest_tokens(self):
        for item in ITEMS:
            told = self.ask("/generate", {"text": QUERY + item, "return_logprob": True, "top_logprobs_num": 10,
                                          "sampling_params": {"max_new_tokens": 1, "temperature": 0}})
            tops = told["meta_info"]["output_top_logprobs"][0]
            labels = [entry[1] for entry in tops]
            self.assertEqual(len(labels), 10)
            body = {"query": QUERY, "items": [item], "label_token_ids": labels}
            scores = self.ask("/v1/score", body)["scores"][0]
            for entry, score in zip(tops, scores, strict=True):
                self.close(score, entry[0])
            shares = self.ask("/v1/score", {**body, "apply_softmax": True})["scores"][0]
            self.assertAlmostEqual(sum(shares), 1, places=5)
            for share, score in zip(shares, scores, strict=True):
                self.assertAlmostEqual(share, score / sum(scores), places=4)


if __name__ == "__main__":
    skipping.main()
