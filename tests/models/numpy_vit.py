"""A ViT and an MBT in NumPy, written from the papers one patch and one row at a time: what models/vit.py and models/mbt.py
are tested against.
"""

import math

import numpy as np

from tests.models.numpy_bert import layer_norm, numpy_block


def within(values, prefix):
    """The values under `prefix`, by the rest of their paths."""
    return {path.removeprefix(prefix): v for path, v in values.items() if path.startswith(prefix)}


def position(row, column, width):
    """Of a patch, [width]: sin and cos of the column, then of the row, at width/4 wavelengths from 2 pi to 20000 pi."""
    quarter = width // 4
    wavelengths = [2 * math.pi * 10000 ** (k / (quarter - 1)) for k in range(quarter)]
    functions = ((math.sin, column), (math.cos, column), (math.sin, row), (math.cos, row))
    return [f(2 * math.pi * at / length) for f, at in functions for length in wavelengths]


def numpy_tokens(p, image_HWC):
    """Tokens [S, D] of one image. p: the embeddings' parameters; what there is of them decides the rest."""
    kernel = p["patch.kernel"]
    ph, pw, _, width = kernel.shape
    tokens = []
    for row in range(image_HWC.shape[0] // ph):
        for column in range(image_HWC.shape[1] // pw):
            patch = image_HWC[row * ph : (row + 1) * ph, column * pw : (column + 1) * pw]
            token = np.array([(patch * kernel[..., d]).sum() for d in range(width)]) + p["patch.bias"]
            tokens.append(token if "position.table" in p else token + position(row, column, width))
    if "class_token" in p:
        tokens.insert(0, p["class_token"])
    return np.stack(tokens) + p.get("position.table", 0)


def layers(p, num_layers):
    """The parameters of each of the stacked blocks."""
    return [{path: v[layer] for path, v in p.items()} for layer in range(num_layers)]


def numpy_vit(values, images, c):
    """Hidden states [B, S, D] in float64. c: the Vit's arguments."""
    values = {path: np.asarray(value, "f8") for path, value in values.items()}
    out = []
    for image in np.asarray(images, "f8"):
        x = numpy_tokens(within(values, "embeddings."), image)
        for p in layers(within(values, "blocks."), c["num_layers"]):
            x = numpy_block(x, p, [1] * len(x), range(len(x)), c | {"pre_norm": True})
        out.append(layer_norm(x, values["final_norm.scale"], values["final_norm.bias"]))
    return np.stack(out)


def numpy_mbt(values, images, audios, frames, c):
    """[(image states [S, D], states [U', D] of the real part of the audio)], in float64, an example at a time."""
    values = {path: np.asarray(value, "f8") for path, value in values.items()}
    c = c | {"pre_norm": True}

    def block(x, p):
        return numpy_block(x, p, [1] * len(x), range(len(x)), c)

    def example(image, audio, real):
        audio = np.where((np.arange(len(audio)) < real)[:, None, None], audio, 0)
        ph, pw = values["audio.embeddings.patch.kernel"].shape[:2]
        tokens = {
            name: numpy_tokens(within(values, f"{name}.embeddings."), signal)
            for name, signal in (("image", image), ("audio", audio))
        }
        # What is padding is left out, so nothing can see it.
        tokens["audio"] = tokens["audio"][: 1 + math.ceil(real / ph) * (audio.shape[1] // pw)]
        for name, x in tokens.items():
            for p in layers(within(values, f"{name}.blocks."), c["fusion_layer"]):
                x = block(x, p)
            tokens[name] = x
        bottleneck = values["bottleneck"]
        for layer in range(c["num_layers"] - c["fusion_layer"]):
            updates = []
            for name, x in tokens.items():
                p = {path: v[layer] for path, v in within(values, f"fusion.{name}.").items()}
                both = block(np.concatenate([x, bottleneck]), p)
                tokens[name] = both[: len(x)]
                updates.append(both[len(x) :])
            bottleneck = np.mean(updates, axis=0)
        return tuple(
            layer_norm(x, values[f"{name}.final_norm.scale"], values[f"{name}.final_norm.bias"])
            for name, x in tokens.items()
        )

    signals = zip(np.asarray(images, "f8"), np.asarray(audios, "f8"), frames, strict=True)
    return [example(*signal) for signal in signals]
