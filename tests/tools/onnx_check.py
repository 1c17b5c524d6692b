#!/usr/bin/env python3
"""What onnxruntime computes with an exported folder, against golden logits.

Usage: onnx_check.py FOLDER GOLDEN.safetensors [KEY] [TOLERANCE]
KEY: the tensor of logits ("logits"); TOLERANCE of the largest of them (1e-4). Checks the model with
onnx where that is installed, then the whole prompt, token by token with the cache, the greedy ids,
and a batch of two filled up on the left. Exit status: 1 where something differs, 77 without numpy
or onnxruntime."""
import json
import struct
import sys

try:
    import numpy as np
    import onnxruntime as ort
except ImportError:
    sys.exit(77)

TYPES = {"F32": "<f4", "I32": "<i4", "I64": "<i8"}
failed = False


def tensors(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    data = raw[8 + n:]
    return {
        name: np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]], TYPES[t["dtype"]])
        .reshape(t["shape"])
        for name, t in json.loads(raw[8:8 + n]).items() if name != "__metadata__"
    }


def say(what, good, more=""):
    global failed
    failed |= not good
    print(f"{'ok ' if good else 'BAD'} {what} {more}")


class Model:
    def __init__(self, folder):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 2
        self.session = ort.InferenceSession(folder + "/model.onnx", options,
                                            providers=["CPUExecutionProvider"])
        self.past = {i.name: i.shape for i in self.session.get_inputs() if "past" in i.name}
        self.outputs = [o.name for o in self.session.get_outputs()]

    def run(self, ids, mask, positions, cache=None):
        feed = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        feed = {k: np.asarray(v, np.int64) for k, v in feed.items()}
        for name, shape in self.past.items():
            feed[name] = cache[name] if cache else np.zeros((len(ids), shape[1], 0, shape[3]),
                                                            np.float32)
        out = dict(zip(self.outputs, self.session.run(None, feed)))
        return out["logits"], {n: out[n.replace("past_key_values", "present")] for n in self.past}


def stepped(model, ids):
    cache, rows = None, []
    for t in range(len(ids)):
        y, cache = model.run(ids[None, t:t + 1], np.ones((1, t + 1)), [[t]], cache)
        rows.append(y[0, -1])
    return np.stack(rows)


def greedy(model, ids, n):
    y, cache = model.run(ids[None], np.ones((1, len(ids))), np.arange(len(ids))[None])
    made = []
    while True:
        made.append(int(y[0, -1].argmax()))
        total = len(ids) + len(made)
        if len(made) == n:
            return made
        y, cache = model.run([[made[-1]]], np.ones((1, total)), [[total - 1]], cache)


def padded(model, ids):
    """Two rows: the whole prompt, and its first half behind as much padding."""
    n, half = len(ids), len(ids) // 2
    rows = np.stack([ids, np.concatenate([np.zeros(n - half, np.int64), ids[:half]])])
    mask = np.stack([np.ones(n), np.concatenate([np.zeros(n - half), np.ones(half)])])
    y, _ = model.run(rows, mask, np.maximum(mask.cumsum(-1) - 1, 0))
    return y[0], y[1, n - half:]


def main(folder, golden, key="logits", tolerance="1e-4"):
    g = tensors(golden)
    ids, want, most = g["input_ids"].astype(np.int64), g[key], float(tolerance)
    top = float(np.abs(want).max())

    def compare(what, got, expected):
        error = float(np.abs(got - expected).max()) / top
        say(what, error <= most, f"{error:.1e}")

    try:
        import onnx
        onnx.checker.check_model(folder + "/model.onnx", full_check=True)
        say("onnx.checker", True)
    except ImportError:
        print("onnx is not installed: its checker was not asked")
    model = Model(folder)
    whole, _ = model.run(ids[None], np.ones((1, len(ids))), np.arange(len(ids))[None])
    compare("whole prompt", whole[0], want)
    compare("token by token", stepped(model, ids), want)
    a, b = padded(model, ids)
    compare("batch, first row", a, want)
    compare("batch, padded row", b, want[:len(ids) // 2])
    ends = g.get(key.replace("logits", "greedy"))
    if ends is not None:
        say("greedy ids", greedy(model, ids, len(ends)) == ends.tolist())
    return failed


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
