"""--mode=prove says yes where the configuration is one program, and exits with 1 where it is not."""

import train

COMMON = [
    "--gin_file=tests/end_to_end/tiny.gin",
    "--mode=prove",
    "--simulated_devices=8",
    "--gin.prove.layouts=('configs/parallel/zero3.gin',)",
    "--gin.prove.accumulations=(2,)",
    "--gin.prove.steps=2",
    "--gin.prove.shrink={'bert.num_layers': 1}",
]


def test_layouts_that_agree_are_shown_to(capsys):
    assert train.main(COMMON) == 0
    out = capsys.readouterr().out
    for row in ("as configured", "single.gin", "zero3.gin"):
        assert row in out
    assert out.count("agrees") == 4  # Three rows, and the sentence below them.
    assert "DIFFERS" not in out and "One program" in out


def test_a_difference_is_shown_and_exits_with_1(capsys, tmp_path):
    # Another seed is another program: as large a fault as a layout that draws its noise by device.
    wrong = tmp_path / "wrong.gin"
    wrong.write_text("include 'configs/parallel/data.gin'\nexperiment.seed = 1\n")
    layouts = f"--gin.prove.layouts=({str(wrong)!r},)"
    assert train.main([flag for flag in COMMON if "layouts" not in flag] + [layouts]) == 1
    out = capsys.readouterr().out
    assert out.count("DIFFERS") == 1 and "Not one program" in out


def test_an_objective_that_needs_its_batch_whole_has_one_microbatch_and_the_table_says_so(capsys, tmp_path):
    own = tmp_path / "pairs.gin"
    own.write_text(
        "include 'configs/models/bert_tiny.gin'\n"
        "include 'configs/data/pydoc_sentence_pairs.gin'\n"
        "include 'configs/parallel/data.gin'\n"
        "include 'configs/optimizers/adamw.gin'\n"
        "STEPS = 12\n"
        "experiment.steps = 12\n"
        "linear.warmup = 2\n"
        "experiment.model = @sentence_embedding()\n"
        "sentence_embedding.encoder = @bert()\n"
        "bert.width = 32\n"
        "bert.mlp_width = 64\n"
        "bert.vocab_size = 512\n"
        "wordpiece.vocab_size = 512\n"
        "sentence_pairs_data.length = 32\n"
        "batch.size = 32\n"
    )
    flags = [f"--gin_file={own}", *COMMON[1:], "--gin.prove.accumulations=(1, 2)"]
    assert train.main([flag for flag in flags if "(2,)" not in flag]) == 0
    out = capsys.readouterr().out
    assert out.count("agrees") == 3  # The configuration's own layout, zero3, and the sentence.
    assert "Left out: 2 microbatches. The objective compares every example of a batch" in out
