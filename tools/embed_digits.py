"""Write src/coterie/data/digits.npz from scikit-learn's bundled digits.

Run once; a test checks that both are equal.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
target = Path(__file__).parents[1] / "src/coterie/data/digits.npz"
np.savez_compressed(target, x=digits.data.astype(np.uint8), y=digits.target.astype(np.uint8))
print(target.name, target.stat().st_size, "bytes")
