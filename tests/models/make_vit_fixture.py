"""Makes fixtures/vit.safetensors with torch and transformers: a small random ViT, images, and its hidden states. Needs no
network.

python tests/models/make_vit_fixture.py       (torch 2.13.0, transformers 5.24.0)
"""

import pathlib

import safetensors.torch
import torch
import transformers


def main() -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        num_hidden_layers=2,
        hidden_size=16,
        num_attention_heads=4,
        intermediate_size=24,
        image_size=(8, 12),
        patch_size=4,
        num_channels=3,
        hidden_act="gelu",
        layer_norm_eps=1e-3,
        attn_implementation="eager",
    )
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Larger than they are drawn, and biases and norms too: no mistake may hide in a small number.
            parameter.add_(0.2 * torch.randn_like(parameter))
        images = torch.randn(3, 3, 8, 12)
        expected = model(pixel_values=images).last_hidden_state
    saved = {f"model.{name}": x.contiguous() for name, x in model.state_dict().items()}
    saved |= {"images": images, "expected": expected.contiguous().clone()}
    path = pathlib.Path(__file__).parent / "fixtures" / "vit.safetensors"
    safetensors.torch.save_file(saved, path, {"transformers": transformers.__version__})


if __name__ == "__main__":
    main()
