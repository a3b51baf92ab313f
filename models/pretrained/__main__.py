"""`python -m models.pretrained import|export|compare SRC DIR`: checkpoints to and from Hugging Face's folders.

    import SRC DIR    SRC, a folder as transformers saves it or its .safetensors file -> DIR: model.safetensors in our
                      names, model.gin, the tokenizer
    export SRC DIR    the other way; transformers loads DIR
    compare SRC DIR   the largest difference of their outputs; without torch and transformers, of their tensors

Exit status: 0 done; 1 compared, and more than 1e-5 apart; 2 a mistake.
"""

import argparse
import sys
from pathlib import Path

from mistake import Mistake
from models.pretrained import checkpoint as checkpoints
from models.pretrained.compare import TOLERANCE, compare
from models.pretrained.folder import copy_tokenizer, writing
from models.pretrained.resize import resize_positions, resize_vocabulary
from models.pretrained.tensors import TENSORS


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except Mistake as mistake:
        print(mistake, file=sys.stderr)
        return 2


def _import(options: argparse.Namespace) -> int:
    if checkpoints.is_ours(options.src):
        raise Mistake(f"{options.src}: it is one of ours already, with a {checkpoints.BINDINGS}.")
    found = checkpoints.read(options.src, options.family)
    for note in found.notes:
        print(note)
    if options.vocab_size is not None:
        found, said = resize_vocabulary(found, options.vocab_size)
        print(said)
    if options.positions is not None:
        found, said = resize_positions(found, options.positions)
        print(said)
    header = f"{checkpoints.BINDINGS} -- the model in {TENSORS}, for --gin_file and experiment.init_from."
    with writing(options.dir, options.overwrite) as folder:
        checkpoints.write_ours(found, folder, header, options.family)
        copied = copy_tokenizer(checkpoints.folder_of(options.src), folder)
    _report(found, options.dir, copied)
    return 0


def _export(options: argparse.Namespace) -> int:
    if not checkpoints.is_ours(options.src):
        raise Mistake(
            f"{options.src}: it has no {checkpoints.BINDINGS}, so it is none of ours. Make one with `import`."
        )
    found = checkpoints.read(options.src, options.family)
    with writing(options.dir, options.overwrite) as folder:
        checkpoints.write_theirs(found, folder, options.family)
        copied = copy_tokenizer(checkpoints.folder_of(options.src), folder)
    _report(found, options.dir, copied)
    return 0


def _compare(options: argparse.Namespace) -> int:
    found = compare(options.src, options.dir, options.family)
    print(f"compared by {found.by}: the largest absolute differences")
    for name, value in found.differences.items():
        print(f"  {value:.3g}  {name}")
    for fault in found.faults:
        print(f"  {fault}")
    print(f"{'within' if found.agree else 'NOT within'} {TOLERANCE:g}")
    return 0 if found.agree else 1


def _report(found: checkpoints.Checkpoint, folder: Path, copied: list[str]) -> None:
    size = sum(x.size for x in found.params.values())
    head = f"with the head of {found.head}" if found.head else "an encoder without head"
    print(f"{folder}: {size:,} parameters, {head}" + "".join(f", {name}" for name in copied))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m models.pretrained", description="Checkpoints to and from other libraries."
    )
    commands = parser.add_subparsers(required=True)
    for name, run, about in (
        ("import", _import, "a Hugging Face folder -> ours"),
        ("export", _export, "ours -> a Hugging Face folder"),
        ("compare", _compare, "a folder with another"),
    ):
        command = commands.add_parser(name, help=about, description=about)
        command.set_defaults(run=run)
        command.add_argument("src", type=Path, metavar="SRC")
        command.add_argument("dir", type=Path, metavar="DIR")
        command.add_argument("--family", default="bert", help="bert, the default")
        if name == "import":
            command.add_argument("--vocab_size", type=int, help="more tokens (the mean row), or fewer")
            command.add_argument("--positions", type=int, help="more positions (interpolated), or fewer")
        if name != "compare":
            command.add_argument("--overwrite", action="store_true", help="replace a checkpoint in DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
