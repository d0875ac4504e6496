"""litellm from PyPI, unchanged, by its providers openai, deepseek and anthropic, against `fathom serve`."""
import asyncio
import json
import os
import unittest

import skipping
import venv_python

venv_python.enter("openai2")

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks a host of its own for prices

from demo_questions import APPLES, APPLES_LEFT, MIA, OSLO, OSLO_WEATHER, WEATHER  # noqa: E402
from demo_record import Record  # noqa: E402
import litellm  # noqa: E402
from serving import Serving  # noqa: E402


def user(text):
    return [{"role": "user", "content": text}]


class LitellmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)
        cls.providers = {"openai": cls.server.url + "/v1", "deepseek": cls.server.url, "anthropic": cls.server.url}

    def each(self, **fields):
        """For every provider a function that asks."""
        for name, url in self.providers.items():
            common = {"model": name + "/default", "api_base": url, "api_key": "secret-key", "temperature": 0,
                      "max_tokens": 200, "num_retries": 0, **fields}
            with self.subTest(name):
                yield name, lambda messages, common=common, **more: litellm.completion(
                    messages=messages, **{**common, **more})

    @staticmethod
    def joined(chunks, messages):
        return litellm.stream_chunk_builder(list(chunks), messages=messages)

    def test_a_stream_joins_to_the_whole_answer(self):
        for _, ask in self.each():
            whole = ask(user(APPLES))
            self.assertIn(APPLES_LEFT, whole.choices[0].message.content)
            self.assertEqual(whole.choices[0].finish_reason, "stop")
            stream = self.joined(ask(user(APPLES), stream=True, stream_options={"include_usage": True}), user(APPLES))
            self.assertEqual(stream.choices[0].message.content, whole.choices[0].message.content)
            self.assertEqual(stream.usage.completion_tokens, whole.usage.completion_tokens)

    def test_thinking_is_apart_from_the_answer(self):
        thinking = {"type": "enabled", "budget_tokens": 1024}
        switches = {"openai": {"reasoning_effort": "low"}, "deepseek": {"thinking": thinking},
                    # litellm knows by a model's name whether it thinks; ours has another.
                    "anthropic": {"thinking": thinking, "allowed_openai_params": ["thinking"], "temperature": 1,
                                  "top_k": 1}}
        for name, ask in self.each():
            whole = ask(user(APPLES), **switches[name]).choices[0].message
            self.assertIn(APPLES_LEFT, whole.content)
            self.assertTrue(whole.reasoning_content)
            stream = self.joined(ask(user(APPLES), stream=True, **switches[name]), user(APPLES)).choices[0].message
            self.assertEqual((stream.content, stream.reasoning_content), (whole.content, whole.reasoning_content))
            again = ask([*user(APPLES), whole.model_dump(), *user("Are you sure?")])
            self.assertTrue(again.choices[0].message.content)

    def test_a_tool_is_called_and_its_result_answered(self):
        for _, ask in self.each(tools=[WEATHER]):
            whole = ask(user(OSLO), tool_choice="required").choices[0]
            self.assertEqual(whole.finish_reason, "tool_calls")
            call = whole.message.tool_calls[0]
            self.assertEqual((call.function.name, json.loads(call.function.arguments)),
                             ("get_weather", {"city": "Oslo"}))
            stream = self.joined(ask(user(OSLO), tool_choice="required", stream=True), user(OSLO)).choices[0]
            self.assertEqual(stream.finish_reason, "tool_calls")
            self.assertEqual(stream.message.tool_calls[0].function, call.function)
            answer = ask([*user(OSLO), whole.message.model_dump(),
                          {"role": "tool", "tool_call_id": call.id, "content": OSLO_WEATHER}]).choices[0]
            self.assertEqual(answer.finish_reason, "stop")
            self.assertTrue(answer.message.content)

    def test_a_response_format_holds(self):
        for _, ask in self.each(response_format=Record):
            whole = ask(user(MIA)).choices[0].message.content
            Record.model_validate_json(whole)
            Record.model_validate_json(self.joined(ask(user(MIA), stream=True), user(MIA)).choices[0].message.content)

    def test_a_context_that_is_too_long_is_known_as_such(self):
        """By this error agents that ask through litellm shorten the conversation."""
        too_long = user("hello " * 40_000)
        for provider, url in {**self.providers, "hosted_vllm": self.server.url + "/v1"}.items():
            common = {"model": provider + "/default", "api_base": url, "api_key": "secret-key", "num_retries": 0}
            for stream in (False, True):
                with self.subTest(provider, stream=stream), self.assertRaises(litellm.ContextWindowExceededError):
                    litellm.completion(messages=too_long, max_tokens=10, stream=stream, **common)
            if provider == "anthropic":  # an upper bound there
                continue
            with self.subTest(provider), self.assertRaises(litellm.ContextWindowExceededError):
                litellm.completion(messages=user(APPLES), max_tokens=1_000_000, **common)

    def test_max_tokens_of_anthropics_form_is_an_upper_bound(self):
        answer = litellm.completion(model="anthropic/default", api_base=self.server.url, api_key="secret-key",
                                    temperature=0, messages=user(APPLES), max_tokens=1_000_000)
        self.assertIn(APPLES_LEFT, answer.choices[0].message.content)

    def test_anthropics_messages_go_over_every_route(self):
        """As litellm's proxy takes them from Claude Code; over `openai` they become a request of /v1/responses."""
        for provider, url in {**self.providers, "hosted_vllm": self.server.url + "/v1"}.items():
            with self.subTest(provider):
                answer = asyncio.run(litellm.anthropic.messages.acreate(
                    model=provider + "/default", api_base=url, api_key="secret-key", max_tokens=200, temperature=0,
                    messages=user(APPLES)))
                text = [block["text"] for block in dict(answer)["content"] if block["type"] == "text"]
                self.assertIn(APPLES_LEFT, "".join(text))

    def test_errors_are_those_of_the_client(self):
        for _, ask in self.each():
            with self.assertRaises(litellm.AuthenticationError):
                ask(user(APPLES), api_key="wrong-key")
            with self.assertRaises(litellm.BadRequestError) as caught:
                ask(user(APPLES), top_p=7)
            self.assertIn("top_p", str(caught.exception))


if __name__ == "__main__":
    skipping.main()
