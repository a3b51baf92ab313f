"""A run ends as the pretrained model that it trained, and says before it begins if it can't."""

import types

import jax
import numpy as np
import pytest
from flax import nnx

from mistake import Mistake
from models.bert import Bert
from models.objectives.classification import SequenceClassification, TokenClassification
from models.objectives.masked_lm import MaskedLM
from models.pretrained.checkpoint import read, write_theirs
from models.pretrained.folder import writing
from parallel.parameters import declared, initialize
from training.initial import check_model_to_write, write_model

SHAPE = {"num_layers": 2, "width": 8, "num_heads": 2, "mlp_width": 16, "vocab_size": 20, "max_length": 10}
# Every binding of `bert`, as a configuration would give them.
BOUND = {f"bert.{name}": repr(value) for name, value in SHAPE.items()} | {
    "bert.token_types": "2",
    "bert.norm_epsilon": "1e-12",
    "bert.dropout": "0.1",
    "bert.attention_dropout": "0.1",
    "bert.positions": "'learned'",
    "bert.pre_norm": "False",
    "bert.gated_mlp": "False",
    "bert.attention_bias": "True",
    "bert.mlp_bias": "True",
    "bert.norm_bias": "True",
    "bert.per_dim_scale": "False",
    "bert.logit_cap": "None",
    "bert.num_kv_heads": "None",
    "bert.head_dim": "None",
    "bert.parts": "None",
    "bert.activation": "'gelu'",
    "bert.pooler": "True",
    "bert.dtype": "'float32'",
    "bert.initializer_stddev": "0.02",
    "experiment.steps": "3",
}


def program_of(model: nnx.Module):
    experiment = types.SimpleNamespace(model=model, data=object())
    return types.SimpleNamespace(experiment=experiment, declared=declared(model))


@pytest.fixture
def written(tmp_path):
    """The folder that a run of this objective leaves, and its weights."""

    def written(model):
        program = program_of(model)
        params = jax.device_get(initialize(program.declared, 0))
        state = types.SimpleNamespace(params=params, opt_state={}, ema=None)
        check_model_to_write(program, BOUND, tmp_path / "model")
        write_model(program, state, BOUND, tmp_path / "model")
        return tmp_path / "model", params

    return written


@pytest.mark.parametrize(
    "make, head",
    [
        (lambda encoder: TokenClassification(encoder, 3), "BertForTokenClassification"),
        (lambda encoder: SequenceClassification(encoder, 3), "BertForSequenceClassification"),
        (MaskedLM, "BertForMaskedLM"),
    ],
)
def test_the_head_is_that_of_the_objective_even_where_a_pooler_would_tell_another(written, tmp_path, make, head):
    folder, params = written(make(Bert(**SHAPE, pooler=True)))
    ours = read(folder)
    assert ours.head == head
    with writing(tmp_path / "theirs", overwrite=False) as partial:
        write_theirs(ours, partial)
    theirs = read(tmp_path / "theirs")
    assert theirs.head == head
    for path, value in params.items():
        np.testing.assert_array_equal(theirs.params[path], value, err_msg=path)


def test_a_head_that_no_checkpoint_has_is_refused_before_the_run(tmp_path):
    model = MaskedLM(Bert(**SHAPE, pooler=True), transform=False)
    with pytest.raises(Mistake, match=r"(?s)^experiment.write_model: .*missing: head.norm"):
        check_model_to_write(program_of(model), BOUND, tmp_path / "model")


def test_a_model_of_no_family_is_refused_before_the_run(tmp_path):
    model = nnx.Module()
    with pytest.raises(Mistake, match=r"^experiment.write_model: .*bert"):
        check_model_to_write(program_of(model), BOUND, tmp_path / "model")


def test_a_folder_with_other_files_is_refused_before_the_run(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.tex").touch()
    model = TokenClassification(Bert(**SHAPE, pooler=True), 3)
    with pytest.raises(Mistake, match=r"^experiment.write_model: .*thesis.tex"):
        check_model_to_write(program_of(model), BOUND, tmp_path / "model")
