# pip: claude-agent-sdk
# say: ["<tool_call>\n{\"name\": \"Bash\", \"arguments\": {\"command\": \"echo a fox in the wood > found.txt\", \"description\": \"Finds the fox\"}}\n</tool_call>", "Done. The fox is in the wood."]
"""Claude Code itself, the program that the package brings along, with all of its tools."""
import json
import os
import pathlib
import subprocess

import claude_agent_sdk

claude = pathlib.Path(claude_agent_sdk.__file__).parent / "_bundled/claude"
env = os.environ | {"ANTHROPIC_BASE_URL": os.environ["BASE_URL"], "ANTHROPIC_API_KEY": "x",
                    "ANTHROPIC_MODEL": os.environ["MODEL"],
                    "ANTHROPIC_SMALL_FAST_MODEL": os.environ["MODEL"],
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
work = pathlib.Path("work")
work.mkdir(exist_ok=True)
found = work / "found.txt"
found.unlink(missing_ok=True)
done = subprocess.run([claude, "-p", "Find the fox.", "--output-format", "json", "--allowedTools",
                       "Bash"], env=env, cwd=work, text=True, capture_output=True, timeout=250,
                      stdin=subprocess.DEVNULL)
assert done.returncode == 0, done.stdout + done.stderr
assert found.exists() and found.read_text() == "a fox in the wood\n", done.stdout + done.stderr
answer = json.loads(done.stdout)
assert answer["result"] == "Done. The fox is in the wood.", answer
print(f"{answer['num_turns']} turns, {answer['usage']['cache_read_input_tokens']} tokens of the prompt cached")
