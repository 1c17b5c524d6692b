# pip: ollama
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood.", null, null]
import os
import ollama

client, model = ollama.Client(host=os.environ["BASE_URL"]), os.environ["MODEL"]


def find(who: str) -> str:
    """Finds an animal.

    Args:
      who: The animal.
    """
    return "in the wood"


messages = [{"role": "user", "content": "Where is the fox?"}]
answer = client.chat(model=model, messages=messages, tools=[find])
call = answer.message.tool_calls[0].function
assert call.name == "find" and call.arguments == {"who": "fox"}, answer
messages += [answer.message, {"role": "tool", "tool_name": "find", "content": find("fox")}]
text = "".join(p.message.content for p in client.chat(model=model, messages=messages, stream=True))
assert text == "The fox is in the wood.", text
schema = {"type": "object", "properties": {"n": {"enum": [5]}}, "required": ["n"]}
client.generate(model=model, prompt="A number.", format=schema, options={"num_predict": 40})
client.generate(model=model, prompt="Once", raw=True, options={"num_predict": 4})
assert client.list().models and client.ps().models and client.show(model).modelinfo
assert len(client.embed(model=model, input=["a", "b"]).embeddings) == 2
print(text)
