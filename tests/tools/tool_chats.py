#!/usr/bin/env python3
"""Writes tests/golden/tool-chats.json: what jinja2 (3.1, with Hugging Face's settings) makes of conversations with
tools by real chat templates, as length and FNV-1a hash of the text in UTF-8: of those in SHARED_DATA/tokenizers that
know tools, of tests/golden/templates/real, and of three that are not kept there, of LLAMA_CPP/models/templates.

    python3 tests/tools/tool_chats.py SHARED_DATA LLAMA_CPP > tests/golden/tool-chats.json
"""
import datetime
import json
import pathlib
import sys

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

DAY = datetime.datetime(2025, 1, 31, 12)
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "Weather of a city, é & <b>", "parameters": {
            "type": "object", "required": ["city"], "properties": {
                "city": {"type": "string", "description": "The city"},
                "days": {"type": "integer", "default": 3},
                "unit": {"type": "string", "enum": ["c", "f"]}}}}},
    {"type": "function", "function": {
        "name": "find", "description": "Search", "parameters": {
            "type": "object", "properties": {
                "q": {"type": "array", "items": {"type": "string"}},
                "deep": {"type": "object", "properties": {"x": {"type": "number"}}}}}}},
]


def call(name, arguments, number):
    return {"id": f"call0000{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(number, name, text):
    return {"role": "tool", "tool_call_id": f"call0000{number}", "name": name, "content": text}


SYSTEM, ASK = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Is it warm?"}
ONE = call("weather", {"city": 'Paris "é"', "days": 2}, 1)
TWO = call("find", {"q": ["a", "b"], "deep": {"x": 1.5}}, 2)
SAID = [result(1, "weather", '{"t": 3}'), result(2, "find", "nothing")]


def calls(content, *which):
    return {"role": "assistant", "content": content, "tool_calls": list(which)}


def texts(conversation):
    """The same with arguments as a text, which some templates want."""
    copy = json.loads(json.dumps(conversation))
    for m in copy:
        for c in m.get("tool_calls", []):
            c["function"]["arguments"] = json.dumps(c["function"]["arguments"], ensure_ascii=False)
    return copy


CONVERSATIONS = [
    [SYSTEM, ASK],
    [ASK],
    [SYSTEM, ASK, calls(None, ONE), SAID[0]],
    [ASK, calls("", ONE), SAID[0]],
    [ASK, calls("Let me look.", ONE), SAID[0]],
    [SYSTEM, ASK, calls(None, ONE, TWO), *SAID],
    [ASK, calls(None, ONE), SAID[0], {"role": "assistant", "content": "No."}, {"role": "user", "content": "Oh."}],
]
CONVERSATIONS += [texts(c) for c in CONVERSATIONS[2:]]
# and with reasoning, of the last answer and of one before it
CONVERSATIONS += [
    [ASK, dict(calls("", ONE), reasoning_content="Paris, then.", reasoning="Paris, then."), SAID[0]],
    [ASK, dict(calls(None, ONE), reasoning_content="Paris, then."), SAID[0],
     {"role": "assistant", "content": "No.", "reasoning_content": "It is 3."}, {"role": "user", "content": "Oh."}],
]


class Generation(Extension):
    """{% generation %}, by which transformers tells what an assistant wrote: the text in it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def tojson(v, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(v, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    def fail(why):
        raise TemplateError(why)

    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])
    e.filters["tojson"] = tojson
    e.globals["raise_exception"] = fail
    e.globals["strftime_now"] = DAY.strftime
    return e


def fnv(text):
    h = 14695981039346656037
    for byte in text.encode():
        h = (h ^ byte) * 1099511628211 % 2**64
    return f"{h:016x}"


def token(config, name):
    v = config.get(name)
    return v.get("content") if isinstance(v, dict) else v


ELSEWHERE = ("Cohere2MoE.jinja", "muse-glimmer.jinja", "tencent-Hy3.jinja")


def chats_of(path, folder):
    config = folder / "tokenizer_config.json"
    config = json.loads(config.read_text()) if config.exists() else {}
    names = {n: t for n in ("bos_token", "eos_token", "unk_token", "pad_token") if (t := token(config, n)) is not None}
    template = environment().from_string(path.read_text())
    for i, messages in enumerate(CONVERSATIONS):
        for tools in (TOOLS, None):
            try:
                text = template.render(messages=messages, tools=tools, documents=None, add_generation_prompt=True,
                                       **names)
            except (TemplateError, TypeError):
                continue
            yield [i, tools is not None, len(text.encode()), fnv(text)]


def main():
    shared, tests = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).resolve().parent.parent
    templates = []
    for root, paths in (shared, shared.glob("tokenizers/*/*.jinja")), (tests, tests.glob("golden/templates/real/*.jinja")):
        for path in sorted(paths):
            if "tool" in path.read_text() or root == tests:
                templates.append({"folder": str(path.parent.relative_to(root)), "file": path.name,
                                  "chats": list(chats_of(path, path.parent))})
    for name in ELSEWHERE:
        path = pathlib.Path(sys.argv[2]) / "models/templates" / name
        templates.append({"folder": "$MOETOP_TEMPLATES", "file": name,
                          "chats": list(chats_of(path, tests / "golden/templates/real"))})
    lines = [json.dumps(t).replace('"chats": [[', '"chats": [\n[').replace("], [", "],\n[") for t in templates]
    print('{"given": ' + json.dumps({"tools": TOOLS}) + ',\n"conversations": [\n' +
          ",\n".join(json.dumps(c) for c in CONVERSATIONS) + '],\n"templates": [\n' + ",\n".join(lines) + "]}")


main()
