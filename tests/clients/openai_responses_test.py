"""The Responses API of the openai package from PyPI, unchanged, against `fathom serve` on the demo model."""
import json
import unittest

import skipping
import venv_python

venv_python.enter()

import openai  # noqa: E402
from serving import Serving  # noqa: E402

QUESTION = "Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?"
OSLO = "What is the weather in Oslo?"
WEATHER = {"type": "function", "name": "get_weather", "description": "Get the weather of a city", "strict": False,
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
RECORD = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}


class OpenAiResponsesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "alice:secret-key", "--api-key", "bob:other-secret")
        cls.addClassCleanup(cls.server.close)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="secret-key", max_retries=0, timeout=600)

    def create(self, **fields):
        return self.client.responses.create(
            **{"model": "default", "input": QUESTION, "temperature": 0, "max_output_tokens": 64, **fields})

    def test_a_response_answers_and_counts_its_tokens(self):
        response = self.create(metadata={"topic": "apples"})
        self.assertEqual((response.object, response.status, response.error), ("response", "completed", None))
        self.assertIn("19", response.output_text)
        self.assertEqual([item.type for item in response.output], ["message"])
        self.assertEqual(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens)
        self.assertEqual(response.metadata, {"topic": "apples"})
        cut = self.create(max_output_tokens=3)
        self.assertEqual((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))

    def test_a_stream_joins_to_the_whole_answer(self):
        whole = self.create()
        with self.client.responses.stream(model="default", input=QUESTION, temperature=0,
                                          max_output_tokens=64) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
        self.assertEqual((text, final.output_text), (whole.output_text, whole.output_text))
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        events = list(self.create(stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual([event.type for event in events[:4]], [
            "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"])
        self.assertEqual([event.type for event in events[-4:]], [
            "response.output_text.done", "response.content_part.done", "response.output_item.done",
            "response.completed"])

    def test_reasoning_is_an_item_of_its_own(self):
        whole = self.create(reasoning={"effort": "high"}, max_output_tokens=200)
        self.assertEqual(whole.output[0].type, "reasoning")
        self.assertTrue(whole.output[0].content[0].text)
        self.assertGreater(whole.usage.output_tokens_details.reasoning_tokens, 0)
        pieces = [event.delta for event in self.create(reasoning={"effort": "high"}, max_output_tokens=200, stream=True)
                  if event.type == "response.reasoning_text.delta"]
        self.assertEqual("".join(pieces), whole.output[0].content[0].text)
        again = self.create(input=[{"role": "user", "content": QUESTION}, *whole.output,
                                   {"role": "user", "content": "Are you sure?"}])
        self.assertIn(again.status, ("completed", "incomplete"))

    def test_a_function_is_called_and_its_result_answered(self):
        fields = {"input": OSLO, "tools": [WEATHER], "tool_choice": "required", "max_output_tokens": 128}
        whole = self.create(**fields)
        call = whole.output[-1]
        self.assertEqual((call.type, call.name, call.status), ("function_call", "get_weather", "completed"))
        self.assertIsInstance(json.loads(call.arguments)["city"], str)
        pieces = [event.delta for event in self.create(stream=True, **fields)
                  if event.type == "response.function_call_arguments.delta"]
        self.assertGreater(len(pieces), 2)
        self.assertEqual("".join(pieces), call.arguments)
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain, 7 degrees"}
        by_items = self.create(tools=[WEATHER], input=[{"role": "user", "content": OSLO}, *whole.output, result])
        by_id = self.create(tools=[WEATHER], input=[result], previous_response_id=whole.id)
        self.assertTrue(by_items.output_text)
        self.assertEqual(by_id.output_text, by_items.output_text)

    def test_an_output_format_holds(self):
        answer = self.create(input="Give me a JSON record for Mia, age 9.", max_output_tokens=200,
                             text={"format": {"type": "json_schema", "name": "record", "schema": RECORD,
                                              "strict": True}})
        self.assertEqual(answer.status, "completed")
        self.assertEqual(set(json.loads(answer.output_text)), {"name", "age"})

    def test_a_stored_response_is_found_by_its_key_and_deleted(self):
        made = self.create()
        self.assertEqual(self.client.responses.retrieve(made.id).output_text, made.output_text)
        bob = self.client.with_options(api_key="other-secret")
        with self.assertRaises(openai.NotFoundError):
            bob.responses.retrieve(made.id)
        with self.assertRaises(openai.NotFoundError):
            bob.responses.create(model="default", input="x", previous_response_id=made.id)
        self.client.responses.delete(made.id)
        with self.assertRaises(openai.NotFoundError) as caught:
            self.create(previous_response_id=made.id)
        self.assertEqual(caught.exception.param, "previous_response_id")
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(self.create(store=False).id)

    def test_what_is_not_here_is_a_bad_request_that_names_it(self):
        for fields, param in (({"background": True}, "background"),
                              ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
                               "tool_choice.type"),
                              ({"temperature": -1}, "temperature")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.create(**fields)
            self.assertEqual(caught.exception.param, param)


if __name__ == "__main__":
    skipping.main()
