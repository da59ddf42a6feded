"""A checkpoint read with Zarr and NumPy alone: its version, and each tensor's name, shape and size.

``python examples/read_checkpoint.py STORE``; psplatform need not be installed where this runs.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import zarr


def main() -> None:
    """Print the newest checkpoint of the store that is named on the command line."""
    store = sys.argv[1]
    number = max(zarr.open_group(store, mode="r", path="checkpoints").group_keys())
    checkpoint = zarr.open_group(store, mode="r", path=f"checkpoints/{number}")
    about: Any = checkpoint.attrs["psplatform"]
    print(f"checkpoint {about['number']} of {store}, version {about['version']}")
    model = zarr.open_group(store, mode="r", path=f"checkpoints/{number}/model")
    for name, array in sorted(model.arrays()):
        values = np.asarray(array[...])
        print(f"  {name}: {values.dtype}{list(values.shape)}, largest {np.abs(values).max(initial=0):.6g}")


if __name__ == "__main__":
    main()
