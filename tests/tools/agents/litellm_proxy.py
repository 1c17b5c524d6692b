# pip: litellm[proxy]
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood.", "It sleeps.", "An oak."]
"""litellm's gateway, its own program, with moetop behind it by four of its providers: a call of a tool over
OpenAI's API, a stream over Ollama's, Anthropic's messages, and OpenAI's responses; and embeddings."""
import http.client
import json
import os
import pathlib
import socket
import subprocess
import time

base, model = os.environ["BASE_URL"], os.environ["MODEL"]
kinds = {"hosted": ("hosted_vllm/", base + "/v1"), "ollama": ("ollama_chat/", base),
         "messages": ("anthropic/", base), "responses": ("openai/", base + "/v1")}
config = pathlib.Path("litellm.json")
config.write_text(json.dumps({"general_settings": {"dangerously_permit_weak_or_unset_master_key": True}, "model_list": [
    {"model_name": name, "litellm_params": {"model": kind + model, "api_base": at, "api_key": "x"}}
    for name, (kind, at) in kinds.items()]}))
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
log = open("litellm.log", "w")
gateway = subprocess.Popen(["litellm", "--config", str(config), "--port", str(port), "--host", "127.0.0.1"],
                           stdout=log, stderr=log, env=os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"})


def ask(path, body):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
    link.request("POST", path, json.dumps(body), {"Content-Type": "application/json", "Authorization": "Bearer x",
                                                  "anthropic-version": "2023-06-01"})
    answer = link.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, text
    return text


try:
    for _ in range(240):
        time.sleep(0.5)
        try:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            link.request("GET", "/health/liveliness")
            if link.getresponse().status == 200:
                break
        except OSError:
            assert gateway.poll() is None, open("litellm.log").read()[-2000:]
    where = [{"role": "user", "content": "Where is the fox?"}]
    tool = {"name": "find", "description": "Finds an animal.",
            "parameters": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}}
    o = json.loads(ask("/v1/chat/completions", {"model": "hosted", "messages": where, "tools": [
        {"type": "function", "function": tool}]}))
    call = o["choices"][0]["message"]["tool_calls"][0]["function"]
    assert call["name"] == "find" and json.loads(call["arguments"]) == {"who": "fox"}, o
    events = [json.loads(line[6:]) for line in ask("/v1/chat/completions", {"model": "ollama", "messages": where,
                                                                          "stream": True}).splitlines()
              if line.startswith("data: {")]
    text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])
    assert text == "The fox is in the wood.", events
    o = json.loads(ask("/v1/messages", {"model": "messages", "max_tokens": 50, "messages": where}))
    assert o["content"][0]["text"] == "It sleeps.", o
    o = json.loads(ask("/v1/responses", {"model": "responses", "input": "Where?"}))
    assert o["output"][0]["content"][0]["text"] == "An oak.", o
    o = json.loads(ask("/v1/embeddings", {"model": "responses", "input": ["a fox", "an owl"]}))
    assert len(o["data"]) == 2 and o["data"][1]["embedding"], o
    print(f"{text} {len(o['data'][0]['embedding'])} dimensions")
finally:
    gateway.terminate()
    gateway.wait(20)
