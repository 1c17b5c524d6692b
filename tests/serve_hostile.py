"""Hostile requests for every endpoint of --serve: serve_hostile.py URL [SEED [ROUNDS [PATH]]]
Each documented field gets every value of a list (other types, no value, numbers beyond every range, NaN, 100,000 levels, bytes that are no UTF-8),
then ROUNDS (2,000) bodies get several at once. Exit 0: every answer had a status below 500, was JSON (or a stream of it), told a refusal in a line,
and the server still answers; at the end the answers of each endpoint by status, and the slowest. Run it against a build with the sanitizers
(make MODE=asan), whose messages end the server. Its time there is the model's: with the bundled one a chat with tools takes 1.5 s (18,500 of
them: hours), with the first of its eight layers alone (--override-kv) 0.1 s and all 39,000 requests 20 minutes. Endpoints alone: what their paths begin with, PATH,PATH ... SIGINT
ends it with the same table."""
import http.client, json, random, sys, time, urllib.parse

where = urllib.parse.urlsplit(sys.argv[1])
seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 2000
only = sys.argv[4] if len(sys.argv) > 4 else ""  # what paths begin with
pick = random.Random(seed)
JSON = {"Content-Type": "application/json"}

class Raw(str):
    """Text that stands in a body as it is."""

sys.setrecursionlimit(10_000)  # answers that tell a request again
DEEP = 100_000
VALUES = [Raw(v) for v in (
    "null", "true", "false", "0", "1", "-1", "-0", "1.5", "-1e-300", "1e308", "1e400", "-1e400", "NaN", "Infinity", "-Infinity", "01", "0x10", "+1",
    "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1" + "0" * 400, "0." + "3" * 5000,
    '""', '"x"', '"5"', '"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"\\udc00\\ud800"', '"\\uffff"', '"\udc80\udcff"', '"\udcc0\udc80"', '"\udced\udca0\udc80"',
    '"' + "a" * 300_000 + '"', '"' + "\\n" * 1000 + '"', '"%s%n%d"', '"../../etc/passwd"', '"<|im_end|>"', '"unterminated', "[", "{", "]", "", ",", "/* */ 1",
    "[]", "{}", "[[]]", "[{}]", "[null]", "[true]", "[0]", "[-1]", "[1.5]", "[99999999]", '[""]', '["a", 1]', '["' + 'a", "' * 2000 + 'b"]',
    "[" + "1," * 50_000 + "1]", '{"a": 1}', '{"": null}', '{"a": 1, "a": 2}', '{"type": 5}', '{"type": "text"}', '{"type": "function"}', '{"type": "nothing"}',
    '{"1": 1}', '{"-1": 1}', '{"99999999999999999999": 1}', '{"5": 1e30}', '{"5": "x"}', '{"5": null}', '[[5, 1]]', '[[5, null]]',
    "[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "[" * 2000 + "]" * 2000,
    '{"type": "object", "properties": ' * 900 + "1" + "}" * 900)]

def put(value, at, new):
    """A copy of value in which `at` (keys and indexes) is new; deleted when new is None."""
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(at) == 1 and new is None:
        del copy[at[0]]
    else:
        copy[at[0]] = put(copy[at[0]], at[1:], new)
    return copy

def paths(value, at=()):
    if at:
        yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from paths(each, at + (key,))

def dump(value):
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(json.dumps(k) + ": " + dump(v) for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(dump(v) for v in value) + "]"
    return json.dumps(value)

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^a+$"}, "e": {"type": "string", "maxLength": 5}, "b": {"type": "integer", "minimum": 1, "maximum": 9},
          "c": {"type": "array", "items": {"$ref": "#/$defs/d"}, "minItems": 1, "maxItems": 2}}, "required": ["a"], "additionalProperties": False,
          "$defs": {"d": {"enum": ["x", 1, None]}}}
TOOL = {"type": "function", "function": {"name": "look", "description": "looks", "strict": True, "parameters": SCHEMA}}
SAMPLING = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.01, "typical_p": 1.0, "presence_penalty": 0.1, "frequency_penalty": 0.1,
            "repetition_penalty": 1.1, "repeat_penalty": 1.1, "repeat_last_n": 8, "seed": 7, "logit_bias": {"5": 1.0}, "top_n_sigma": 1.0, "xtc_probability": 0.1,
            "xtc_threshold": 0.1, "dry_multiplier": 0.5, "dry_base": 1.5, "dry_allowed_length": 2, "dry_penalty_last_n": 8, "dry_sequence_breakers": ["\n"],
            "samplers": ["top_k", "temperature"], "ignore_eos": False, "lora": [], "expert_edits": ["off L0/E1", "weight L*/E2 0.5"], "user": "u", "metadata": {"k": "v"}, "store": False}

def bodies(model):
    said = [{"role": "system", "content": "s"}, {"role": "user", "name": "n", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": "", "reasoning_content": "r",
             "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "seen"}, {"role": "user", "content": "go"}]
    return {
        "/v1/chat/completions": [
            {"model": model, "messages": said, "tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": True, "max_completion_tokens": 3, "n": 1,
             "stop": ["zz"], "stream": False, "logprobs": True, "top_logprobs": 2, "reasoning_effort": "low", "chat_template_kwargs": {"k": 1}} | SAMPLING,
            {"model": model, "messages": said[1:2], "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True},
             "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}},
            {"model": model, "messages": said[1:2], "max_tokens": 3, "grammar": 'root ::= "a" | "b"'},
            {"model": model, "messages": said[1:2], "max_tokens": 3, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}},
            {"model": model, "messages": said[1:2], "max_tokens": 3, "tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {
                "mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]}}},
            {"model": model, "max_tokens": 3, "functions": [TOOL["function"]], "function_call": {"name": "look"},
             "messages": said[1:2] + [{"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
                                      {"role": "function", "name": "look", "content": "seen"}]}],
        "/v1/completions": [{"model": model, "prompt": "hi", "max_tokens": 2, "echo": True, "logprobs": 2, "n": 1, "best_of": 1, "suffix": None, "stop": "zz",
                             "stream": False, "stream_options": None} | SAMPLING,
                            {"model": model, "prompt": [5, 6], "max_tokens": 2}, {"model": model, "prompt": [[5], [6]], "max_tokens": 1}],
        "/v1/responses": [{"model": model, "input": [{"role": "user", "type": "message", "content": [{"type": "input_text", "text": "hi"}]},
                                                     {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "so"}]},
                                                     {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                                                     {"type": "function_call_output", "call_id": "c", "output": "seen"}],
                           "instructions": "s", "max_output_tokens": 16, "stream": False, "tools": [{"type": "function", "name": "look", "parameters": {}}],
                           "tool_choice": "auto", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "integer"}}}, "reasoning": {"effort": "low"},
                           "previous_response_id": None, "background": False, "truncation": "auto", "temperature": 0.5, "top_p": 0.9, "top_logprobs": 1}],
        "/v1/messages": [{"model": model, "max_tokens": 3, "system": [{"type": "text", "text": "s"}], "stream": False, "stop_sequences": ["zz"],
                          "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "temperature": 0.5, "top_k": 5, "top_p": 0.9,
                          "metadata": {"user_id": "u"}, "thinking": {"type": "disabled"}}],
        "/v1/messages ": [{"model": model, "max_tokens": 3, "stream": True, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
                           "tools": [{"name": "look", "description": "looks", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}],
                           "thinking": {"type": "enabled", "budget_tokens": 100},
                           "messages": [{"role": "user", "content": "hi"},
                                        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
                                                                          {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": "a"}}]},
                                        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": False,
                                                                      "content": [{"type": "text", "text": "x"}]},
                                                                     {"type": "document", "source": {"type": "text", "data": "d"}}]}]},
                          {"model": model, "max_tokens": 3, "messages": [{"role": "user", "content": "hi"}], "tools": [{"name": "look", "input_schema": SCHEMA}],
                           "tool_choice": {"type": "tool", "name": "look"}},
                          {"model": model, "max_tokens": 3, "messages": [{"role": "user", "content": "hi"}],
                           "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}],
        "/v1/responses ": [{"model": model, "input": [{"type": "item_reference", "id": "msg_0123456789abcdef012345670"}, {"role": "user", "content": "x"}],
                            "previous_response_id": "resp_0123456789abcdef01234567", "store": True, "stream": True, "max_output_tokens": 3},
                           {"model": model, "input": "x", "store": True, "max_output_tokens": 2, "conversation": None, "prompt": None},
                           {"model": model, "input": [{"role": "user", "content": "x"}, {"type": "function_call", "call_id": "c", "name": "look", "namespace": "n",
                                                      "arguments": "{}"}], "max_output_tokens": 2,
                            "tools": [{"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "look", "parameters": {}}]},
                                      {"type": "web_search"}]}],
        "/v1/embeddings": [{"model": model, "input": ["hi", "ho"], "encoding_format": "base64", "dimensions": 8, "user": "u"},
                           {"model": model, "input": [[5, 6], [7]], "encoding_format": "float"}, {"model": model, "input": [5, 6]}],
        "/embedding": [{"content": ["hi", "ho"], "embd_normalize": 2}, {"input": [5, 6]}],
        "/completion": [{"prompt": "hi", "n_predict": 2, "stream": False, "cache_prompt": True, "n_probs": 0, "id_slot": -1, "response_fields": ["content"],
                         "t_max_predict_ms": 1000, "stop": ["zz"]} | SAMPLING,
                        {"prompt": [[5, 6], "hi"], "n_predict": 1}, {"prompt": [5, 6], "n_predict": 1, "stream": True, "json_schema": SCHEMA}],
        "/infill": [{"input_prefix": "a ", "input_suffix": " b", "prompt": "c", "n_predict": 2, "stream": False, "response_fields": ["content", "timings/prompt_n"],
                     "input_extra": [{"filename": "f", "text": "t"}, {"text": "u"}], "stop": ["zz"]} | SAMPLING,
                    {"input_prefix": "a ", "input_suffix": "", "n_predict": 2, "stream": True}],
        "/v1/rerank": [{"model": model, "query": "hi", "documents": ["a", {"text": "b"}], "top_n": 2, "return_documents": True}],
        "/v1/rerank ": [{"query": "hi", "texts": ["a", "b"], "return_text": True}],
        "/api/chat": [{"model": model, "stream": True, "think": False, "keep_alive": "5m", "format": "json",
                       "messages": [{"role": "user", "content": "hi", "images": []},
                                    {"role": "assistant", "content": "", "thinking": "t", "tool_calls": [{"function": {"name": "look", "arguments": {"a": "a"}}}]},
                                    {"role": "tool", "tool_name": "look", "content": "seen"}],
                       "options": {"num_predict": 3, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "typical_p": 1.0, "repeat_last_n": 8,
                                   "repeat_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.1, "mirostat": 0, "mirostat_tau": 5.0,
                                   "mirostat_eta": 0.1, "seed": 7, "stop": ["zz"], "num_ctx": 512}},
                      {"model": model, "stream": False, "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL], "options": {"num_predict": 3}},
                      {"model": model, "stream": False, "messages": [{"role": "user", "content": "hi"}], "format": SCHEMA, "options": {"num_predict": 3}}],
        "/api/generate": [{"model": model, "prompt": "hi", "suffix": None, "system": "s", "template": None, "raw": False, "images": [], "context": [1],
                           "stream": False, "options": {"num_predict": 2}},
                          {"model": model, "prompt": "hi", "raw": True, "stream": True, "options": {"num_predict": 2}}],
        "/api/embed": [{"model": model, "input": ["hi", "ho"], "truncate": True, "dimensions": 4, "keep_alive": "5m", "options": {}}],
        "/api/embeddings": [{"model": model, "prompt": "hi"}],
        "/api/show": [{"model": model, "verbose": True}],
        "/v1/messages/count_tokens": [{"model": model, "system": "s", "messages": [{"role": "user", "content": "hi"}]}],
        "/apply-template": [{"messages": said, "tools": [TOOL], "tool_choice": "auto", "chat_template_kwargs": {"k": 1}}],
        "/tokenize": [{"content": "hi", "add_special": True, "parse_special": True, "with_pieces": True}],
        "/detokenize": [{"tokens": [5, 6]}],
        "/lora-adapters": [[{"id": 0, "scale": 1.0}]],
        "/moetop/placement": [{"plan": "cpu", "devices": "cpu"}],
    }

failures, counts, slowest, link = [], {}, [], None

def ask(path, body, headers=JSON, method="POST"):
    global link
    for last in (False, True):
        try:
            link = link or http.client.HTTPConnection(where.hostname, where.port, timeout=120)
            link.request(method, path, body, headers)
            answer = link.getresponse()
            return answer.status, answer.getheader("Content-Type") or "", answer.read()
        except (http.client.HTTPException, OSError):
            link.close()
            link = None
            if last:
                raise

def told(status, kind, data):
    """What is wrong with an answer; None: nothing."""
    if status >= 500 or status < 200:
        return "status %d" % status
    try:
        if kind.startswith("application/x-ndjson"):
            for line in data.decode().splitlines():
                json.loads(line)
            return None
        if kind.startswith("text/event-stream"):
            for line in data.decode().splitlines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    if "error" in (event := json.loads(line[6:])) and event["error"] and event["error"].get("type") in ("server_error", "api_error"):
                        return "in the stream: %s" % line[:200]
            return None
        answer = json.loads(data)
        line = answer["error"] if status >= 400 else ""
        line = line["message"] if isinstance(line, dict) else line
        if status >= 400 and not line or status >= 400 and "\n" in line:
            return "a refusal without a line"
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        return "no JSON: %r" % e
    return None

def check(path, text, what, must=False):
    body = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    began = time.monotonic()
    try:
        status, kind, data = ask(path.strip(), body)  # a space: more of the same
    except Exception as e:
        status, wrong, data = 0, "no answer: %r" % e, b""
    else:
        wrong = told(status, kind, data) or ("status %d" % status if must and status != 200 else None)
    of_path = counts.setdefault(path, {})
    of_path[status] = of_path.get(status, 0) + 1
    slowest.append((time.monotonic() - began, path, what))
    slowest.sort(reverse=True)
    del slowest[5:]
    if wrong:
        failures.append((path, what, wrong))
        print("FAILED", path, what, wrong, data[:200], flush=True)

def each_field(path, body):
    for at in paths(body):
        name = ".".join(map(str, at))
        check(path, dump(put(body, at, None)), name + " missing")
        for value in VALUES:
            check(path, dump(put(body, at, value)), "%s = %.40r" % (name, str(value)))
    for value in VALUES:
        check(path, value, "the body = %.40r" % str(value))

def several(path, body):
    for _ in range(pick.randrange(1, 5)):
        at = pick.choice(list(paths(body)) or [()])
        if at:
            body = put(body, at, pick.choice(VALUES + [None]))
    text = dump(body).encode("utf-8", "surrogateescape")
    for _ in range(pick.randrange(3)):  # and the bytes themselves
        i = pick.randrange(len(text) or 1)
        text = text[:i] + bytes([pick.randrange(256)]) * pick.randrange(3) + text[i + pick.randrange(3):]
    check(path, text, "several: %.300r" % text)

model = json.loads(ask("/v1/models", None, {}, "GET")[2])["data"][0]["id"]
SAMPLING["lora"] = [{"id": 0, "scale": 0.5}] if json.loads(ask("/lora-adapters", None, {}, "GET")[2]) else []
# Only with --rerank-template-file and tokens for infilling (--override-kv) these are more than refused.
SOME_MODELS = ("/infill", "/v1/rerank", "/v1/rerank ")
all_bodies = {path: each for path, each in bodies(model).items() if path.startswith(tuple(only.split(",")))}
for path, list_of in all_bodies.items():
    for body in list_of:
        check(path, dump(body), "as documented", must=(path != "/lora-adapters" or SAMPLING["lora"])  # there may be none
              and "previous_response_id" not in body and path not in SOME_MODELS)
try:
    for path, list_of in all_bodies.items():
        for body in list_of:
            each_field(path, body)
        print(path, sum(counts[path].values()), "asked", flush=True)
    for _ in range(rounds):
        path = pick.choice(list(all_bodies))
        several(path, pick.choice(all_bodies[path]))
except KeyboardInterrupt:  # the time is over
    print("interrupted")
    if link:
        link.close()
        link = None
for path in ("/health", "/props", "/v1/models", "/v1/models/%00", "/v1/models/" + "a" * 5000, "/v1/models/..%2f..", "/metrics", "/nothing", "/moetop/state", "/slots", "/slots?fail_on_no_slot",
             "/slots?fail_on_no_slot=" + "a" * 5000 + "&&=%00%"):
    status = ask(path, None, {}, "GET")[0]
    if status >= 500:
        failures.append((path, "GET", status))
if ask("/health", None, {}, "GET")[0] != 200:
    failures.append(("/health", "at the end", "not 200"))
for path, by_status in counts.items():
    print(path, "answers by status:", dict(sorted(by_status.items())))
for seconds, path, what in slowest:
    print("took %.2f s: %s %.100s" % (seconds, path, what))
print("asked:", sum(sum(each.values()) for each in counts.values()), "failures:", len(failures))
sys.exit(1 if failures else 0)
