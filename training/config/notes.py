"""What is no mistake, yet rarely meant: overrides that a later include undoes, macros without effect."""

from collections.abc import Iterator, Sequence

from training.config.checks import Bindings
from training.config.reading import Written
from training.config.values import Macro, Name, walk


def notes(bindings: Bindings, history: Sequence[Written]) -> list[str]:
    """A line each. history: all that was written, in order; bindings: the last of each name."""
    by_name: dict[Name, list[Written]] = {}
    for written in history:
        by_name.setdefault(written.name, []).append(written)
    undone = [note for entries in by_name.values() for note in _undone(entries)]
    return undone + list(_without_readers(bindings))


def _undone(entries: list[Written]) -> Iterator[str]:
    last = entries[-1]
    differing = [index for index, written in enumerate(entries) if written.text != last.text]
    if not differing:
        return
    index = differing[-1]
    before, after = entries[index], entries[index + 1]
    if _undoes(before, after, entries[:index]):
        yield (
            f"{last.name}: {before.text} ({before.place()}) is undone by a later include: "
            f"{after.text} ({after.place()}). To keep it, write it after the include."
        )


def _undoes(before: Written, after: Written, earlier: list[Written]) -> bool:
    if len(after.readings) < 2:  # a flag, or a file given by flag: later wins, as everyone expects
        return False
    if before.readings[: len(after.readings)] == after.readings:  # a file overrides what it includes
        return False
    if before.readings[0] != after.readings[0]:
        # Of two files given by flag the later wins, as everyone expects; but what the earlier says itself was said on
        # purpose, and what the later includes it may not mean to say.
        return len(before.readings) < 2
    beside = after.readings[: len(before.readings)] != before.readings
    # Of two files that one includes, the later may override; it undoes only when it brings an earlier value back.
    return not beside or any(written.text == after.text for written in earlier)


def _without_readers(bindings: Bindings) -> Iterator[str]:
    read = {leaf.name for written in bindings.values() for leaf in walk(written.value) if isinstance(leaf, Macro)}
    for name, written in bindings.items():
        if name.is_macro and name.configurable not in read:
            yield f"{name}: every binding that reads this macro is overridden, so it has no effect ({written.place()})."
