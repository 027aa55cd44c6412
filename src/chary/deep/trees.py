"""Pytrees as named arrays and back, the form in which `chary.storage.sealed` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from chary.errors import InvalidData

Arrays = dict[str, NDArray[Any]]


def arrays_of(tree: Any, prefix: str = "") -> Arrays:
    """Return the leaves of a pytree by their paths, such as `networks.w1`; keys as the numbers they are.

    Example:
        >>> sorted(arrays_of({"a": (np.zeros(2), np.ones(1))}, "state."))
        ['state.a.0', 'state.a.1']
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {prefix + _name(path): np.asarray(_plain(leaf)) for path, leaf in leaves}


def tree_like(shapes: Any, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> Any:
    """Return the pytree that `arrays_of` took apart.

    Args:
        shapes: A pytree of arrays or of `jax.eval_shape` with the same structure.
        arrays: The result of `arrays_of`, perhaps with other arrays.
        prefix: The start of its names.

    Raises:
        InvalidData: if a leaf is missing, or of another shape or type.
    """
    leaves, whole = jax.tree_util.tree_flatten_with_path(shapes)
    found = []
    for path, like in leaves:
        name = prefix + _name(path)
        if name not in arrays:
            raise InvalidData(f"{name!r} must be in a saved agent. The file is not complete.")
        array, is_key = arrays[name], jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
        wanted = jax.eval_shape(jax.random.key_data, like) if is_key else like
        if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
            raise InvalidData(
                f"{name!r} of a saved agent must be {wanted.dtype} of shape {wanted.shape}, "
                f"got {array.dtype} of shape {array.shape}. Load it with the options it was saved with."
            )
        leaf = jnp.asarray(array)
        found.append(jax.random.wrap_key_data(leaf) if is_key else leaf)
    return jax.tree_util.tree_unflatten(whole, found)


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _plain(leaf: Any) -> Any:
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
