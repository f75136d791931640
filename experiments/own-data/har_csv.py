"""Write UCI HAR as a plain table, har.csv: 10,299 rows, a site (the subject), a label (the
activity) and 561 columns.

COTERIE_DATA=… python experiments/own-data/har_csv.py
coterie compare har.csv --client site --target label
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

import coterie

fed = coterie.load("har", validation=0.0)
columns: dict[str, list[np.ndarray]] = {"x": [], "y": [], "site": []}
for split in (fed.train, fed.test):
    columns["x"].append(split.x)
    columns["y"].append(split.y)
    columns["site"].append(np.repeat(np.arange(fed.clients), split.sizes))
x, y, site = (np.concatenate(columns[k]) for k in ("x", "y", "site"))
names, labels = fed.facts["clients"], fed.facts["labels"]
table = {"site": [str(names[s]) for s in site], "label": [str(labels[v]) for v in y]} | {
    f"f{i}": x[:, i] for i in range(x.shape[1])
}
csv.write_csv(pa.table(table), "har.csv")
print(
    f"har.csv: {len(y):,} rows, {len(names)} sites, {x.shape[1]} columns,"
    f" {Path('har.csv').stat().st_size / 1e6:.0f} MB"
)
