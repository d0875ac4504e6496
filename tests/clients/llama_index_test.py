"""llama-index's OpenAILike from PyPI, unchanged, against `fathom serve` on the demo model."""
import asyncio
import unittest

import skipping
import venv_python

venv_python.enter("openai2")

from demo_questions import APPLES, APPLES_LEFT, MIA, OSLO, THINKING, get_weather  # noqa: E402
from demo_record import Record  # noqa: E402
from llama_index.core.agent.workflow import FunctionAgent  # noqa: E402
from llama_index.core.llms import ChatMessage  # noqa: E402
from llama_index.core.tools import FunctionTool  # noqa: E402
from llama_index.llms.openai_like import OpenAILike  # noqa: E402
from serving import Serving  # noqa: E402

PROMPT = "Question: What is 3+4?\nAnswer:"


def messages(text):
    return [ChatMessage(role="user", content=text)]


def thoughts(answer):
    return "".join(block.content or "" for block in answer.message.blocks if block.block_type == "thinking")


class LlamaIndexTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Serving("--api-key", "secret-key")
        cls.addClassCleanup(cls.server.close)
        cls.tool = FunctionTool.from_defaults(get_weather)

    def model(self, **fields):
        return OpenAILike(**{"model": "default", "api_base": self.server.url + "/v1", "api_key": "secret-key",
                             "is_chat_model": True, "is_function_calling_model": True, "context_window": 4096,
                             "temperature": 0, "max_tokens": 200, "max_retries": 0, "timeout": 600, **fields})

    def test_a_stream_joins_to_the_whole_answer(self):
        model = self.model()
        whole = model.chat(messages(APPLES)).message.content
        self.assertIn(APPLES_LEFT, whole)
        self.assertEqual("".join(answer.delta or "" for answer in model.stream_chat(messages(APPLES))), whole)

    def test_a_completion_is_not_a_chat(self):
        model = self.model(is_chat_model=False, is_function_calling_model=False, max_tokens=16)
        whole = model.complete(PROMPT).text
        self.assertTrue(whole)
        self.assertEqual("".join(answer.delta for answer in model.stream_complete(PROMPT)), whole)

    def test_thinking_is_a_block_of_its_own(self):
        model = self.model(additional_kwargs={"extra_body": THINKING})
        whole = model.chat(messages(APPLES))
        self.assertIn(APPLES_LEFT, whole.message.content)
        self.assertTrue(thoughts(whole))
        stream = list(model.stream_chat(messages(APPLES)))
        self.assertEqual(stream[-1].message.content, whole.message.content)
        self.assertEqual("".join(answer.additional_kwargs.get("thinking_delta", "") for answer in stream),
                         thoughts(whole))

    def test_a_forced_call_is_whole_and_in_pieces_the_same(self):
        model = self.model()
        whole = model.chat_with_tools([self.tool], user_msg=OSLO, tool_required=True)
        *_, last = model.stream_chat_with_tools([self.tool], user_msg=OSLO, tool_required=True)
        for answer in (whole, last):
            call, = model.get_tool_calls_from_response(answer)
            self.assertEqual((call.tool_name, call.tool_kwargs), ("get_weather", {"city": "Oslo"}))

    def test_an_agent_calls_a_tool_and_answers(self):
        async def run():
            return await FunctionAgent(tools=[self.tool], llm=self.model()).run(OSLO)
        answer = asyncio.run(run())
        self.assertEqual([call.tool_name for call in answer.tool_calls], ["get_weather"])
        self.assertTrue(answer.response.content)

    def test_structured_output_fits(self):
        for native in (False, True):
            with self.subTest(native=native):
                model = self.model(should_use_structured_outputs=native).as_structured_llm(Record)
                self.assertIsInstance(model.complete(MIA).raw, Record)
        # Streamed without a schema it leaves to the model whether a call is made.
        model = self.model(should_use_structured_outputs=True).as_structured_llm(Record)
        *_, last = model.stream_chat(messages(MIA))
        Record.model_validate(last.raw.model_dump())


if __name__ == "__main__":
    skipping.main()
