"""instructor from PyPI, unchanged, over the openai package's client, against `fathom serve` on the demo model."""
import unittest

import skipping
import venv_python

venv_python.enter("openai2")

from demo_questions import APPLES, APPLES_LEFT, MIA, THINKING  # noqa: E402
from demo_record import Record  # noqa: E402
import instructor  # noqa: E402
import openai  # noqa: E402
from serving import Serving  # noqa: E402


class InstructorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)
        cls.openai = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="secret-key", max_retries=0, timeout=600)

    def client(self, mode=instructor.Mode.TOOLS):
        return instructor.from_openai(self.openai, mode=mode)

    @staticmethod
    def fields(**fields):
        return {"model": "default", "messages": [{"role": "user", "content": MIA}], "response_model": Record,
                "temperature": 0, "max_tokens": 200, "max_retries": 0, **fields}

    def test_every_mode_that_holds_the_model_gives_a_record(self):
        for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA,
                     instructor.Mode.RESPONSES_TOOLS):
            with self.subTest(mode):
                self.assertIsInstance(self.client(mode).create(**self.fields()), Record)

    def test_a_stream_grows_to_the_record(self):
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
            with self.subTest(mode):
                client = self.client(mode)
                states = list(client.create_partial(**self.fields()))
                self.assertGreater(len({str(state) for state in states}), 2)
                self.assertEqual(states[-1].model_dump(), client.create(**self.fields()).model_dump())

    def test_a_list_of_records_streams(self):
        # Of itself the demo model leaves the list empty, so what begins a record gets a bias.
        begin = self.openai.with_options(base_url=self.server.url).post(
            "/tokenize", body={"prompt": '{"', "add_special_tokens": False}, cast_to=object)["tokens"]
        records = list(self.client().create_iterable(**self.fields(logit_bias=dict.fromkeys(begin, 8))))
        self.assertTrue(records)
        for record in records:
            self.assertIsInstance(record, Record)

    def test_thinking_comes_beside_the_record(self):
        record, completion = self.client(instructor.Mode.JSON_SCHEMA).create_with_completion(
            **self.fields(messages=[{"role": "user", "content": APPLES}], extra_body=THINKING))
        self.assertIsInstance(record, Record)
        self.assertTrue(completion.choices[0].message.reasoning_content)

    def test_a_stream_with_thinking_grows_to_the_record(self):
        states = list(self.client(instructor.Mode.JSON_SCHEMA).create_partial(
            **self.fields(messages=[{"role": "user", "content": APPLES}], extra_body=THINKING)))
        self.assertGreater(len({str(state) for state in states}), 2)
        Record.model_validate(states[-1].model_dump())

    def test_without_a_model_it_is_the_openai_client(self):
        answer = self.client().create(**self.fields(
            response_model=None, messages=[{"role": "user", "content": APPLES}]))
        self.assertIn(APPLES_LEFT, answer.choices[0].message.content)


if __name__ == "__main__":
    skipping.main()
