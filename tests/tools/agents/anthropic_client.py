# pip: anthropic
# say: ["<tool_call>\n{\"name\": \"find\", \"arguments\": {\"who\": \"fox\"}}\n</tool_call>", "The fox is in the wood."]
import os
import anthropic

client, model = anthropic.Anthropic(base_url=os.environ["BASE_URL"], api_key="x"), os.environ["MODEL"]
tools = [{"name": "find", "description": "Finds an animal.", "input_schema": {
    "type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}}]
messages = [{"role": "user", "content": [{"type": "text", "text": "Where is the fox?",
                                          "cache_control": {"type": "ephemeral"}}]}]
count = client.messages.count_tokens(model=model, messages=messages, tools=tools).input_tokens
with client.messages.stream(model=model, max_tokens=200, messages=messages, tools=tools) as s:
    answer = s.get_final_message()
assert answer.stop_reason == "tool_use" and answer.content[0].input == {"who": "fox"}, answer
messages += [{"role": "assistant", "content": answer.content},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": answer.content[0].id,
                                           "content": "in the wood"}]}]
answer = client.messages.create(model=model, max_tokens=100, messages=messages, tools=tools)
assert answer.content[0].text == "The fox is in the wood.", answer
print(answer.content[0].text, count)
