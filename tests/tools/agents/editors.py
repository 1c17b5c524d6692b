# of: continue d0a3c0b (core/llm/llms/Ollama.ts, LlamaCpp.ts, OpenAI.ts), Zed 0138cb1 and 014676e (crates/ollama, open_ai)
# say: ["<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"fox.py\"}}\n</tool_call>", "It defines a fox.", "def fox():", null, "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"fox.py\"}}\n</tool_call>", "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"fox.py\"}}\n</tool_call>", "It defines a fox.", "return 1", "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"fox.py\"}}\n</tool_call>", "It defines a fox."]
"""What two editors ask, which are no packages of PyPI: their requests in the forms that their sources build,
and of the answers what their sources demand."""
import json
import os
import urllib.request

base, model = os.environ["BASE_URL"], os.environ["MODEL"]
READ = {"name": "read_file", "description": "Reads a file.",
        "parameters": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}}}
FUNCTION = [{"type": "function", "function": READ}]


def ask(path, body=None, **headers):
    """The JSON values of an answer: one, events, or lines."""
    request = urllib.request.Request(base + path, None if body is None else json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Accept": "application/json"} | headers)
    with urllib.request.urlopen(request) as answer:
        kind, text = answer.headers["Content-Type"], answer.read().decode()
    if kind.startswith("text/event-stream"):
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in text.splitlines()] if "ndjson" in kind else json.loads(text)


def joined(lines, name):
    return "".join((line.get("message") or line).get(name) or "" for line in lines)


def calls_of(lines):
    return [call for line in lines for call in line["message"].get("tool_calls") or []]


def deltas(events):
    return [e["choices"][0]["delta"] for e in events if e["choices"]]


def arguments_of(events):
    return json.loads("".join(c["function"].get("arguments") or "" for d in deltas(events)
                              for c in d.get("tool_calls") or []))


# continue: what the model is, a chat with a tool over Ollama's API, its result
shown = ask("/api/show", {"name": model})
assert isinstance(shown.get("template"), str) and isinstance(shown.get("capabilities"), list), shown
options = {"temperature": 0.5, "num_predict": 64, "num_ctx": 4096, "stop": ["<|im_end|>"]}
chat = {"model": model, "options": options, "keep_alive": 1800, "stream": True}
say = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is in fox.py?"}]
called = calls_of(ask("/api/chat", chat | {"messages": say, "tools": FUNCTION}))
assert called[0]["function"]["arguments"] == {"path": "fox.py"}, called
say += [{"role": "assistant", "content": " ", "tool_calls": [{"function": {"name": "read_file", "arguments": {"path": "fox.py"}}}]},
        {"role": "tool", "content": "def fox(): pass"}]
assert joined(ask("/api/chat", chat | {"messages": say}), "content") == "It defines a fox."
# its completion of a line, over Ollama's API and over llama-server's
hole = "<fim_prefix># a fox\n<fim_suffix>\n<fim_middle>"
stops = ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<|endoftext|>", "/src/", "#- coding: utf-8", "```"]
lines = ask("/api/generate", chat | {"prompt": hole, "raw": True, "options": options | {"stop": stops}})
assert joined(lines, "response") == "def fox():" and lines[-1]["done"], lines
events = ask("/completion", {"model": model, "prompt": "Once upon a time", "stream": True, "n_predict": 16, "stop": stops,
                             "temperature": 0.01}, Authorization="Bearer undefined")
assert events[-1]["stop"] and "".join(e["content"] for e in events), events
# its chat over OpenAI's API
tool = [{"type": "function", "function": READ | {"strict": False}}]
say = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "What is in fox.py?"}]}]
events = ask("/v1/chat/completions", {"model": model, "messages": say, "max_tokens": 64, "stream": True, "tools": tool,
                                      "parallel_tool_calls": False, "stream_options": {"include_usage": True}},
             **{"x-api-key": "", "api-key": ""})
assert arguments_of(events) == {"path": "fox.py"}, events

# Zed: the models and what they can, a chat with a tool over Ollama's API, its result
listed = ask("/api/tags")["models"][0]
assert listed["name"] and listed["modified_at"] and listed["digest"] and isinstance(listed["size"], int), listed
assert {"format", "family", "parameter_size", "quantization_level"} <= listed["details"].keys(), listed
assert "completion" in ask("/api/show", {"model": listed["name"]})["capabilities"]
chat = {"model": listed["name"], "stream": True, "keep_alive": -1, "think": None,
        "options": {"num_ctx": 4096, "num_predict": None, "stop": [], "temperature": 1.0, "top_p": None},
        "tools": FUNCTION}
say = [{"role": "user", "content": "What is in fox.py?"}]
lines = ask("/api/chat", chat | {"messages": say})
assert all(line["message"]["role"] == "assistant" and isinstance(line["message"]["content"], str) for line in lines)
called = calls_of(lines)
assert called[0]["function"]["name"] == "read_file" and lines[-1]["prompt_eval_count"], lines
say += [{"role": "assistant", "content": "", "tool_calls": called, "thinking": None},
        {"role": "tool", "tool_name": "read_file", "content": "def fox(): pass"}]
assert joined(ask("/api/chat", chat | {"messages": say}), "content") == "It defines a fox."
# its prediction of an edit
stops = ["<|endoftext|>", "<|file_separator|>", "<|fim_pad|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
         "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<PRE>", "<SUF>", "<MID>", "[PREFIX]", "[SUFFIX]"]
o = ask("/api/generate", {"model": model, "prompt": hole, "raw": True, "stream": False,
                          "options": {"num_predict": 64, "temperature": 0.2, "stop": stops}})
assert o["response"] == "return 1", o
# its chat over OpenAI's API, and over its responses
say = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is in fox.py?"}]
events = ask("/v1/chat/completions", {"model": model, "messages": say, "stream": True, "stream_options": {"include_usage": True},
                                      "max_completion_tokens": 64, "temperature": 1.0, "tool_choice": "auto",
                                      "parallel_tool_calls": True, "tools": FUNCTION, "prompt_cache_key": "thread-1",
                                      "reasoning_effort": "low"})
assert arguments_of(events) == {"path": "fox.py"} and events[-1]["usage"]["total_tokens"], events
items = [{"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
         {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is in fox.py?"}]},
         {"type": "message", "role": "assistant", "phase": "commentary",
          "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
         {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": "{\"path\": \"fox.py\"}"},
         {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "def fox(): pass"}]}]
events = ask("/v1/responses", {"model": model, "input": items, "store": False, "include": ["reasoning.encrypted_content"],
                               "stream": True, "temperature": 1.0, "max_output_tokens": 64, "parallel_tool_calls": True,
                               "tools": [{"type": "function"} | READ], "prompt_cache_key": "thread-1",
                               "reasoning": {"effort": "low", "summary": "auto"}})
text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
assert text == "It defines a fox." and events[-1]["type"] == "response.completed", events
print(f"{shown['capabilities']}: {text}")
