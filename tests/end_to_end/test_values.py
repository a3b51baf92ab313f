"""A value that can't be is refused where it was bound, with the mend, before anything is made of it."""

import pytest

import train

QUICKSTART = "configs/runs/quickstart.gin"
RUN = """
include 'configs/parallel/data.gin'
include 'configs/optimizers/adamw.gin'
STEPS = 10
experiment.steps = 10
linear.warmup = 1
batch.size = 8
mesh.axes = {'data': 8}
"""
CAUSAL = (
    RUN
    + """
include 'configs/data/synthetic_causal_lm.gin'
experiment.model = @causal_lm()
causal_lm.decoder = @lm()
lm.num_layers = 2
lm.width = 32
lm.num_heads = 4
lm.mlp_width = 64
lm.vocab_size = 256
synthetic_causal_lm_data.vocab_size = 256
synthetic_causal_lm_data.length = 64
"""
)
IMAGES = (
    RUN
    + """
include 'configs/models/vit_ti.gin'
include 'configs/data/synthetic_images.gin'
experiment.model = @image_classification()
image_classification.encoder = @vit()
image_classification.num_classes = 1000
"""
)
BOTH = (
    RUN
    + """
include 'configs/models/mbt_tiny.gin'
include 'configs/data/synthetic_image_audio.gin'
experiment.model = @image_classification()
image_classification.encoder = @mbt()
image_classification.num_classes = 309
"""
)
PAIRS = (
    RUN
    + """
include 'configs/models/bert_tiny.gin'
include 'configs/data/pydoc_sentence_pairs.gin'
experiment.model = @sentence_embedding()
sentence_embedding.encoder = @bert()
bert.vocab_size = 4096
"""
)
# The quickstart's data under another objective.
OTHER = (
    RUN
    + """
include 'configs/models/bert_tiny.gin'
include 'configs/data/pydoc_masked_lm.gin'
bert.vocab_size = 4096
"""
)


@pytest.fixture
def refused(capsys, tmp_path):
    """The message with which explain refuses a configuration and bindings on top."""

    def refused(text, *bindings):
        file = QUICKSTART
        if text is not None:
            file = tmp_path / "run.gin"
            file.write_text(text)
        assert train.main([f"--gin_file={file}", "--mode=explain", *(f"--gin.{binding}" for binding in bindings)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and "object at 0x" not in err
        return err

    return refused


@pytest.mark.parametrize(
    "text, binding",
    [
        (None, "masked_lm.label_smoothing=1.5"),
        (None, "masked_lm.label_smoothing=-0.1"),
        (CAUSAL, "causal_lm.label_smoothing=1.0"),
        (IMAGES, "image_classification.label_smoothing=1.0"),
        (IMAGES, "image_classification.dropout=2.0"),
        (None, "bert.logit_cap=0.0"),
        (None, "bert.logit_cap=-1"),
        (CAUSAL, "lm.logit_cap=0"),
        (None, "bert.norm_epsilon=0.0"),
        (CAUSAL, "lm.norm_epsilon=-1e-6"),
        (IMAGES, "vit.norm_epsilon=0"),
        (BOTH, "mbt.norm_epsilon=0"),
        (None, "bert.dropout=1.5"),
        (None, "bert.attention_dropout=1.0"),
        (CAUSAL, "lm.dropout=-0.1"),
        (IMAGES, "vit.attention_dropout=1.0"),
        (BOTH, "mbt.dropout=1.0"),
        (None, "bert.initializer_stddev=-1.0"),
        (None, "bert.token_types=-1"),
        (None, "bert.parts={'pooler': 2}"),
        (CAUSAL, "lm.parts={'final_norm': 2}"),
        (CAUSAL, "lm.rotary_base=0.0"),
        (CAUSAL, "lm.vocab_size=100"),
        (CAUSAL, "causal_lm.balance_loss=0.5"),
        (PAIRS, "sentence_embedding.temperature=0.0"),
        (None, "masked_lm_data.max_predictions=500"),
        (None, "masked_lm_data.train_split='trian'"),
        (None, "masked_lm_data.eval_split='validation['"),
        (None, "wordpiece.split='trian'"),
        (None, "mesh.simulated_devices=-3"),
        (None, "checkpoint.best_mode='max'"),
        (None, "checkpoint.keep_best=3"),
        (None, "checkpoint.best=''"),
        (None, "experiment.init_from='/nowhere/x'"),
        (None, "experiment.init_from='fetched:minlm'"),
        (None, "experiment.init_from='configs'"),
        (None, "experiment.init_from=''"),
        (None, "experiment.fresh=('x.*',)"),
        (None, "experiment.fresh=(3,)"),
        (None, "prove.steps=0"),
        (None, "prove.batch_size=0"),
        (None, "prove.accumulations=()"),
        (None, "prove.accumulations=(5,)"),
        (None, "prove.loss_tolerance=-1.0"),
        (None, "rules.activations={'.batch': 'data'}"),
        (None, "rules.activations={'batch': [['data']]}"),
    ],
)
def test_a_number_or_name_that_can_not_be_is_refused_at_its_binding(refused, text, binding):
    message, name = refused(text, binding), binding.split("=")[0]
    assert message.startswith(f"{name}: ") and f"(--gin.{name})" in message.split("\n")[0]


@pytest.mark.parametrize(
    "given", ["7", "'bert'", "None", "[1, 2]", "(@bert(),)", "@bert", "@adamw()", "@masked_lm_data()", "@masked_lm()"]
)
def test_an_encoder_that_is_none_is_refused_at_its_binding(refused, given):
    assert refused(None, f"masked_lm.encoder={given}").startswith("masked_lm.encoder: ")


@pytest.mark.parametrize("name, given", [("data", "@masked_lm_data"), ("model", "@masked_lm"), ("optimizer", "3")])
def test_a_class_or_number_in_place_of_an_object_is_refused_at_its_binding(refused, name, given):
    assert refused(None, f"experiment.{name}={given}").startswith(f"experiment.{name}: ")


@pytest.mark.parametrize("binding", ["wordpiece.source=3", "wordpiece.source=@wordpiece()", "bert.width=@bert()"])
def test_a_reference_of_the_wrong_kind_is_refused_at_its_binding(refused, binding):
    name = binding.split("=")[0]
    assert refused(None, binding).startswith(f"{name}: ")


@pytest.mark.parametrize(
    "objective, bindings, field, giver",
    [
        (
            "sequence_classification",
            ["sequence_classification.num_classes=3", "bert.pooler=True"],
            "label",
            "classification_data",
        ),
        ("token_classification", ["token_classification.num_classes=3"], "labels", "token_classification_data"),
        ("sentence_embedding", [], "pair_tokens", "sentence_pairs_data"),
    ],
)
def test_data_without_the_fields_of_the_objective_says_which_task_gives_them(
    refused, objective, bindings, field, giver
):
    own = [f"experiment.model=@{objective}()", f"{objective}.encoder=@bert()"]
    message = refused(OTHER, *own, *bindings)
    assert message.startswith(f"experiment.data: {objective} reads '{field}', and a batch of masked_lm_data has only")
    assert f"@{giver}()" in message and "configs/data/pydoc_masked_lm.gin:" in message


def test_data_with_classes_under_an_objective_without_any_says_which_task_fits(refused):
    own = ["experiment.model=@masked_lm()", "masked_lm.encoder=@bert()"]
    data = OTHER.replace("pydoc_masked_lm", "brown_genre").replace("4096", "8192")
    message = refused(data, *own, "bert.max_length=160")
    assert "masked_lm reads 'masked_labels'" in message or "masked_lm reads 'masked_positions'" in message
    assert "@masked_lm_data()" in message


@pytest.mark.parametrize(
    "bindings, name",
    [
        (["batch.size=33"], "batch.size"),
        (["experiment.eval_batch_size=33"], "experiment.eval_batch_size"),
        (["batch.accumulation=32"], "batch.accumulation"),
        (["batch.microbatch_size=1"], "batch.microbatch_size"),
    ],
)
def test_a_batch_that_the_mesh_does_not_divide_is_refused_at_its_binding(refused, bindings, name):
    message = refused(None, *bindings)
    assert message.startswith(f"{name}: batch.tokens [batch=")
    assert "configs/parallel/gspmd_finalized.gin:" in message and "Sizes that fit: " in message


def test_a_best_metric_that_the_objective_does_not_have_is_refused_before_training(refused):
    message = refused(None, "checkpoint.best='masked_acuracy'")
    assert message.startswith("checkpoint.best: ") and "'masked_accuracy'" in message


def test_a_rule_without_a_near_mesh_axis_is_said_in_one_clean_line(refused):
    message = refused(None, "rules.weights={'embed': 'qqq'}")
    assert "'qqq', which is not a mesh axis. mesh.axes has: data, tensor." in message


def test_a_folder_in_place_of_a_gin_file_is_refused(refused, capsys, tmp_path):
    assert train.main([f"--gin_file={tmp_path}", "--mode=explain"]) == 2
    assert "there is no file" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["explain", "train", "eval"])
@pytest.mark.parametrize("below", ["", "run", "run/deeper"])
def test_a_file_in_the_way_of_the_workdir_is_refused(capsys, tmp_path, mode, below):
    (tmp_path / "file").write_text("x")
    assert train.main([f"--gin_file={QUICKSTART}", f"--mode={mode}", f"--workdir={tmp_path / 'file' / below}"]) == 2
    assert capsys.readouterr().err.startswith("--workdir: ")


@pytest.mark.parametrize("mode", ["explain", "train"])
def test_a_workdir_that_can_not_be_made_is_refused(capsys, monkeypatch, tmp_path, mode):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    assert train.main([f"--gin_file={QUICKSTART}", f"--mode={mode}", f"--workdir={tmp_path / 'run'}"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("--workdir: ") and "Permission denied" in err


def test_eval_of_a_workdir_without_a_run_says_so_and_makes_nothing(capsys, tmp_path):
    assert train.main([f"--gin_file={QUICKSTART}", "--mode=eval", f"--workdir={tmp_path / 'none'}"]) == 2
    assert "has no checkpoint to evaluate" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "binding, said",
    [("prove.layouts=('x.gin',)", "'x.gin'"), ("prove.shrink={'bert.num_layer': 2}", "'num_layers'")],
)
def test_prove_says_what_is_wrong_with_a_layout_before_it_runs_any(capsys, binding, said):
    assert train.main([f"--gin_file={QUICKSTART}", "--mode=prove", f"--gin.{binding}"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err
