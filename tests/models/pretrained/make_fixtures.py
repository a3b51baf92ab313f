"""Makes fixtures/ with torch and transformers: small random BERTs as saved, and what they compute. Needs no network.

python tests/models/pretrained/make_fixtures.py       (torch 2.13.0, transformers 5.24.0)
"""

import pathlib

import safetensors.torch
import torch
import transformers

FIXTURES = pathlib.Path(__file__).parent / "fixtures"

# folder: (class, layers, width, heads, mlp, vocabulary, positions, segment types, activation, norm epsilon)
MODELS = {
    "encoder": (transformers.BertModel, 1, 12, 2, 20, 29, 10, 1, "silu", 1e-12),
    "masked_lm": (transformers.BertForMaskedLM, 2, 16, 4, 24, 37, 12, 2, "gelu_new", 1e-3),
    "pretraining": (transformers.BertForPreTraining, 3, 24, 3, 40, 31, 16, 3, "relu", 1e-12),
    "sequence": (transformers.BertForSequenceClassification, 2, 20, 5, 36, 41, 14, 2, "gelu", 1e-12),
    "token": (transformers.BertForTokenClassification, 1, 8, 1, 12, 23, 9, 2, "gelu_pytorch_tanh", 1e-5),
}


def make(
    folder: pathlib.Path, model_class, layers, width, heads, mlp, vocab, positions, types, act, epsilon, seed=0
) -> None:
    """Saves a random model, inputs with padding and segments, and its outputs."""
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=mlp,
        vocab_size=vocab,
        max_position_embeddings=positions,
        type_vocab_size=types,
        hidden_act=act,
        num_labels=3,
        layer_norm_eps=epsilon,
        attn_implementation="eager",
    )
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Larger than they are drawn, and biases and norms too: no mistake may hide in a small number.
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)

    lengths = torch.tensor([positions, positions // 2, 1])
    mask = (torch.arange(positions) < lengths[:, None]).long()
    tokens = torch.randint(0, vocab, (3, positions)) * mask
    token_types = (torch.arange(positions) // 3 % types).expand(3, -1) * mask
    call = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": token_types}
    with torch.no_grad():
        encoded = (model if model_class is transformers.BertModel else model.bert)(**call)
        expected = {"hidden_states": encoded.last_hidden_state}
        if encoded.pooler_output is not None:
            expected["pooled"] = encoded.pooler_output
        if model_class is transformers.BertForMaskedLM:
            expected["masked_lm_logits"] = model(**call).logits
        elif model_class is transformers.BertForPreTraining:
            expected["masked_lm_logits"] = model(**call).prediction_logits
        elif model_class is not transformers.BertModel:
            expected["class_logits"] = model(**call).logits
    fields = {
        "tokens": tokens,
        "segment_ids": mask,
        "token_types": token_types,
        "positions": torch.arange(positions) * mask,
    }
    saved = {f"inputs.{name}": x.int().contiguous() for name, x in fields.items()}
    saved |= {f"expected.{name}": x.contiguous().clone() for name, x in expected.items()}
    safetensors.torch.save_file(saved, folder / "outputs.safetensors")


if __name__ == "__main__":
    for name, shape in MODELS.items():
        make(FIXTURES / name, *shape)
