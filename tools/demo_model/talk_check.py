"""What a trained model says to those who have just met it.

    talk_check.check(lambda messages, start: [...], log)    # the answers to messages, begun with END_THINK or THINK
"""

import random

import corpus
import talk

FIRST_MESSAGES = [
    "Hi", "hi", "Hello", "Hello!", "Hey", "Good morning", "你好", "你好！", "谢谢", "Thanks", "Bye", "How are you?", "Who are you?",
    "What can you do?", "7-3", "7 - 3 = ?", "2+2", "12*3", "What is 7-3?", "7减3等于多少？", "What is the capital of France?",
    "Tell me a joke", "Write a poem about the sea", "asdf", "人工智能是什么？",
    "Mia has 12 apples. Mia gets 7 more apples. How many apples does Mia have now?",
]


def check(answers_of, log):
    """Logs how many answers to 300 messages of each kind, of a seed that training does not have, are right to the letter,
    and what the first messages of people get."""
    for kind in (talk.small_talk, talk.arithmetic, talk.unknown):
        r = random.Random(17)
        pairs = [kind(r) for _ in range(300)]
        answers = answers_of([message for message, _ in pairs], corpus.END_THINK)
        log(kind.__name__, "accuracy", sum(got == want for got, (_, want) in zip(answers, pairs)) / len(pairs))
    for name, start in (("", corpus.END_THINK), ("thinking ", corpus.THINK)):
        for message, answer in zip(FIRST_MESSAGES, answers_of(FIRST_MESSAGES, start)):
            log(f"{name}{message!r} -> {answer!r}")
