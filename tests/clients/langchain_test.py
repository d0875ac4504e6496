"""langchain, with its packages for OpenAI, DeepSeek and Anthropic, unchanged, against `fathom serve`."""
import functools
import operator
import unittest

import skipping
import venv_python

venv_python.enter("agents")

from demo_questions import APPLES, APPLES_LEFT, MIA, OSLO, THINKING, get_weather  # noqa: E402
from demo_record import Record  # noqa: E402
from langchain.agents import create_agent  # noqa: E402
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy  # noqa: E402
from langchain_anthropic import ChatAnthropic  # noqa: E402
from langchain_core.exceptions import ContextOverflowError  # noqa: E402
from langchain_deepseek import ChatDeepSeek  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from serving import Serving  # noqa: E402

COMMON = {"model": "default", "api_key": "secret-key", "max_retries": 0, "timeout": 600, "max_tokens": 200}


def joined(model, question):
    return functools.reduce(operator.add, model.stream(question))


def ask(agent, question):
    return agent.invoke({"messages": [("user", question)]}, {"recursion_limit": 8})


def kinds(state):
    return [message.type for message in state["messages"]]


class LangchainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)

    def openai(self, **fields):
        return ChatOpenAI(**COMMON, base_url=self.server.url + "/v1", temperature=0, stream_usage=True, **fields)

    def deepseek(self, **fields):
        return ChatDeepSeek(**COMMON, api_base=self.server.url, temperature=0, stream_usage=True, **fields)

    def anthropic(self, **fields):
        return ChatAnthropic(**COMMON, base_url=self.server.url, **fields)

    def models(self):
        return {"openai": self.openai(), "responses": self.openai(use_responses_api=True), "deepseek": self.deepseek(),
                "anthropic": self.anthropic(temperature=0)}

    def test_a_stream_joins_to_the_whole_answer(self):
        for name, model in self.models().items():
            with self.subTest(name):
                whole = model.invoke(APPLES)
                self.assertIn(APPLES_LEFT, whole.text)
                stream = joined(model, APPLES)
                self.assertEqual(stream.text, whole.text)
                self.assertGreater(whole.usage_metadata["output_tokens"], 0)
                self.assertEqual(stream.usage_metadata["output_tokens"], whole.usage_metadata["output_tokens"])

    def test_thinking_is_apart_from_the_answer(self):
        for model in (self.deepseek(extra_body=THINKING), self.deepseek(reasoning_effort="low")):
            for answer in (model.invoke(APPLES), joined(model, APPLES)):
                self.assertTrue(answer.additional_kwargs["reasoning_content"])
                self.assertIn(APPLES_LEFT, answer.text)
        # Anthropic's API takes no temperature beside thinking, so its likeliest token is asked for otherwise.
        model = self.anthropic(thinking={"type": "enabled", "budget_tokens": 1024}, top_k=1)
        for answer in (model.invoke(APPLES), joined(model, APPLES)):
            self.assertEqual([block["type"] for block in answer.content_blocks], ["reasoning", "text"])
            self.assertIn(APPLES_LEFT, answer.text)

    def test_thinking_is_an_item_of_a_response(self):
        model = self.openai(use_responses_api=True, reasoning={"effort": "high"})
        for answer in (model.invoke(APPLES), joined(model, APPLES)):
            self.assertEqual([block["type"] for block in answer.content_blocks], ["reasoning", "text"])
            self.assertIn(APPLES_LEFT, answer.text)
        # From a stream langchain takes no text of it.
        self.assertTrue(model.invoke(APPLES).content[0]["content"][0]["text"])

    def test_a_graph_keeps_its_reasoning_where_the_server_keeps_nothing(self):
        model = self.openai(use_responses_api=True, reasoning={"effort": "high", "summary": "auto"}, store=False,
                            include=["reasoning.encrypted_content"])
        agent = create_agent(model, [get_weather])
        state = ask(agent, APPLES)
        reasoning = state["messages"][-1].content[0]
        self.assertEqual(reasoning["type"], "reasoning")
        self.assertTrue(reasoning["encrypted_content"])
        # The reasoning goes back with what it came with.
        state["messages"].append(("human", APPLES))
        state = agent.invoke(state)
        self.assertEqual(kinds(state), ["human", "ai", "human", "ai"])
        self.assertIn(APPLES_LEFT, state["messages"][-1].text)

    def test_a_forced_call_is_whole_and_in_pieces_the_same(self):
        for name, model in self.models().items():
            with self.subTest(name):
                bound = model.bind_tools([get_weather], tool_choice="any")
                for answer in (bound.invoke(OSLO), joined(bound, OSLO)):
                    call = answer.tool_calls[0]
                    self.assertEqual((call["name"], call["args"]), ("get_weather", {"city": "Oslo"}))

    def test_an_agent_calls_a_tool_and_answers(self):
        for name, model in self.models().items():
            with self.subTest(name):
                state = ask(create_agent(model, [get_weather]), OSLO)
                self.assertEqual(kinds(state), ["human", "ai", "tool", "ai"])
                self.assertTrue(state["messages"][-1].text)

    def test_an_agent_streams_its_call_and_its_answer(self):
        for name, model in self.models().items():
            with self.subTest(name):
                pieces = [message for message, _ in create_agent(model, [get_weather]).stream(
                    {"messages": [("user", OSLO)]}, {"recursion_limit": 8}, stream_mode="messages")]
                results = [i for i, message in enumerate(pieces) if message.type == "tool"]
                self.assertEqual(len(results), 1)
                call = functools.reduce(operator.add, pieces[:results[0]])
                self.assertEqual([(call["name"], call["args"]) for call in call.tool_calls],
                                 [("get_weather", {"city": "Oslo"})])
                answer = [message.text for message in pieces[results[0] + 1:]]
                self.assertGreater(len([piece for piece in answer if piece]), 1)
                self.assertEqual("".join(answer), ask(create_agent(model, [get_weather]), OSLO)["messages"][-1].text)

    def test_an_agent_with_tools_answers_in_the_format(self):
        for name, model in self.models().items():
            with self.subTest(name):
                agent = create_agent(model, [get_weather], response_format=ProviderStrategy(Record))
                self.assertIsInstance(ask(agent, MIA)["structured_response"], Record)
                state = ask(agent, OSLO)
                self.assertEqual(kinds(state)[:3], ["human", "ai", "tool"])
                self.assertIsInstance(state["structured_response"], Record)

    def test_an_agent_answers_by_a_tool(self):
        for name, model in self.models().items():
            with self.subTest(name):
                agent = create_agent(model, [], response_format=ToolStrategy(Record))
                self.assertIsInstance(ask(agent, MIA)["structured_response"], Record)

    def test_a_context_that_is_too_long_is_known_as_such(self):
        """By this error an agent's middleware sums up the conversation."""
        for name, model in self.models().items():
            with self.subTest(name), self.assertRaises(ContextOverflowError):
                model.invoke("hello " * 40_000)

    def test_structured_output_fits(self):
        for name, model in self.models().items():
            for method in ("json_schema", "function_calling"):
                with self.subTest(name, method=method):
                    record = model.with_structured_output(Record, method=method).invoke(MIA)
                    self.assertIsInstance(record, Record)

    def test_a_call_that_was_cut_can_be_sent_back(self):
        model = self.openai()
        cut = model.bind_tools([get_weather], tool_choice="any").bind(max_tokens=8).invoke(OSLO)
        self.assertEqual(cut.response_metadata["finish_reason"], "length")
        self.assertEqual([call["name"] for call in cut.invalid_tool_calls], ["get_weather"])
        answer = model.bind_tools([get_weather]).invoke([("user", OSLO), cut, ("user", "Go on.")])
        self.assertTrue(answer.text or answer.tool_calls)


if __name__ == "__main__":
    skipping.main()
