"""What a trained model says to those who have just met it, and how often it does with tools and JSON what it learnt.

    talk_check.check(lambda prompts, steps: [...], log)    # the texts behind prompts, special tokens and all
"""

import json
import random

import corpus
import form
import json_talk
import talk
import tool_talk

FIRST_MESSAGES = [
    "Hi", "hi", "Hello", "Hello!", "Hey", "Good morning", "你好", "你好！", "谢谢", "Thanks", "Bye", "How are you?", "Who are you?",
    "What can you do?", "7-3", "7 - 3 = ?", "2+2", "12*3", "What is 7-3?", "7减3等于多少？", "What is the capital of France?",
    "Tell me a joke", "Write a poem about the sea", "asdf", "人工智能是什么？",
    "Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?",
]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OSLO = "What is the weather in Oslo?"


def chat(message, start=form.END_THINK, system=""):
    return form.BOS + system + form.USER + message + form.ASSISTANT + start


def talked(answers_of, log):
    """How many answers to 300 messages of each kind are right to the letter, and what the first messages of people get."""
    for kind in (talk.small_talk, talk.arithmetic, talk.unknown):
        r = random.Random(17)
        pairs = [kind(r) for _ in range(300)]
        answers = answers_of([chat(message) for message, _ in pairs], 60)
        log(kind.__name__, "accuracy", sum(got == want + form.EOS for got, (_, want) in zip(answers, pairs)) / len(pairs))
    for name, start in (("", form.END_THINK), ("thinking ", form.THINK)):
        for message, answer in zip(FIRST_MESSAGES, answers_of([chat(message, start) for message in FIRST_MESSAGES], 60)):
            log(f"{name}{message!r} -> {answer!r}")


def each_answer(tools, messages):
    """(what is before it, what it is) of every call and answer of a conversation."""
    for i, (role, _) in enumerate(messages):
        if role in ("calls", "answer"):
            before, whole = form.render(messages[:i], tools), form.render(messages[: i + 1], tools)
            start = form.ASSISTANT + form.END_THINK if messages[i - 1][0] == "user" else ""
            yield before + start, whole[len(before) + len(start):]


def with_tools(answers_of, log):
    """Of 80 conversations of each kind: calls right to the letter, answers right, and calls where there should be an answer."""
    for kind in (tool_talk.one_call, tool_talk.several_calls, tool_talk.steps,
                 lambda r: tool_talk.unasked(r, lambda r: corpus.turn(r, corpus.LATER))):
        r = random.Random(23)
        pairs = [pair for _ in range(80) for pair in each_answer(*kind(r))]
        got = answers_of([before for before, _ in pairs], 110)
        is_call = [want.startswith(form.TOOL_CALLS[0]) for _, want in pairs]
        right = [text == want for text, (_, want) in zip(got, pairs)]
        calls, answers = sum(is_call), len(pairs) - sum(is_call)
        again = sum(form.TOOL_CALLS[0] in text for text, call in zip(got, is_call) if not call)
        name = kind.__name__.strip("<>")
        if calls:
            log("tools", name, "calls right", sum(a and b for a, b in zip(right, is_call)) / calls)
        log("tools", name, "answers right", sum(a and not b for a, b in zip(right, is_call)) / answers, "calls for answers", again / answers)


def as_clients_send(answers_of, log):
    """One question of a tool with its result, in the ways in which the clients of tests/clients send it. Each is to be answered."""
    schemas = [WEATHER, {"properties": WEATHER["properties"], "required": ["city"], "type": "object"},
               {"additionalProperties": False, **WEATHER}, {**WEATHER, "additionalProperties": False},
               {"properties": {"city": {"title": "City", "type": "string"}}, "required": ["city"], "title": "get_weather_args", "type": "object"}]
    prompts = []
    for schema in schemas:
        tools = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city", "parameters": schema}}]
        for result in ("Oslo: Rain, 7 degrees", "Rain, 7 degrees"):
            for arguments in ('{"city": "Oslo"}', '{"city":"Oslo"}'):
                messages = [("user", OSLO), ("calls", [("get_weather", arguments)]), ("result", result)]
                prompts.append(form.render(messages, tools))
    texts = answers_of(prompts, 60)
    log("as clients send: calls for answers", sum(form.TOOL_CALLS[0] in text for text in texts), "of", len(texts), "and", repr(texts[0]))


def in_json(answers_of, log):
    """How many records are right, and how many answers that begin as JSON are JSON that ends."""
    r = random.Random(29)
    pairs = [json_talk.record(r) for _ in range(200)]
    got = answers_of([chat(message) for message, _ in pairs], 80)
    log("record accuracy", sum(text == want + form.EOS for text, (_, want) in zip(got, pairs)) / len(pairs))
    for begin in ('{"', "[", '"'):
        prompts = [chat(json_talk.remark(r)[0]) + begin for _ in range(100)] + [chat("Tom has 3 apples.") + begin, chat(OSLO) + begin]
        log("JSON that begins with", begin, "ends", sum(is_json(begin + text) for text in answers_of(prompts, 120)) / len(prompts))


def is_json(text):
    try:
        json.loads(text.removesuffix(form.EOS))
    except ValueError:
        return False
    return text.endswith(form.EOS)


def check(answers_of, log):
    """Logs all of the above, of seeds that training does not have."""
    for each in (talked, with_tools, as_clients_send, in_json):
        each(answers_of, log)
