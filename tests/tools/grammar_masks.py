#!/usr/bin/env python3
"""Masks of JSON schemas beside llguidance's (pip install llguidance), token for token.

    make build/release/tests/grammar_masks
    tests/tools/grammar_masks.py MODEL [--random N] [--walks N] [--steps N] [--seed N]

MODEL gives the vocabulary (the bundled model's file, say). For each schema (those below, and N
random ones) answers are drawn token by token from what both allow; at every step the two sets of
allowed tokens, and whether the answer may end there, are compared. llguidance is asked a token at a
time (its own masks leave out whatever it would write by itself), with this program's blanks between
parts. Three differences are meant and not counted: a surrogate pair of escapes (\\ud83d\\ude00) is
JSON and allowed here, not there; and so are, between bounds, a negative zero and further zeros after
the digits of a bound (1.50 for at most 1.5), and an end before all digits of a bound (51.2 for at
most 51.25).
Exit 1 when a mask differs or a schema is taken by one side alone."""
import argparse, json, os, random, re, subprocess, sys

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPTIONS = {"whitespace_flexible": True, "whitespace_pattern": "( |\\n[ \\t]{0,32})",
           "json_allow_general_unicode_escapes": True}


def obj(properties, required=None, **more):
    return dict({"type": "object", "properties": properties, "additionalProperties": False,
                 "required": list(properties) if required is None else required}, **more)


S, I, N, B, Z = ({"type": t} for t in ("string", "integer", "number", "boolean", "null"))
WRITTEN = [
    S, I, N, B, Z, {}, True, {"type": "object"}, {"type": "array"}, {"type": ["string", "null"]},
    {"type": ["integer", "boolean", "null"]}, {"enum": ["red", "green", "blue"]},
    {"enum": [1, 2.5, True, None, "x"]}, {"const": "only"}, {"const": 3}, {"const": {"a": [1, 2]}},
    {"enum": ["a\"b", "tab\there", "\u00e9\u20ac"]}, {"type": "string", "enum": ["yes", "no"]},
    {"type": "string", "minLength": 2, "maxLength": 4}, {"type": "string", "maxLength": 0},
    {"type": "string", "minLength": 3}, {"type": "string", "pattern": "^[a-z]{2,5}$"},
    {"type": "string", "pattern": "^(foo|bar)-[0-9]+$"}, {"type": "string", "pattern": "[0-9]"},
    {"type": "string", "pattern": "^\\d{3}-\\d{4}$"}, {"type": "string", "pattern": "^[^x]*$"},
    {"type": "string", "format": "date"}, {"type": "string", "format": "time"},
    {"type": "string", "format": "date-time"}, {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"}, {"type": "string", "format": "email"},
    {"type": "string", "format": "hostname"}, {"type": "string", "format": "ipv6"},
    {"type": "string", "format": "duration"},
    {"type": "integer", "minimum": 0}, {"type": "integer", "minimum": -5, "maximum": 17},
    {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 100},
    {"type": "integer", "maximum": 999}, {"type": "integer", "minimum": 42},
    {"type": "integer", "minimum": 1900, "maximum": 2100}, {"type": "integer", "maximum": -1},
    {"type": "number", "minimum": 0, "maximum": 1}, {"type": "number", "minimum": -1.5},
    {"type": "number", "exclusiveMinimum": 0}, {"type": "number", "maximum": 99.9},
    {"type": "number", "exclusiveMinimum": -2.5, "exclusiveMaximum": 2.5},
    {"type": "integer", "multipleOf": 5}, {"type": "integer", "multipleOf": 3},
    {"type": "array", "items": I}, {"type": "array", "items": I, "minItems": 1, "maxItems": 3},
    {"type": "array", "items": S, "minItems": 2}, {"type": "array", "maxItems": 0},
    {"type": "array", "prefixItems": [I, S], "items": False},
    {"type": "array", "prefixItems": [I, S], "items": B, "minItems": 2},
    {"type": "array", "prefixItems": [I, S], "items": False, "minItems": 1, "maxItems": 2},
    {"type": "array", "items": {"type": "array", "items": N}},
    obj({"a": I}), obj({"a": I, "b": S}, ["a"]), obj({"a": I, "b": S, "c": B}, []),
    obj({"a": I, "b": S, "c": B}, ["b"]), obj({"a": I, "b": S, "c": B}, ["c"]), obj({}),
    {"type": "object", "properties": {"a": I}}, {"type": "object", "additionalProperties": I},
    {"type": "object", "properties": {"a": I}, "required": ["a"]},
    {"type": "object", "properties": {"a": I}, "required": ["a"], "additionalProperties": S},
    {"type": "object", "properties": {"a": I, "ab": S}, "additionalProperties": B},
    obj({"a": obj({"b": obj({"c": I})})}), obj({"list": {"type": "array", "items": obj({"x": N})}}),
    obj({"k\"ey": I, "\u00fc": S}), {"anyOf": [I, S]}, {"anyOf": [obj({"a": I}), obj({"b": S})]},
    {"anyOf": [obj({"type": {"const": "x"}, "v": I}), obj({"type": {"const": "y"}, "v": S})]},
    {"anyOf": [S, Z]}, {"anyOf": [{"type": "array", "items": I}, I]},
    obj({"steps": {"type": "array", "items": obj({"explanation": S, "output": S})},
         "final_answer": S}),
    obj({"type": {"type": "string", "enum": ["div", "button"]}, "label": S,
         "children": {"type": "array", "items": {"$ref": "#"}}}),
    {"$ref": "#/$defs/node", "$defs": {"node": obj({"v": I, "next": {"anyOf": [
        {"$ref": "#/$defs/node"}, Z]}})}},
    {"$defs": {"leaf": S, "tree": {"anyOf": [{"$ref": "#/$defs/leaf"}, {
        "type": "array", "items": {"$ref": "#/$defs/tree"}}]}}, "$ref": "#/$defs/tree"},
    {"definitions": {"p": obj({"x": N, "y": N})}, "type": "array",
     "items": {"$ref": "#/definitions/p"}},
    obj({"name": dict(S, description="a name"), "age": dict(I, title="Age", default=3)}),
    obj({"unit": {"type": ["string", "null"], "enum": ["F", "C", None]}, "place": S}),
]


def random_leaf(r):
    lo = r.randint(-50, 50)
    return r.choice([
        S, I, N, B, Z, {"enum": r.sample(["north", "south", "east", "west", "no", 7, None], 3)},
        {"const": r.choice(["k", 1, False, None, "two words"])},
        {"type": "string", "minLength": r.randint(0, 3), "maxLength": r.randint(3, 6)},
        {"type": "integer", "minimum": lo, "maximum": lo + r.randint(0, 3000)},
        {"type": "number", "minimum": lo, "maximum": lo + r.randint(1, 300) / 4},
        {"type": "string", "pattern": r.choice(["^[A-Z]{3}$", "^a+b?$", "^(x|y)*z$", "^\\w+$",
                                                "^[0-9a-f]{4}$", "^-?[0-9]+\\.[0-9]$"])},
        {"type": r.sample(["string", "integer", "boolean", "null"], 2)}])


def random_schema(r, depth):
    kind = r.random()
    if depth == 0 or kind < 0.2:
        return random_leaf(r)
    if kind < 0.65:
        names = r.sample(["id", "name", "n", "na", "value", "x", "next one", "list"], r.randint(1, 4))
        s = obj({k: random_schema(r, depth - 1) for k in names},
                [k for k in names if r.random() < 0.6])
        if r.random() < 0.2:
            s["additionalProperties"] = random_leaf(r)
        return s
    if kind < 0.85:
        s = {"type": "array", "items": random_schema(r, depth - 1)}
        if r.random() < 0.5:
            s["minItems"] = r.randint(0, 2)
        if r.random() < 0.5:
            s["maxItems"] = s.get("minItems", 0) + r.randint(0, 3)
        return s
    return {"anyOf": [random_schema(r, depth - 1) for _ in range(r.randint(2, 3))]}


class Ours:
    def __init__(self, model):
        self.p = subprocess.Popen([os.path.join(ROOT, "build/release/tests/grammar_masks"), model],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        n = int(self.p.stdout.readline().split()[1])
        self.tokens = [self.p.stdout.readline().strip() for _ in range(n)]
        self.tokens = [None if t == "-" else bytes.fromhex(t) for t in self.tokens]

    def ask(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        return self.p.stdout.readline().strip()

    def mask(self):
        _, complete, words = self.ask("mask").split()
        return {32 * w + b for w in range(len(words) // 8) for b in range(32)
                if int(words[8 * w:8 * w + 8], 16) >> b & 1}, complete == "1"


def llguidance_tokenizer(tokens):
    class Plain:
        special_token_ids = [i for i, t in enumerate(tokens) if t is None]
        eos_token_id, bos_token_id = special_token_ids[0], None

        def __call__(self, text):
            return []
    Plain.tokens = [b"\xff<%d>" % i if t is None else t for i, t in enumerate(tokens)]
    return LLTokenizer(TokenizerWrapper(Plain()), n_vocab=len(tokens), slices=[])


def surrogate(said, token):
    """Whether the token may write an escape of a surrogate, after what was said."""
    tail = (said[-6:] + token).lower()
    return re.search(rb"\\ud[89a-f]?|\\ud$|\\u$", tail) is not None and (
        re.search(rb"\\ud[89a-f]", tail) is not None)


def zero(said, token):
    """Whether the token goes on with a negative zero, or a fraction with zeros."""
    number = re.search(rb"-?[0-9.]*$", said).group()
    return (re.fullmatch(rb"-0(\.0*)?", number + re.match(rb"[0-9.]*", token).group()) is not None
            or (b"." in number and re.match(rb"0+([^0-9]|$)", token) is not None)
            or re.fullmatch(rb"-0(\.0*)?|-?[0-9]+\.[0-9]*0", number) is not None)


def walk(ours, theirs, r, steps):
    """-> (steps compared, difference or None)"""
    said = b""
    for step in range(steps):
        mask, complete = ours.mask()
        other = {i for i, t in enumerate(ours.tokens)
                 if t is not None and theirs.validate_tokens([i]) == 1}
        differ = {i for i in mask ^ other if not surrogate(said, ours.tokens[i])
                  and not (i in mask and zero(said, ours.tokens[i]))}
        ends = complete and (zero(said, b"") or re.search(rb"[0-9]\.[0-9]+$", said))
        if differ or (complete != theirs.is_accepting() and not ends):
            names = lambda ids: [ours.tokens[i] for i in sorted(ids)[:6]]
            return step, (f"after {said!r}: only here {names(mask & differ)}, only there "
                          f"{names(other & differ)}, may end {complete} {theirs.is_accepting()}")
        both = sorted(mask & other)
        if not both or (complete and r.random() < 0.3):
            return step + 1, None
        likely = [i for i in both if ours.tokens[i][:1] in b'"}],:' or len(ours.tokens[i]) > 2]
        i = r.choice(likely if likely and r.random() < 0.6 else both)
        if ours.ask(f"accept {i}") != "ok" or not theirs.consume_token(i):
            return step, f"after {said!r}: {ours.tokens[i]!r} is allowed and not taken"
        said += ours.tokens[i]
    return steps, None


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    a.add_argument("model")
    a.add_argument("--random", type=int, default=130)
    a.add_argument("--walks", type=int, default=3)
    a.add_argument("--steps", type=int, default=60)
    a.add_argument("--seed", type=int, default=1)
    a = a.parse_args()
    r = random.Random(a.seed)
    ours = Ours(a.model)
    tokenizer = llguidance_tokenizer(ours.tokens)
    schemas = WRITTEN + [random_schema(r, 3) for _ in range(a.random)]
    equal = masks = refused = 0
    for schema in schemas:
        text = json.dumps(schema)
        why = None
        for _ in range(a.walks):
            reply = ours.ask("schema " + text)
            theirs = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(text, overrides=OPTIONS)
                               if isinstance(schema, dict) else
                               LLMatcher.grammar_from_json_schema("{}", overrides=OPTIONS))
            if reply != "ok" or theirs.is_error():
                here, there = reply, theirs.get_error().splitlines()[0] if theirs.is_error() else "ok"
                if here != "ok" and there != "ok":
                    refused += 1
                    why = ""
                else:
                    why = f"here {here}, there {there}"
                break
            n, why = walk(ours, theirs, r, a.steps)
            masks += n
            if why:
                break
        if why is None:
            equal += 1
        elif why:
            print(f"{text}\n    {why}")
    print(f"{len(schemas)} schemas: {equal} with equal masks ({masks} masks of {len(ours.tokens)} "
          f"tokens), {refused} refused by both, {len(schemas) - equal - refused} differ")
    return 0 if equal + refused == len(schemas) else 1


if __name__ == "__main__":
    sys.exit(main())
