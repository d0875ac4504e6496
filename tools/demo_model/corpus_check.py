"""Whether the corpus is what it claims to be, without a GPU and in seconds: conversations with tools are to the letter what
the chat template makes of the same messages, calls and records are JSON, and samples are short enough to be learnt whole.

    python3 tools/demo_model/corpus_check.py models/demo/tokenizer_config.json     # needs jinja2
"""

import collections
import json
import random
import sys

import jinja2

import corpus
import form
import json_talk
import tool_talk

ROLES = {"system": "system", "user": "user", "answer": "assistant", "result": "tool"}


def as_request(messages):
    for role, said in messages:
        if role == "calls":
            calls = [{"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in said]
            yield {"role": "assistant", "content": None, "tool_calls": calls}
        else:
            yield {"role": ROLES[role], "content": said}


def check_template(path):
    environment = jinja2.Environment()
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(json.load(open(path))["chat_template"])
    r = random.Random(3)
    kinds = collections.Counter()
    for _ in range(2000):
        tools, messages = tool_talk.conversation(r, lambda r: corpus.turn(r, corpus.LATER))
        kinds[" ".join(role for role, _ in messages if role != "system")] += 1
        wanted = template.render(messages=list(as_request(messages)), tools=tools or None, bos_token=form.BOS)
        got = form.render(messages, tools)
        assert got == wanted, f"{got}\n\n{wanted}"
        for role, said in messages:
            for _, arguments in said if role == "calls" else []:
                assert isinstance(json.loads(arguments), dict)
    print("conversations with tools, by their messages:", *kinds.most_common(), sep="\n  ")


def check_records():
    r = random.Random(4)
    for _ in range(2000):
        json.loads(json_talk.record(r)[1])
        json.loads(json_talk.asked_for(r)[1])


def check_sizes():
    samples = corpus.corpus(5, 4000)
    assert samples == corpus.corpus(5, 4000)
    longest = max(samples, key=len)
    print("samples:", len(samples), "mean length:", sum(map(len, samples)) / len(samples), "longest:", len(longest))
    assert all(sample.startswith(form.BOS) and sample.endswith(form.EOS) for sample in samples)
    assert len(longest) < 4096, longest


if __name__ == "__main__":
    check_template(sys.argv[1])
    check_records()
    check_sizes()
