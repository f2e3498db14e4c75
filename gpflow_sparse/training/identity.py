"""What makes a run the run it is, as far as a resumed one has to be the same."""

import hashlib
import json
from typing import Any

import gpflow
import numpy as np

from gpflow_sparse.persistence.encoding import Encoder
from gpflow_sparse.training.feed import Feed


def describe_run(model: gpflow.models.GPModel, feed: Feed | None, optimizer: Any) -> dict[str, Any]:
    """
    Model, data and optimizer of a run, to be compared with those of its checkpoints.

    :raises ValueError: for an optimizer whose memory cannot be put back.
    """
    if not hasattr(optimizer, "build"):
        raise ValueError(
            f"a run with the legacy optimizer {type(optimizer).__name__} cannot be resumed: it "
            "makes its memory only as it goes. Use gpflow_sparse.training.adam()."
        )
    return {
        "model": _structure(model),
        "data": feed.fingerprint if feed else "held by the model",
        "batch_size": feed.batch_size if feed else None,
        "optimizer": _settings_of(optimizer),
    }


def _structure(model: gpflow.models.GPModel) -> dict[str, Any]:
    """
    Everything about a model but the values that training moves: kinds and settings of its parts,
    columns, transforms, priors, trainable flags, inducing sets by their sizes.
    """
    encoder = Encoder()
    try:
        tree = json.loads(encoder.encode_model(model))
    except ValueError:  # it has a part that no file can hold, such as a lambda: its kinds must do
        kinds = [type(part).__name__ for part in model.submodules]
        return {"kind": type(model).__name__, "parts": ", ".join(kinds)}
    moving = {node["data"] for node in tree["objects"] if node["kind"] == "variable"}
    for node in tree["objects"]:
        node.pop("name", None)  # TensorFlow counts there
        node.get("attributes", {}).pop("jitter", None)  # a run may raise it
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for key, array in encoder.arrays.items():
        digest.update(str(array.shape).encode())
        digest.update(b"" if key in moving else array.tobytes())
    return {"kind": type(model).__name__, "structure": digest.hexdigest()[:16]}


def _settings_of(optimizer: Any) -> dict[str, Any]:
    try:
        settings = dict(optimizer.get_config())
    except (AttributeError, NotImplementedError):
        settings = {}
    settings.pop("name", None)  # Keras counts the optimizers of a process there
    # through text, as it comes back from a file; what is not plain is known by its kind
    plain = json.loads(json.dumps(settings, default=_plain))
    return {"kind": type(optimizer).__name__, **plain}


def _plain(value: Any) -> Any:
    """A number of NumPy's or TensorFlow's as one of Python's; the kind of anything else."""
    array = np.asarray(value)
    return array.item() if array.size == 1 and array.dtype.kind in "fiub" else type(value).__name__
