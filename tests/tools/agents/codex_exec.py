# pip: openai-codex-cli-bin
# say: ["<tool_call>\n{\"name\": \"exec_command\", \"arguments\": {\"cmd\": \"echo a fox in the wood > found.txt\"}}\n</tool_call>", "<tool_call>\n{\"name\": \"multi_agent_v1__close_agent\", \"arguments\": {\"target\": \"nobody\"}}\n</tool_call>", "Done. The fox is in the wood."]
"""Codex itself, the program of the package, with all of its tools: a command, and a function of a namespace."""
import os
import pathlib
import subprocess

import codex_cli_bin

codex = pathlib.Path(codex_cli_bin.__file__).parent / "bin/codex"
home = pathlib.Path("codex").absolute()
home.mkdir(exist_ok=True)
(home / "config.toml").write_text(f'''model = "{os.environ["MODEL"]}"
model_provider = "moetop"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.moetop]
name = "moetop"
base_url = "{os.environ["BASE_URL"]}/v1"
wire_api = "responses"
''')
work = pathlib.Path("work").absolute()
work.mkdir(exist_ok=True)
found = work / "found.txt"
found.unlink(missing_ok=True)
done = subprocess.run([codex, "exec", "--skip-git-repo-check", "--cd", str(work), "Find the fox."],
                      text=True, capture_output=True, env=os.environ | {"CODEX_HOME": str(home)},
                      timeout=250, stdin=subprocess.DEVNULL)
assert done.returncode == 0, done.stdout + done.stderr
assert found.exists() and found.read_text() == "a fox in the wood\n", done.stdout + done.stderr
assert done.stdout.strip() == "Done. The fox is in the wood.", done.stdout
print(done.stdout.strip())
