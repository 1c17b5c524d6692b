"""--perplexity and --kl-divergence beside llama.cpp's own: perplexity_check.py LLAMA_PERPLEXITY FOLDER [MOETOP] [TEXT]
FOLDER: a dense Hugging Face llama in BF16 or F32 with the bundled model's 4096 tokens; written as an F32 GGUF file that both read. Exit 0: they agree by
position (mean KL at most 1e-4, top-1 at least 99.9 %) and in perplexity (0.05 %), whichever of the two wrote the base logits."""
import json, os, re, struct, subprocess, sys, tempfile
import numpy as np
import gguf

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
peer, folder = sys.argv[1:3]
moetop = sys.argv[3] if len(sys.argv) > 3 else root + "/moetop"
text = sys.argv[4] if len(sys.argv) > 4 else root + "/configs/bench/stories.txt"
work = tempfile.mkdtemp()
model = work + "/model.gguf"

config = json.load(open(folder + "/config.json"))
raw = open(folder + "/model.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head = json.loads(raw[8:8 + n])
def tensor(name):
    h = head[name]; a, b = h["data_offsets"]; part = raw[8 + n + a:8 + n + b]
    x = (np.frombuffer(part, "<u2").astype(np.uint32) << 16).view(np.float32) if h["dtype"] == "BF16" else np.frombuffer(part, "<f4")
    return x.reshape(h["shape"]).astype(np.float32)
def paired(x, heads):  # llama.cpp rotates neighbours, Hugging Face halves
    return x.reshape(heads, 2, x.shape[0] // heads // 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)

w = gguf.GGUFWriter(model, "llama")
heads, kv, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
w.add_context_length(config["max_position_embeddings"]); w.add_embedding_length(config["hidden_size"]); w.add_block_count(config["num_hidden_layers"])
w.add_feed_forward_length(config["intermediate_size"]); w.add_head_count(heads); w.add_head_count_kv(kv); w.add_key_length(dim); w.add_value_length(dim)
w.add_rope_dimension_count(dim); w.add_layer_norm_rms_eps(config["rms_norm_eps"]); w.add_vocab_size(config["vocab_size"]); w.add_file_type(0)
w.add_rope_freq_base(float((config.get("rope_parameters") or config)["rope_theta"]))
bundled = gguf.GGUFReader(root + "/configs/models/tiny-storyteller-Q8_0.gguf")
for name, field in bundled.fields.items():
    if name.startswith("tokenizer.ggml."):
        kind = field.types[0]
        w.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
w.add_tensor("token_embd.weight", tensor("model.embed_tokens.weight")); w.add_tensor("output_norm.weight", tensor("model.norm.weight"))
w.add_tensor("output.weight", tensor("lm_head.weight" if "lm_head.weight" in head else "model.embed_tokens.weight"))
for l in range(config["num_hidden_layers"]):
    p, b = f"model.layers.{l}.", f"blk.{l}."
    w.add_tensor(b + "attn_norm.weight", tensor(p + "input_layernorm.weight")); w.add_tensor(b + "ffn_norm.weight", tensor(p + "post_attention_layernorm.weight"))
    w.add_tensor(b + "attn_q.weight", paired(tensor(p + "self_attn.q_proj.weight"), heads)); w.add_tensor(b + "attn_k.weight", paired(tensor(p + "self_attn.k_proj.weight"), kv))
    w.add_tensor(b + "attn_v.weight", tensor(p + "self_attn.v_proj.weight")); w.add_tensor(b + "attn_output.weight", tensor(p + "self_attn.o_proj.weight"))
    for k in ("gate", "up", "down"):
        w.add_tensor(b + f"ffn_{k}.weight", tensor(p + f"mlp.{k}_proj.weight"))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()

def run(*command):
    r = subprocess.run([str(x) for x in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if r.returncode:
        sys.exit(f"{command[0]}: exit status {r.returncode}\n{r.stdout[-2000:]}")
    return r.stdout
common = ["-m", model, "-c", 512, "-t", 2, "-ctk", "f32", "-ctv", "f32"]
def theirs(*more, end):
    for attempt in range(5):  # its log is written beside it and may lose its end
        output = run(peer, *common, "-b", 512, "-fa", "off", "-f", text, *more)
        if re.search(end, output):
            return output
    sys.exit(f"no {end} in\n{output[-2000:]}")
def ours(*more):
    run(moetop, *common, "--quality-json", work + "/q.json", *more)
    return json.load(open(work + "/q.json"))
def number(pattern, *more):
    return float(re.search(pattern, theirs(*more, end=pattern)).group(1))
bad = 0
def near(what, got, wanted, most):
    global bad
    ok = abs(got - wanted) <= most
    bad += not ok
    print(f"{what}: {got:.6g}, wanted {wanted:.6g} within {most:.2g}{'' if ok else ': WRONG'}")

final = r"Final estimate: PPL = ([0-9.]+)"
for flags in ([], ["--chunks", 3]):
    wanted = number(final, *flags)
    near(f"perplexity {flags}", ours("--perplexity", text, *flags)["perplexity"], wanted, 5e-4 * wanted)
for context, stride in ((448, 128), (384, 256)):  # llama.cpp rounds what it makes of both up to 256, moetop does not
    flags = ["-c", context, "--ppl-stride", stride]
    figures = ours("--perplexity", text, *flags)
    wanted = number(rf"\[{figures['chunks']}\](\d+\.\d+)", *flags)
    near(f"perplexity {flags}", figures["perplexity"], wanted, 5e-4 * wanted)
base = work + "/theirs.base"
theirs("--kl-divergence-base", base, end=final)
figures = ours("--kl-divergence", "--kl-divergence-base", base)
near("their base, mean KL", figures["mean_kl"], 0.0, 1e-4)
near("their base, same top-1", figures["same_top"], 1.0, 1e-3)
compare = ["--kl-divergence", "--kl-divergence-base", base]
wanted = number(r"Mean PPL\(base\) +: +([0-9.]+)", *compare)
near("their base, its perplexity", figures["base_perplexity"], wanted, 5e-4 * wanted)
base = work + "/ours.base"
ours("--perplexity", text, "--kl-divergence-base", base)
compare = ["--kl-divergence", "--kl-divergence-base", base]
near("our base, mean KL by them", number(r"Mean +KLD: +(-?[0-9.]+)", *compare), 0.0, 1e-4)
near("our base, same top-1 by them", number(r"Same top p: +([0-9.]+)", *compare) / 100.0, 1.0, 1e-3)
sys.exit(bad != 0)
