"""What a user gets wrong: exit status 2, one message that names the place and the mend, no traceback."""

import pytest

import train

QUICKSTART = "configs/runs/quickstart.gin"


def run(capsys, *flags: str, gin_file: str = QUICKSTART) -> str:
    """The message of a command that must be refused."""
    assert train.main([f"--gin_file={gin_file}", "--mode=explain", *flags]) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in err and out == ""
    return err


def test_a_typo_in_a_binding_names_the_nearest(capsys):
    message = run(capsys, "--gin.bert.num_layer=3")
    assert "bert.num_layer" in message and "'num_layers'" in message and "--gin.bert.num_layer" in message


def test_a_typo_in_a_macro_names_the_nearest(capsys):
    message = run(capsys, "--gin.experiment.steps=%STEP")
    assert "STEP" in message and "'STEPS'" in message


def test_a_typo_in_a_mesh_axis_names_the_line_of_the_rule(capsys):
    message = run(capsys, "--gin.mesh.axes={'dta': 2, 'tensor': 4}")
    assert "'data', which is not a mesh axis" in message and "'dta'" in message
    assert "configs/parallel/gspmd_finalized.gin:" in message


def test_a_typo_in_a_rule_names_its_line_and_the_nearest(capsys, tmp_path):
    own = tmp_path / "own.gin"
    own.write_text("rules.weights = {\n    'embd': 'data',\n    'mlp': 'tensor',\n}\n")
    message = run(capsys, f"--gin_file={own}")
    assert "'embd' is not a logical axis" in message and "'embed'" in message and "own.gin:2" in message


def test_a_mesh_axis_twice_in_a_tensor_names_tensor_and_rules(capsys):
    message = run(capsys, "--gin.rules.weights={'embed': 'tensor', 'mlp': 'tensor', 'heads': 'data'}")
    assert "encoder.blocks.mlp.up.kernel" in message or "encoder.blocks.mlp.down.kernel" in message
    assert "'embed' -> tensor" in message and "'mlp' -> tensor" in message and "--gin.rules.weights" in message


def test_a_size_that_is_not_divided_names_those_that_fit(capsys):
    message = run(capsys, "--gin.bert.mlp_width=510")
    assert "mlp=510" in message and "508, 512" in message and "gspmd_finalized.gin:" in message


def test_every_required_value_that_is_missing_is_named_at_once(capsys, tmp_path):
    bare = tmp_path / "bare.gin"
    bare.write_text("experiment.model = @masked_lm()\nmasked_lm.encoder = @bert()\n")
    message = run(capsys, gin_file=str(bare))
    for name in (
        "experiment.data",
        "experiment.optimizer",
        "experiment.steps",
        "bert.num_layers",
        "bert.width",
        "mesh.axes",
        "rules.weights",
    ):
        assert name in message, name


def test_a_batch_triple_that_does_not_go_together_names_divisors(capsys):
    message = run(capsys, "--gin.batch.accumulation=5")
    assert "1, 2, 4, 8, 16, 32" in message and "--gin.batch.accumulation" in message


def test_a_missing_file_names_the_nearest(capsys):
    message = run(capsys, gin_file="configs/runs/quickstrat.gin")
    assert "configs/runs/quickstrat.gin" in message and "quickstart.gin" in message


def test_a_wrong_type_names_what_is_meant(capsys):
    message = run(capsys, "--gin.bert.num_layers='two'")
    assert "bert.num_layers" in message and "int" in message and "--gin.bert.num_layers" in message


def test_a_rule_that_no_tensor_meets_is_refused(capsys):
    message = run(capsys, "--gin.rules.optimizer={'classes': 'data'}")
    assert "'classes'" in message and "--gin.rules.optimizer" in message


def test_a_part_that_the_model_does_not_have_is_refused(capsys, tmp_path):
    own = tmp_path / "own.gin"
    own.write_text("image/rules.weights = {'mlp': 'tensor'}\n")
    message = run(capsys, f"--gin_file={own}")
    assert "image" in message and "own.gin:1" in message


def test_a_remat_name_that_no_activation_has_names_the_nearest(capsys):
    message = run(capsys, "--gin.remat.keep=('querry',)")
    assert "'querry'" in message and "'query'" in message


def test_too_few_devices_names_the_numbers(capsys):
    assert (
        train.main([f"--gin_file={QUICKSTART}", "--workdir=/nowhere", "--gin.mesh.axes={'data': 64, 'tensor': 4}"]) == 2
    )
    assert "takes 256 devices, and there are" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--gin_fle=x", "--mode=trian", "--gin.bert.width"])
def test_a_typo_in_a_flag_is_refused(capsys, flag):
    assert train.main([f"--gin_file={QUICKSTART}", flag]) == 2
    assert flag.split("=")[0].lstrip("-")[:6] in capsys.readouterr().err


def test_training_without_a_workdir_says_what_to_add(capsys):
    assert train.main([f"--gin_file={QUICKSTART}"]) == 2
    assert "Add --workdir=DIR" in capsys.readouterr().err
