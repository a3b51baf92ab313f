"""A causal decoder in NumPy, from the papers, one row and one score at a time: what models/lm.py is tested against."""

import functools
import math

import numpy as np

from tests.models.layers.numpy_routing import by_token
from tests.models.numpy_bert import ACTIVATIONS, layer_norm, turned


def bucket(behind):
    """T5's bucket of a key `behind` positions back: of 32, 16 are exact, the rest grow logarithmically to 128."""
    return behind if behind < 16 else min(31, 16 + int(math.log(behind / 16) / math.log(8) * 16 + 1e-9))


def norm(x, p, name, c):
    if c.get("norm", "rms") == "layer":
        return layer_norm(x, p[f"{name}.scale"], p.get(f"{name}.bias", 0))
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + c.get("norm_epsilon", 1e-6)) * p[f"{name}.scale"]


def sub_layers(x_SD, p, segments, positions, c):
    """One layer on one row. p: its parameters; c: the DecoderLM's arguments, moe's under 'moe'."""
    act = ACTIVATIONS[c.get("activation", "silu")]

    def attention(x_SD):
        project = lambda w: np.einsum("sd,dnh->snh", x_SD, p[f"attention.{w}.kernel"]) + p.get(f"attention.{w}.bias", 0)
        q, k, v = map(project, ("query", "key", "value"))
        num_heads, dim = q.shape[1:]
        if c.get("per_dim_scale"):
            q = q * np.log1p(np.exp(p["attention.scale"])) / math.log(2)
        if c.get("positions", "rotary") == "rotary":
            q, k = turned(q, positions), turned(k, positions)
        out = np.zeros_like(q)
        for s in range(len(x_SD)):
            seen = [t for t in range(s + 1) if segments[t] == segments[s] != 0]
            for n in range(c["num_heads"] if seen else 0):
                shared = n * k.shape[1] // num_heads
                scores = k[seen, shared] @ q[s, n] / math.sqrt(dim)
                if c.get("positions") == "relative":
                    scores += [p["attention.relative.table"][bucket(s - t), n] for t in seen]
                if c.get("logit_cap"):
                    scores = c["logit_cap"] * np.tanh(scores / c["logit_cap"])
                weights = np.exp(scores - scores.max())
                out[s, n] = weights / weights.sum() @ v[seen, shared]
        return np.einsum("snh,nhd->sd", out, p["attention.out.kernel"]) + p.get("attention.out.bias", 0)

    def feed_forward(x, weight, bias):
        up = x @ weight("up") + bias("up")
        hidden = act(x @ weight("gate") + bias("gate")) * up if c.get("gated_mlp", True) else act(up)
        return hidden @ weight("down") + bias("down")

    def mlp(x_SD):
        if "mlp.router" not in p:
            return feed_forward(x_SD, lambda w: p[f"mlp.{w}.kernel"], lambda w: p.get(f"mlp.{w}.bias", 0))
        answers = [
            feed_forward(x_SD, lambda w, e=e: p[f"mlp.{w}"][e], lambda w, e=e: p.get(f"mlp.{w}_bias", {e: 0})[e])
            for e in range(c["moe"]["num_experts"])
        ]
        routed = by_token(x_SD @ p["mlp.router"], segments > 0, c["moe"]["choices"], c["moe"]["seats"])
        return sum(routed.gate[:, e, None] * answer for e, answer in enumerate(answers))

    x_SD = x_SD + attention(norm(x_SD, p, "attention_norm", c))
    return x_SD + mlp(norm(x_SD, p, "mlp_norm", c))


def numpy_lm(values, tokens, segments, positions, c):
    """Logits [B, S, V] in float64, one row after another."""
    values = {path: np.asarray(value, "f8") for path, value in values.items()}
    rows = []
    for row in range(len(tokens)):
        x = values["token.table"][tokens[row]]
        if c.get("positions") == "learned":
            x = x + values["position.table"][positions[row]]
        if c.get("positions") == "sinusoidal":
            half = c["width"] // 2
            angle = positions[row][:, None] * 10000.0 ** (-np.arange(half) / (half - 1))
            x = x + np.concatenate([np.sin(angle), np.cos(angle)], -1)
        run = functools.partial(sub_layers, segments=segments[row], positions=positions[row], c=c)
        for block in range(len(values["blocks.mixture.mlp.router" if "moe" in c else "blocks.mlp.up.kernel"])):
            own = {path.removeprefix("blocks."): v[block] for path, v in values.items() if path.startswith("blocks.")}
            for name in layer_names(own):
                x = run(x, {path.removeprefix(name): v for path, v in own.items() if path.startswith(name)})
        x = norm(x, values, "final_norm", c)
        rows.append(x @ (values["token.table"].T if c.get("tied", True) else values["output.kernel"]))
    return np.stack(rows)


def layer_names(block):
    """The prefixes of the layers of a block, in order: one, or GShard's dense ones and the mixture."""
    dense = sorted({path.split(".")[1] for path in block if path.startswith("dense.")}, key=int)
    return [f"dense.{index}." for index in dense] + ["mixture."] if "mixture.mlp.router" in block else [""]
