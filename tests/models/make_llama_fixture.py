"""Makes fixtures/llama.safetensors with torch and transformers: a small random Llama, tokens, and its logits. Needs no network.

python tests/models/make_llama_fixture.py       (torch 2.13.0, transformers 5.24.0)
"""

import pathlib

import safetensors.torch
import torch
import transformers


def main() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        num_hidden_layers=2,
        hidden_size=16,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        intermediate_size=24,
        vocab_size=40,
        max_position_embeddings=32,
        rms_norm_eps=1e-3,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Larger than they are drawn, and norms too: no mistake may hide in a small number.
            parameter.add_(0.2 * torch.randn_like(parameter))
        tokens = torch.randint(40, (3, 11))
        expected = model(input_ids=tokens).logits
    saved = {name: x.contiguous() for name, x in model.state_dict().items()}
    saved |= {"tokens": tokens, "expected": expected.contiguous().clone()}
    path = pathlib.Path(__file__).parent / "fixtures" / "llama.safetensors"
    safetensors.torch.save_file(saved, path, {"transformers": transformers.__version__})


if __name__ == "__main__":
    main()
