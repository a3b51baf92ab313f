"""Rematerialization by name: which activations of a block are kept for the backward pass, and which are computed again."""

from collections.abc import Callable, Sequence

import gin
import jax

from mistake import Mistake, nearest

# What happens to a weight between its share and the product it is used in: gathered, cast, seen in another shape.
_OF_WEIGHTS = ("sharding_constraint", "convert_element_type", "custom_vjp_call", "reshape", "transpose", "squeeze")


@gin.configurable("remat")
class Remat:
    """What each block keeps between its forward and its backward pass.

    Args:
      keep: 'all' (no rematerialization), 'nothing' (the block's input alone), or names of activations, as
        --mode=explain lists them.
    """

    def __init__(self, keep: str | Sequence[str] = "all"):
        if isinstance(keep, str) and keep not in ("all", "nothing"):
            raise Mistake(
                f"remat.keep: {keep!r} is neither 'all' nor 'nothing'. Names of activations go in a tuple: ({keep!r},)."
            )
        self.keep = keep if isinstance(keep, str) else tuple(keep)

    def check(self, activations: set[str]) -> None:
        """Raises Mistake for a kept name that no activation of the model has."""
        if isinstance(self.keep, str):
            return
        for name in self.keep:
            if name not in activations:
                known = ", ".join(sorted(activations))
                raise Mistake(
                    f"remat.keep: no activation is called {name!r}. {nearest(name, activations)} There are: {known}."
                )

    def wrap(self, body: Callable, weights: frozenset[tuple[int, ...]] = frozenset()) -> Callable:
        """`body` with this policy. weights: shapes of a layer's weights that are gathered from shares when they are used:
        keeping the gathered ones would undo the sharing, so they are gathered again for the backward pass.
        """
        if self.keep == "all" and not weights:
            return body
        if self.keep == "all":
            policy = lambda primitive, *inputs, **_: (
                not (primitive.name in _OF_WEIGHTS and inputs and inputs[0].shape in weights)
            )
        else:
            names = () if self.keep == "nothing" else self.keep
            policy = jax.checkpoint_policies.save_only_these_names(*names)
        # Inside a scan nothing can be shared with the forward pass anyhow, so the barrier against that would only cost
        # time.
        return jax.checkpoint(body, policy=policy, prevent_cse=False)
