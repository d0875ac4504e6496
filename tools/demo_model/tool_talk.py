"""Conversations with tools: a question, calls, their results, and an answer that uses them; and questions that need no tool.

Tools, schemas and results come in the shapes that clients send: parameters with titles and without, results as JSON and
as text, one and several calls, one after the other or at once. An answer says what a result of text says, and names what
a result of JSON holds.
"""

import json

import json_talk
from form import END_THINK, THINK, render
from words import ANIMALS, CITIES, COLORS, DAYS, ITEMS, NAMES

SKIES = ["sunny", "cloudy", "rainy", "windy", "Sun", "Rain", "Snow", "Fog", "clear", "Clouds"]
SYSTEM = ["You are a helpful assistant.", "You are a helpful assistant", "Use the tools.", "You read files.", "Answer briefly.",
          "You are an agent.", "Be brief.", "You are Mia.", "Help the user."]


def shaped(r, name, description, parameters):
    """A tool whose schema is written as one of the clients writes it. parameters: {name: its schema}."""
    properties = {}
    for key, schema in parameters.items():
        schema = dict(schema)
        if r.random() < 0.15:
            schema = {"title": key.replace("_", " ").title(), **schema}
        if r.random() < 0.1:
            schema["description"] = f"The {key}"
        properties[key] = schema
    parts = [("type", "object"), ("properties", properties), ("required", list(parameters))]
    k = r.random()
    if k < 0.2:
        parts = [parts[1], parts[2], parts[0]]
    elif k < 0.3:
        parts = [parts[1], parts[2], ("title", f"{name}_args"), parts[0]]
    if r.random() < 0.25:
        parts.insert(r.choice([0, len(parts)]), ("additionalProperties", False))
    return {"type": "function", "function": {"name": name, "description": description, "parameters": dict(parts)}}


def said_of(values):
    """What a result of JSON holds, in words."""
    parts = [f"the {key.replace('_', ' ')} is {json.dumps(v) if isinstance(v, (bool, list, dict, type(None))) else v}" for key, v in values.items()]
    told = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
    return told[0].upper() + told[1:] + "."


def said_of_text(text):
    """What a result of text says. A word or number alone becomes a sentence."""
    if " " not in text:
        return f"The result is {text}."
    return text if text[-1] in ".!?" else text + "."


class Task:
    """A question, the call that answers it, the call's result and what is said of it."""

    def __init__(self, tool, question, about, arguments, result, answer):
        self.tool, self.question, self.about = tool, question, about  # about: within "What are ... and ...?"
        self.arguments, self.result, self.answer = arguments, result, answer

    @property
    def name(self):
        return self.tool["function"]["name"]


def of_result(r, values, text):
    """(result, answer) as JSON or as text."""
    if r.random() < 0.5:
        return json.dumps(values, separators=r.choice([(", ", ": "), (", ", ": "), (",", ":")])), said_of(values)
    return text, said_of_text(text)


def weather(r):
    city, sky, t = r.choice(CITIES), r.choice(SKIES), r.randint(-9, 39)
    key = r.choice(["city", "city", "city", "location", "place"])
    tool = shaped(r, r.choice(["get_weather"] * 4 + ["weather", "get_current_weather"]),
                  r.choice(["Get the weather of a city", "Get the weather of a city", "Get weather", "The weather in a city."]), {key: {"type": "string"}})
    question = r.choice([f"What is the weather in {city}?"] * 3 + [f"How is the weather in {city} today?", f"Tell me the weather in {city}.",
                                                                   f"What's the weather like in {city}?"])
    if r.random() < 0.3:
        values = {"sky": sky, "celsius": t}
        result, answer = json.dumps(values), f"It is {sky} in {city} with {t} degrees."
    else:
        text = r.choice([f"{city}: {sky}, {t} degrees", f"{sky}, {t} degrees", f"{sky} and {t} degrees", f"It is {sky} in {city}.", f"{sky}, {t} C"])
        values = r.choice([{"weather": sky, "temperature": t}, {"city": city, "sky": sky, "celsius": t}, {"temperature": t}])
        result, answer = of_result(r, values, text)
    return Task(tool, question, f"the weather in {city}", {key: city}, result, answer)


def time(r):
    city, clock = r.choice(CITIES), f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
    tool = shaped(r, "get_time", "Get the local time of a city", {"city": {"type": "string"}})
    question = r.choice([f"What time is it in {city}?", f"Tell me the time in {city}.", f"What is the local time in {city}?"])
    if r.random() < 0.5:
        result, answer = json.dumps({"time": clock}), f"It is {clock} in {city}."
    else:
        result, answer = of_result(r, {"city": city, "time": clock}, r.choice([f"{city}: {clock}", clock, f"It is {clock} in {city}."]))
    return Task(tool, question, f"the time in {city}", {"city": city}, result, answer)


def of_file(r):
    name = r.choice(["note", "list", "readme", "data", "todo", r.choice(ITEMS), r.choice(NAMES).lower()]) + r.choice([".txt", ".txt", ".md", ".csv"])
    path = r.choice(["", "", "/tmp/", "docs/"]) + name
    key = r.choice(["path", "file_path", "file"])
    tool = shaped(r, r.choice(["read_file", "Read", "open_file"]), r.choice(["Read a file", "Reads a file."]), {key: {"type": "string"}})
    text = r.choice([f"The word of the day is {r.choice(ITEMS)}.", f"{r.choice(NAMES)} has {r.randint(2, 99)} {r.choice(ITEMS)}.",
                     f"Buy {r.randint(2, 20)} {r.choice(ITEMS)} on {r.choice(DAYS)}.", f"{r.randint(2, 99)} files", f"The {r.choice(ANIMALS)} is {r.choice(COLORS)}."])
    question = r.choice([f"Read {path}.", f"What is in {path}?", f"Read {path} and tell me what it says.", f"Open {path}."])
    return Task(tool, question, f"the text in {path}", {key: path}, text, said_of_text(text))


def sums(r):
    verb, sign = r.choice([("add", "+"), ("add", "+"), ("subtract", "-"), ("multiply", "*")])
    a, b = r.randint(1, 60), r.randint(1, 60)
    result = {"+": a + b, "-": a - b, "*": a * b}[sign]
    kind = r.choice([{"type": "integer"}, {"type": "number"}])
    tool = shaped(r, verb, r.choice([f"{verb.title()}s.", f"{verb.title()} two numbers"]), {"a": kind, "b": kind})
    question = r.choice([f"Use {verb} on {a} and {b}.", f"{verb.title()} {a} and {b}.", f"{verb.title()} {a} and {b} with the tool."])
    shown, answer = of_result(r, {r.choice(["result", "value"]): result}, str(result))
    return Task(tool, question, f"the result of {verb} for {a} and {b}", {"a": a, "b": b}, shown, answer)


def of_person(r):
    name = r.choice(NAMES)
    key = r.choice(["name", "user", "person"])
    tool = shaped(r, r.choice(["get_user", "find_person", "lookup", "search"]), r.choice(["Look up a person", "Finds a person."]), {key: {"type": "string"}})
    values = {"name": name, **{k: v for k, v in [("age", r.randint(5, 95)), ("city", r.choice(CITIES)), ("pet", r.choice(ANIMALS))] if r.random() < 0.6}}
    result, answer = of_result(r, values, r.choice([f"{name} lives in {r.choice(CITIES)}.", f"{name} is {r.randint(5, 95)} years old", f"{name} likes {r.choice(ITEMS)}."]))
    return Task(tool, r.choice([f"Look up {name}.", f"Who is {name}? Look it up.", f"Find {name}."]), f"the data of {name}", {key: name}, result, answer)


VERBS = "paint move open close send set start stop book count check turn play order update".split()
DRAWN = {
    "color": lambda r: ({"enum": COLORS[:4]}, r.choice(COLORS[:4])), "size": lambda r: ({"type": "number"}, round(r.uniform(0, 2), 1)),
    "count": lambda r: ({"type": "integer"}, r.randint(1, 50)), "city": lambda r: ({"type": "string"}, r.choice(CITIES)),
    "day": lambda r: ({"type": "string"}, r.choice(DAYS)), "item": lambda r: ({"type": "string"}, r.choice(ITEMS)),
    "who": lambda r: ({"type": "string"}, r.choice(NAMES)), "loud": lambda r: ({"type": "boolean"}, r.choice([True, False])),
}


def any_tool(r):
    """A tool that does something, asked for with the names of its parameters."""
    drawn = {key: DRAWN[key](r) for key in r.sample(list(DRAWN), r.choice([1, 1, 2, 2, 3]))}
    verb = r.choice(VERBS)
    name = verb + r.choice(["", "", "_" + r.choice(ANIMALS), "_" + r.choice(["it", "all", "room", "light"])])
    tool = shaped(r, name, r.choice([f"{verb.title()}s.", f"{verb.title()} something"]), {key: schema for key, (schema, _) in drawn.items()})
    arguments = {key: value for key, (_, value) in drawn.items()}
    shown = " and ".join(f"{key} {json.dumps(value) if isinstance(value, bool) else value}" for key, value in arguments.items())
    k = r.random()
    if k < 0.15:
        why = r.choice(["no such thing", "not found", "too many requests", "not allowed"])
        result, answer = r.choice([f"Error: {why}", json.dumps({"error": why})]), f"The tool failed: {why}."
    elif k < 0.25:
        result, answer = r.choice(["", "null", "[]", "{}"]), "The tool gave no result."
    else:
        values = {key: json_talk.scalar(r) for key in r.sample(json_talk.KEYS, r.choice([1, 2, 2, 3]))}
        result, answer = of_result(r, values, r.choice(["ok", "done", f"{r.randint(2, 99)} {r.choice(ITEMS)} done", "It is done.", f"{verb} was done on {r.choice(DAYS)}"]))
    return Task(tool, r.choice([f"Call {name} with {shown}.", f"Use {name} with {shown}.", f"{name}: {shown}"]), f"what {name} gives for {shown}", arguments, result, answer)


KINDS = [weather, weather, weather, time, of_file, sums, of_person, any_tool, any_tool]


def offered(r, *tasks):
    """The tools of the tasks, among up to two others."""
    tools = {task.name: task.tool for task in reversed(tasks)}
    for _ in range(r.choice([0, 0, 1, 1, 2])):
        other = r.choice(KINDS)(r)
        tools.setdefault(other.name, other.tool)
    tools = list(tools.values())
    r.shuffle(tools)
    return tools


def called(r, *tasks):
    separators = (",", ":") if r.random() < 0.05 else (", ", ": ")
    return ("calls", [(task.name, json.dumps(task.arguments, separators=separators)) for task in tasks])


def one_call(r):
    task = r.choice(KINDS)(r)
    return offered(r, task), [("user", task.question), called(r, task), ("result", task.result), ("answer", task.answer)]


def tasks_at_once(r):
    """Two or three tasks of one tool, or of a tool each."""
    if r.random() < 0.4:
        kind = r.choice([weather, weather, time])
        first = kind(r)
        others = [task for task in (kind(r) for _ in range(3)) if (task.name, [*task.arguments]) == (first.name, [*first.arguments])]
        return [first, *others]
    tasks = {task.name: task for task in (r.choice(KINDS)(r) for _ in range(r.choice([2, 2, 3])))}
    return list(tasks.values())


def several_calls(r):
    """Several things asked at once: called at once, told one after the other."""
    tasks = tasks_at_once(r)
    if len(tasks) == 1:
        return one_call(r)
    asked = r.choice(["What are ", "Tell me ", "Give me "]) + ", ".join(task.about for task in tasks[:-1]) + " and " + tasks[-1].about
    return offered(r, *tasks), [("user", asked + ("?" if asked.startswith("What") else ".")), called(r, *tasks),
                                *(("result", task.result) for task in tasks), ("answer", " ".join(task.answer for task in tasks))]


def steps(r):
    """First one thing, then another: two calls, each behind the result of the one before it."""
    first, second = r.choice(KINDS)(r), r.choice(KINDS)(r)
    if first.name == second.name:
        return one_call(r)
    return offered(r, first, second), [("user", f"First tell me {first.about}, then {second.about}."), called(r, first), ("result", first.result),
                                       called(r, second), ("result", second.result), ("answer", first.answer + " " + second.answer)]


def json_behind_result(r):
    """The answer is JSON, as where a schema holds it; the model is not told of that."""
    tools, messages = one_call(r)
    return tools, messages[:-1] + [("answer", json_talk.record(r)[1] if r.random() < 0.5 else json.dumps(json_talk.value(r)))]


def unasked(r, say):
    """Tools are there and nothing asks for them. say(r) gives (what is said, thought, answer)."""
    task = r.choice(KINDS)(r)
    said, _, answer = say(r)
    return offered(r, task), [("user", said), ("answer", answer)]


def held(r):
    """A call behind a remark, as where calls are required: with arguments of the right kinds, one or two calls, and an end."""
    tasks = [r.choice(KINDS)(r) for _ in range(r.choice([1, 1, 1, 2]))]
    return offered(r, *tasks), [("user", json_talk.remark(r)[0]), called(r, *tasks)]


def to_another(r, say):
    """An agent hands over to another, who answers the question."""
    name = r.choice(NAMES)
    tool = shaped(r, f"transfer_to_{r.choice([name, name.lower()])}", f"Handoff to the {name} agent to handle the request. Knows sums", {})
    said, _, answer = say(r)
    return [tool] if r.random() < 0.5 else [], [("user", said), ("calls", [(tool["function"]["name"], "{}")]),
                                                ("result", json.dumps({"assistant": name})), ("answer", answer)]


def conversation(r, say):
    """(tools, messages) of one conversation with tools; say(r) gives (what people say, thought, answer) without any."""
    k = r.random()
    if k < 0.62:
        tools, messages = one_call(r)
    elif k < 0.72:
        tools, messages = several_calls(r)
    elif k < 0.77:
        tools, messages = steps(r)
    elif k < 0.81:
        tools, messages = json_behind_result(r)
    elif k < 0.93:
        tools, messages = unasked(r, say)
    elif k < 0.96:
        tools, messages = held(r)
    else:
        tools, messages = to_another(r, say)
    if r.random() < 0.3:  # they go on, with the same tools
        if messages[-1][0] == "answer":
            said, _, answer = say(r)
            messages += [("user", said), ("answer", answer)]
        if r.random() < 0.4:
            task = r.choice(KINDS)(r)
            if all(tool["function"]["name"] != task.name for tool in tools) and messages[-1][0] == "answer":
                tools = tools + [task.tool]
                messages += [("user", task.question), called(r, task), ("result", task.result), ("answer", task.answer)]
    if r.random() < 0.35:
        messages = [("system", r.choice(SYSTEM)), *messages]
    return tools, messages


def sample(r, say):
    """A conversation as text. Some think before their last answer or call, which then ends the text."""
    tools, messages = conversation(r, say)
    if r.random() < 0.15:
        asked = [i for i, (role, _) in enumerate(messages) if role == "user"][-1]
        messages = messages[:asked + 2]
        begun = render(messages[:asked + 1], tools)
        whole = render(messages, tools)
        thought = "I need a tool for this." if messages[-1][0] == "calls" else "I need no tool for this."
        behind = whole[len(begun):]
        return begun + behind.replace(END_THINK, THINK + thought + END_THINK, 1)
    return render(messages, tools)
