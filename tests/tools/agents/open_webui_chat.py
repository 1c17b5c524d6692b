# bare: open-webui==0.12.4
# without: accelerate einops faster-whisper opencv-python-headless opensearch-py pandas psycopg pyarrow pymysql rapidocr sentence-transformers soundfile transformers
# pip: typer
# say: ["The fox is in the wood.", "It sleeps.", "Under an oak.", "A fox"]
"""open-webui's own server, without the packages that would load models by themselves, in front of moetop over Ollama's
and OpenAI's APIs: its list of models, chats with and without a stream, a title, embeddings."""
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import time

base = os.environ["BASE_URL"]
data = pathlib.Path("data").absolute()
shutil.rmtree(data, ignore_errors=True)
data.mkdir()
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
log = open("open-webui.log", "w")
webui = subprocess.Popen(
    ["open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)], stdout=log, stderr=log,
    env=os.environ | {"DATA_DIR": str(data), "WEBUI_AUTH": "False", "OLLAMA_BASE_URL": base,
                      "OPENAI_API_BASE_URL": base + "/v1", "OPENAI_API_KEY": "x", "HF_HUB_OFFLINE": "1",
                      "RAG_EMBEDDING_ENGINE": "ollama", "OFFLINE_MODE": "True", "ENABLE_VERSION_UPDATE_CHECK": "False"})
token = ""


def ask(method, path, body=None):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
    link.request(method, path, None if body is None else json.dumps(body),
                 {"Content-Type": "application/json"} | ({"Authorization": "Bearer " + token} if token else {}))
    answer = link.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, f"{path}: {answer.status} {text[:500]}"
    return text


def joined(lines):
    events = [json.loads(line.removeprefix("data: ")) for line in lines.splitlines() if "{" in line]
    return "".join((e["message"] if "message" in e else e["choices"][0]["delta"]).get("content") or ""
                   for e in events if "message" in e or e.get("choices"))


try:
    for _ in range(300):
        time.sleep(0.5)
        try:
            ask("GET", "/health")
            break
        except OSError:
            assert webui.poll() is None, open("open-webui.log").read()[-2000:]
    token = json.loads(ask("POST", "/api/v1/auths/signin", {"email": "", "password": ""}))["token"]
    models = {m["id"]: m["owned_by"] for m in json.loads(ask("GET", "/api/models"))["data"]}
    ours = {kind: name for name, kind in models.items() if name.startswith(os.environ["MODEL"])}
    assert set(ours) == {"ollama", "openai"}, models
    assert json.loads(ask("GET", "/ollama/api/version"))["version"]
    assert json.loads(ask("GET", "/ollama/api/ps"))
    where = [{"role": "user", "content": "Where is the fox?"}]
    text = joined(ask("POST", "/api/chat/completions", {"model": ours["ollama"], "messages": where, "stream": True,
                                                        "params": {"temperature": 0.5, "num_ctx": 2048}}))
    assert text == "The fox is in the wood.", text
    text = joined(ask("POST", "/api/chat/completions", {"model": ours["openai"], "messages": where, "stream": True}))
    assert text == "It sleeps.", text
    o = json.loads(ask("POST", "/ollama/api/chat", {"model": ours["ollama"], "messages": where, "stream": False}))
    assert o["message"]["content"] == "Under an oak.", o
    o = json.loads(ask("POST", "/api/v1/tasks/title/completions", {"model": ours["ollama"], "messages": where}))
    assert "A fox" in json.dumps(o), o
    o = json.loads(ask("POST", "/api/embeddings", {"model": ours["openai"], "input": ["a fox", "an owl"]}))
    assert len(o["data"]) == 2, o
    print(f"{models}: {text}")
finally:
    webui.terminate()
    webui.wait(30)
