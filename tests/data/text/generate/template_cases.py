"""Writes templates.jsonl, expressions.jsonl and whitespace.jsonl. See README.md."""

import copy
import datetime
import json
import pathlib
import random

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
OUT = HERE.parent


class Generation(Extension):
    """The {% generation %} tag of transformers, which only marks text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
)
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)


def case(template, context):
    result = {"template": template}
    try:
        result["want"] = environment.from_string(template).render(**copy.deepcopy(context))
    except jinja2.exceptions.TemplateError as error:
        result["error"] = str(error) if type(error) is jinja2.exceptions.TemplateError else None
    except Exception:
        result["error"] = None
    return result


def comparable(result):
    text = result.get("want", "")
    return " at 0x" not in text and "<generator" not in text and "Markup" not in text


def write(name, context, results):
    lines = [json.dumps({"context": context})] + [json.dumps(r) for r in results if comparable(r)]
    (OUT / name).write_text("\n".join(lines) + "\n")
    print(name, len(lines) - 1, "of which errors", sum("error" in r for r in results))


VALUES = {
    "s": "Hello, World", "e": "", "u": "naïve café ☕ 你好", "ws": "  \n pad\t ", "n": 5, "z": 0, "neg": -7,
    "f": 2.5, "big": 1e20, "tiny": 1e-7, "t": True, "fa": False, "no": None, "l": [3, 1, 2],
    "ls": ["b", "A", "c"], "le": [], "d": {"b": 1, "a": "x", "C": None}, "de": {},
    "nest": {"items": [1, 2], "keys": "k", "x": {"y": [{"z": "deep"}]}},
    "objs": [{"name": "Bob", "age": 30, "on": True}, {"name": "alice", "age": 25, "on": False},
             {"name": "Carl", "age": 30}],
    "q": "it's \"q\" \\ \n\t\x01\x7f é", "html": "<a href='x'>&\"</a>",
    "mixed": [1, "a", None, True, 2.0, [1, [2]], {"k": 1}],
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                 {"role": "assistant", "content": "A", "tool_calls": [{"type": "function", "function": {
                     "name": "f", "arguments": {"x": 1, "y": [1, 2.50, None, "é"]}}}]}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}, {"v": 5, "c": []}],
    "pairs": [[1, "a"], [2, "b"]],
}


def expressions():
    results = []
    for line in (HERE / "expressions.txt").read_text().splitlines():
        results.append(case("{{ " + line + " }}", VALUES))
        results.append(case("{% for x in (" + line + ") %}[{{ x }}]{% else %}none{% endfor %}", VALUES))
    for line in (HERE / "statements.txt").read_text().splitlines():
        results.append(case(line, VALUES))
    write("expressions.jsonl", VALUES, results)


def whitespace():
    generator = random.Random(5)
    context = {"n": 3, "t": True, "f": False, "l": [1, 2]}
    blanks = [" ", "  ", "\n", "\n\n", "\t", " \n", "\n  ", "", "x", "yy ", "\r\n", "{", "}", "%", "\u3000\n"]

    def blank():
        return "".join(generator.choice(blanks) for _ in range(generator.randint(0, 4)))

    def opening():
        return "{%" + generator.choice(["", "", "-", "+"])

    def closing():
        return generator.choice(["", "", "-", "+"]) + "%}"

    def piece(depth):
        chance = generator.random()
        sign = generator.choice(["", "", "-"])
        if chance < 0.25:
            return "{{" + sign + generator.choice([" n ", " 'a' ", "n"]) + generator.choice(["", "-"]) + "}}"
        if chance < 0.35:
            return "{#" + generator.choice(["", "-", "+"]) + " c " + generator.choice(["", "-", "+"]) + "#}"
        if chance < 0.45:
            return opening() + " set v = 1 " + closing()
        if chance < 0.52:
            return (opening() + " raw " + generator.choice(["", "-"]) + "%}" + blank() + "{{ r }}" + blank()
                    + opening() + " endraw " + closing())
        if depth > 0 and chance < 0.75:
            return opening() + " if t " + closing() + body(depth - 1) + opening() + " endif " + closing()
        if depth > 0:
            return opening() + " for i in l " + closing() + body(depth - 1) + opening() + " endfor " + closing()
        return blank()

    def body(depth):
        return "".join(blank() + piece(depth) + blank() for _ in range(generator.randint(1, 3)))

    results = []
    while len(results) < 400:
        result = case(body(2), context)
        if "want" in result or generator.random() < 0.05:
            results.append(result)
    write("whitespace.jsonl", context, results)


TOOLS = [{"type": "function", "function": {
    "name": "find_mill", "description": "Finds a \"mill\" <near> & far, 水车",
    "parameters": {"type": "object", "required": ["river"], "additionalProperties": False, "properties": {
        "river": {"type": "string", "description": "Name of the river"},
        "wheel": {"type": "string", "enum": ["over", "under"]},
        "limit": {"type": ["integer", "null"], "minimum": 0, "maximum": 1.5, "default": None},
        "tags": {"type": "array", "items": {"type": "string"}}}}}}]


def call(arguments):
    return {"id": "c1", "type": "function", "function": {"name": "find_mill", "arguments": arguments}}


def says(role, content, **more):
    return {"role": role, "content": content, **more}


CONVERSATIONS = {
    "one": [says("user", "Who are you?")],
    "system": [says("system", "Be brief.\n"), says("user", " Hi ")],
    "turns": [says("user", "a"), says("assistant", " b\n"), says("user", "c"), says("assistant", "d"),
              says("user", "e")],
    "empty": [says("user", "")],
    "none": [],
    "unicode": [says("user", "naïve ☕ 你好 👩‍👩‍👧 \u200d\u00a0x\r\n")],
    "quotes": [says("user", "it's \"q\" \\ {{ x }} {% y %} <|end|>")],
    "think": [says("user", "q"), says("assistant", "<think>\nhm\n</think>\n\nyes"), says("user", "r")],
    "reasoning": [says("user", "q"), says("assistant", "yes", reasoning_content="why"), says("user", "r"),
                  says("assistant", "z", reasoning_content=" w ")],
    "tool": [says("user", "w?"), says("assistant", "", tool_calls=[call({"river": "Elbe", "limit": 1})]),
             says("tool", "{\"t\": 20}"), says("tool", "30"), says("assistant", "20"), says("user", "thx")],
    "tool_text": [says("user", "w?"), says("assistant", None, tool_calls=[call("{\"river\": \"X\"}"), call("{}")]),
                  says("tool", "1")],
    "parts": [says("user", [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}])],
    "two_users": [says("user", "a"), says("user", "b")],
    "late_system": [says("user", "a"), says("system", "s"), says("user", "b")],
    "ends_with_assistant": [says("user", "a"), says("assistant", "b")],
}


def templates():
    results = []
    for path in sorted((OUT / "templates").glob("*.jinja")):
        source = path.read_text()
        for name, messages in CONVERSATIONS.items():
            for extra in ({}, {"tools": TOOLS}, {"enable_thinking": False, "add_generation_prompt": False}):
                context = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "messages": messages,
                           "add_generation_prompt": True, **extra}
                result = case(source, context)
                result["template"] = path.name
                results.append({"name": f"{path.stem}/{name}/{'+'.join(extra)}", "context": context, **result})
    (OUT / "templates.jsonl").write_text("\n".join(json.dumps(r) for r in results) + "\n")
    print("templates.jsonl", len(results), "of which errors", sum("error" in r for r in results))


expressions()
whitespace()
templates()
