"""A BERT in NumPy, written from the papers one row and one score at a time: what models/bert.py is tested against."""

import functools
import math

import numpy as np


def layer_norm(x, scale, bias):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * scale + bias


ACTIVATIONS = {
    "gelu": np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def turned(x_SNH, positions):
    """Each pair (h, h + H/2) as a complex number turned by position / 10000^(2h/H) (Su et al. 2021)."""
    half = x_SNH.shape[-1] // 2
    angle = np.asarray(positions)[:, None, None] / 10000 ** (np.arange(half) / half)
    z = (x_SNH[..., :half] + 1j * x_SNH[..., half:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], -1)


def t5_bucket(distance):
    n = abs(distance)
    return (16 if distance > 0 else 0) + (n if n < 8 else min(15, 8 + int(math.log2(n * n / 64) + 1e-9)))


def numpy_block(x_SD, p, segments, positions, c):
    """One block on one row. p: its parameters; c: the Bert's arguments."""
    length = len(x_SD)

    def attention(x_SD):
        q, k, v = (
            np.einsum("sd,dnh->snh", x_SD, p[f"attention.{w}.kernel"]) + p.get(f"attention.{w}.bias", 0)
            for w in ("query", "key", "value")
        )
        num_heads, dim = q.shape[1:]
        if c.get("per_dim_scale"):
            q = q * np.log1p(np.exp(p["attention.scale"])) / math.log(2)
        if c.get("positions") == "rotary":
            q, k = turned(q, positions), turned(k, positions)
        out = np.zeros_like(q)
        for s in range(length):
            seen = [t for t in range(length) if segments[t] == segments[s] != 0]
            for n in range(num_heads if seen else 0):
                shared = n * k.shape[1] // num_heads
                scores = k[seen, shared] @ q[s, n] / math.sqrt(dim)
                if c.get("positions") == "relative":
                    scores += [p["attention.relative.table"][t5_bucket(t - s), n] for t in seen]
                if c.get("logit_cap"):
                    scores = c["logit_cap"] * np.tanh(scores / c["logit_cap"])
                weights = np.exp(scores - scores.max())
                out[s, n] = weights / weights.sum() @ v[seen, shared]
        return np.einsum("snh,nhd->sd", out, p["attention.out.kernel"]) + p.get("attention.out.bias", 0)

    def mlp(x_SD):
        act = ACTIVATIONS[c.get("activation", "gelu")]
        up = x_SD @ p["mlp.up.kernel"] + p.get("mlp.up.bias", 0)
        hidden = act(up)
        if c.get("gated_mlp"):
            hidden = act(x_SD @ p["mlp.gate.kernel"] + p.get("mlp.gate.bias", 0)) * up
        return hidden @ p["mlp.down.kernel"] + p.get("mlp.down.bias", 0)

    for norm, layer in (("attention_norm", attention), ("mlp_norm", mlp)):
        norm = functools.partial(layer_norm, scale=p[f"{norm}.scale"], bias=p.get(f"{norm}.bias", 0))
        x_SD = x_SD + layer(norm(x_SD)) if c.get("pre_norm") else norm(x_SD + layer(x_SD))
    return x_SD


def numpy_bert(values, tokens, segments, positions, token_types, c):
    """Hidden states [B, S, D] in float64, one row after another."""
    values = {path: np.asarray(value, "f8") for path, value in values.items()}
    rows = []
    for row in range(len(tokens)):
        x = values["embeddings.token.table"][tokens[row]]
        if c.get("token_types", 2):
            x = x + values["embeddings.token_type.table"][token_types[row]]
        if c.get("positions", "learned") == "learned":
            x = x + values["embeddings.position.table"][positions[row]]
        if c.get("positions") == "sinusoidal":
            half = c["width"] // 2
            angle = positions[row][:, None] * 10000.0 ** (-np.arange(half) / (half - 1))
            x = x + np.concatenate([np.sin(angle), np.cos(angle)], -1)
        if not c.get("pre_norm"):
            x = layer_norm(x, values["embeddings.norm.scale"], values.get("embeddings.norm.bias", 0))
        for index in range(c["num_layers"]):
            p = {path.removeprefix("blocks."): v[index] for path, v in values.items() if path.startswith("blocks.")}
            x = numpy_block(x, p, segments[row], positions[row], c)
        if c.get("pre_norm"):
            x = layer_norm(x, values["final_norm.scale"], values.get("final_norm.bias", 0))
        rows.append(x)
    return np.stack(rows)
