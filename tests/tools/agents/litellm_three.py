# pip: litellm
# say: ["Hello.", "Hello.", "Hello.", "<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>"]
import os
import litellm

url, model = os.environ["BASE_URL"], os.environ["MODEL"]
ask = [{"role": "user", "content": "Say hello."}]
for name, base in (("openai/" + model, url + "/v1"), ("anthropic/" + model, url),
                   ("ollama_chat/" + model, url)):
    got = litellm.completion(model=name, api_base=base, api_key="x", messages=ask, max_tokens=50)
    assert got.choices[0].message.content == "Hello.", (name, got)
tools = [{"type": "function", "function": {"name": "find", "parameters": {
    "type": "object", "properties": {"who": {"type": "string"}}}}}]
pieces = list(litellm.completion(model="openai/" + model, api_base=url + "/v1", api_key="x",
                                 messages=ask, tools=tools, stream=True))
call = litellm.stream_chunk_builder(pieces).choices[0].message.tool_calls[0].function
assert call.name == "find" and call.arguments == '{"who": "fox"}', call
vector = litellm.embedding(model="openai/" + model, api_base=url + "/v1", api_key="x", input=["a"])
assert len(vector.data[0]["embedding"]) > 100
print(call)
