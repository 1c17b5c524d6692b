# pip: guidellm==0.3.1
"""guidellm's benchmark: one stream after the other, then four at once, of prompts that it makes. Its last version
that needs no PyTorch."""
import json
import os
import pathlib
import subprocess

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

folder = pathlib.Path("tokenizer").absolute()
words = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.add_tokens([chr(c) for c in range(33, 127)])
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(folder)
out = pathlib.Path("benchmarks.json").absolute()
out.unlink(missing_ok=True)
for kind, rate in (("synchronous", None), ("concurrent", "4")):
    done = subprocess.run(["guidellm", "benchmark", "run", "--target", os.environ["BASE_URL"], "--rate-type", kind,
                           *(["--rate", rate] if rate else []), "--max-requests", "12", "--data",
                           "prompt_tokens=40,output_tokens=16", "--processor", str(folder), "--disable-progress",
                           "--output-path", str(out)], text=True, capture_output=True,
                          env=os.environ | {"HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0 and out.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    run = json.loads(out.read_text())["benchmarks"][0]
    totals = run["run_stats"]["requests_made"]
    assert totals["successful"] >= 10 and not totals["errored"], totals
print(f"{totals['successful']} of {totals['total']} requests, "
      f"{run['metrics']['output_tokens_per_second']['successful']['mean']:.0f} tokens/s of four streams")
