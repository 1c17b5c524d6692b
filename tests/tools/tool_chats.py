#!/usr/bin/env python3
"""Writes tests/golden/tool-chats.json: what jinja2 (3.1, with Hugging Face's settings) makes of conversations with
tools by real chat templates, as length and FNV-1a hash of the text in UTF-8.

    python3 tests/tools/tool_chats.py SHARED_DATA > tests/golden/tool-chats.json
"""
import datetime
import json
import pathlib
import sys

from jinja2.exceptions import TemplateError
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


def environment():
    def fail(why):
        raise TemplateError(why)

    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    e.filters["tojson"] = lambda v, indent=None: json.dumps(v, ensure_ascii=False, indent=indent)
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


def chats_of(path):
    config = path.parent / "tokenizer_config.json"
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
    shared = pathlib.Path(sys.argv[1])
    templates = []
    for path in sorted(shared.glob("tokenizers/*/*.jinja")):
        if "tool" in path.read_text():
            templates.append({"folder": str(path.parent.relative_to(shared)), "file": path.name,
                              "chats": list(chats_of(path))})
    lines = [json.dumps(t).replace('"chats": [[', '"chats": [\n[').replace("], [", "],\n[") for t in templates]
    print('{"given": ' + json.dumps({"tools": TOOLS}) + ',\n"conversations": [\n' +
          ",\n".join(json.dumps(c) for c in CONVERSATIONS) + '],\n"templates": [\n' + ",\n".join(lines) + "]}")


main()
