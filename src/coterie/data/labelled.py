"""What sources of labelled samples share: how they are split into clients, cut, thinned and
scaled.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.data import clusters, partition, pfedme_draw, split_names
from coterie.data.base import Source
from coterie.data.federation import Federation, Split, cut, without_test
from coterie.data.files import Published, search
from coterie.data.scaling import Scaling, fit, standardise

SPLITS = ("labels", "fedu", "pfedme", "pfedme-shared", "dirichlet", "quantity", "iid")
HONEST_VALIDATION = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared(Source):
    """Options of every source whose files are published: where they lie, how clients' samples are
    cut and scaled.
    """

    data_dir: str | None = option(
        None,
        "folder with the published files (else COTERIE_DATA, then the user cache, then a download)",
    )
    download: bool = option(True, "fetch files that are nowhere on this machine")
    protocol: str = option(
        "honest",
        "'paper': scaled as in the papers (over test data too), no validation part, train rounded"
        " down",
        choices=("honest", "paper"),
    )
    standardise: bool = option(
        True, "zero mean and unit variance per feature, fitted on training data"
    )
    validation: float | None = option(
        None,
        "share of each client's samples for validation (0.1; protocol 'paper': 0)",
        low=0,
        high=0.9,
        static=True,
    )
    test: float = option(
        0.25, "share of each client's samples for testing", low=0, high=0.9, static=True
    )
    downsample: float = option(
        1.0,
        "share of its training samples that a down-sampled client keeps (FedU: 0.2; 1: no"
        " down-sampling)",
        above=0,
        high=1,
        static=True,
    )
    downsample_clients: float = option(
        0.5, "share of the clients that are down-sampled", low=0, high=1, static=True
    )

    hidden: int = option(
        1, "hidden clusters of clients, whose samples differ by a rule that nobody is told", low=1
    )
    hidden_by: str = option(
        "permute",
        "how hidden clusters differ: each has other names for the labels, or turns its pictures by"
        " quarter turns",
        choices=clusters.KINDS,
    )

    def unused(self) -> dict[str, str]:
        mine = {"hidden_by": f"{self.name}.hidden is 1"} if self.hidden == 1 else {}
        return {**super().unused(), **mine}

    def hide(
        self, x: NDArray[Any], y: NDArray[Any], owner: NDArray[Any], seed: int, classes: int
    ) -> tuple[NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Samples and labels as the clients' hidden clusters have them, and facts about that."""
        if self.hidden == 1:
            return x, y, {}
        found = clusters.drawn(int(owner.max()) + 1, self.hidden, seed)
        of = np.where(owner >= 0, found[np.maximum(owner, 0)], -1)
        orders = clusters.label_orders(classes, self.hidden, seed)
        x, y = clusters.hide(x, y, of, self.hidden_by, orders)
        return x, y, {"cluster": found.tolist()}

    @property
    def paper(self) -> bool:
        return self.protocol == "paper"

    def published(self) -> Published:
        """The set's files, as its authors publish them."""
        raise NotImplementedError

    def found(self) -> Path | None:
        """The folder with the set's files on this machine; nothing is read or downloaded."""
        paths = search(self.published(), self.data_dir)
        return next(iter(paths.values())).parent if paths else None

    @staticmethod
    def largest(
        owner: NDArray[Any], names: list[str], least: int, most: int
    ) -> tuple[NDArray[np.int64], list[str]]:
        """Natural clients with at least `least` samples, of these the `most` largest (0: all),
        numbered anew in their order; samples of the others are nobody's.
        """
        sizes = np.bincount(owner, minlength=len(names))
        kept = np.flatnonzero(sizes >= least)
        if most and len(kept) > most:
            kept = np.sort(kept[np.argsort(-sizes[kept], kind="stable")[:most]])
        if not len(kept):
            raise InvalidInput(
                f"no client has {least} samples: the largest of {len(names)} has {sizes.max()}."
            )
        number = np.full(len(names), -1, np.int64)
        number[kept] = np.arange(len(kept))
        return number[owner], [names[k] for k in kept]

    def assemble(
        self,
        x: NDArray[Any],
        y: NDArray[Any],
        owner: NDArray[Any],
        seed: int,
        *,
        classes: int,
        facts: dict[str, Any],
        scaling: Scaling | None,
    ) -> Federation:
        """Cut into train, validation and test, thin, and scale: by `scaling` under protocol
        'paper', else as fitted on training data.
        """
        validation = (
            self.validation
            if self.validation is not None
            else 0.0
            if self.paper
            else HONEST_VALIDATION
        )
        pieces = cut(
            owner, validation=validation, test=self.test, seed=seed, whole_train=self.paper
        )
        # Rows are picked before they become floating point: pictures are bytes, a quarter of the
        # traffic.
        train, held_out, tested = (
            Split(x[rows].astype(np.float32), y[rows].astype(np.int32), offsets)
            for rows, offsets in pieces
        )
        made = Federation(
            self.name,
            train,
            held_out,
            tested,
            classes=classes,
            facts={**facts, "protocol": self.protocol},
        )
        if self.downsample < 1:
            made = partition.downsample(made, self.downsample, self.downsample_clients, seed)
        if self.paper:
            for s in made.splits:
                if scaling is not None:
                    scaling(s.x, out=s.x)
            made.facts["scaling"] = (
                "as in the paper, over the whole set" if scaling is not None else "as published"
            )
        elif self.standardise:
            made = standardise(made, in_place=True)
        else:
            made.facts["scaling"] = "as published"
        made.facts["no_test"] = without_test(made)
        return made


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labelled(Prepared):
    """A labelled set without natural clients: it is split by a rule."""

    growth: ClassVar[partition.Growth] = partition.FEDU_MNIST

    clients: int = option(100, "number of clients", symbol="N", low=1)
    split: str = option("labels", "how samples are given to clients", choices=SPLITS)
    labels: int = option(2, "splits 'labels' and 'fedu': labels per client", low=1)
    alpha: float = option(
        0.1,
        "splits 'dirichlet' and 'quantity': small is unequal, large is alike",
        symbol="α",
        above=0,
        static=True,
    )
    sizes: str = option(
        "equal", "splits 'labels' and 'iid': how the clients' sizes differ", choices=partition.SIZES
    )
    spread: float = option(
        1.0, "log-normal sizes: standard deviation of the logarithm", low=0, static=True
    )
    exponent: float = option(
        1.5, "power-law sizes: P(size > s) falls as s^−exponent", above=0, static=True
    )
    mean_size: int = option(0, "keep about so many samples per client on average (0: all)", low=0)
    minimum: int = option(
        10, "splits 'dirichlet', 'quantity' and 'iid': the fewest samples of a client", low=1
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", split_names.ours(self.split))
        super().__post_init__()

    def owners(self, y: NDArray[Any], seed: int) -> partition.Owners:
        """Who owns which sample. Depends on the labels, the options and the seed alone."""
        rng = np.random.default_rng([seed, 0x0E12])
        if self.split == "fedu":
            owner = partition.fedu(y, self.clients, self.labels, self.growth)
        elif self.split == "pfedme":
            owner = partition.pfedme(y, self.clients)
        elif self.split == "dirichlet":
            owner = partition.dirichlet(y, self.clients, self.alpha, rng, minimum=self.minimum)
        elif self.split == "quantity":
            weights = partition.dirichlet_sizes(self.clients, self.alpha, rng)
            owner = partition.iid(len(y), weights, rng, minimum=self.minimum)
        else:
            weights = partition.size_weights(
                self.sizes, self.clients, rng, spread=self.spread, exponent=self.exponent
            )
            if self.split == "iid":
                owner = partition.iid(len(y), weights, rng, minimum=self.minimum)
            else:
                owner = partition.labels_per_client(
                    y, self.clients, self.labels, self.labels, rng, weights=weights
                )
        return partition.thin(owner, y, self.mean_size, rng) if self.mean_size else owner

    def dealt(
        self, y: NDArray[Any], seed: int
    ) -> tuple[NDArray[np.int64] | None, partition.Owners]:
        """Which rows are given out (nothing: each once), and who owns each of these.

        In the split "pfedme-shared" alone a row may have several owners.
        """
        if self.split != "pfedme-shared":
            return None, self.owners(y, seed)
        rows, owner = pfedme_draw.shared(y, self.clients)
        if self.mean_size:
            rng = np.random.default_rng([seed, 0x0E12])
            owner = partition.thin(owner, y[rows], self.mean_size, rng)
        return rows, owner


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pictures(Labelled):
    """Sets of small pictures, bytes from 0 to 255."""

    SPLITS: ClassVar[tuple[str, ...]] = SPLITS
    names: ClassVar[tuple[str, ...]] = ()

    shape: str = option(
        "flat",
        "'flat': one row of numbers per picture; 'image': height × width × channels",
        choices=("flat", "image"),
    )

    def pictures(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """All pictures (samples, height, width, channels) and labels, training file first."""
        raise NotImplementedError

    def paper_scaling(self, x: NDArray[Any]) -> Scaling:
        """The papers' (x − μ)/(σ + 0.001) per pixel over the whole set, test pictures included."""
        return fit(x, extra=0.001)

    def class_names(self, y: NDArray[Any]) -> tuple[str, ...]:
        """The names of the classes, given all labels."""
        return self.names

    def load(self, seed: int) -> Federation:
        x, y = self.pictures()
        names = self.class_names(y)
        rows, owner = self.dealt(y, seed)
        whole = x
        if rows is not None:
            x, y = x[rows], y[rows]
        x, y, facts = self.hide(x, y, owner, seed, len(names))
        if self.shape == "flat":
            x = x.reshape(len(x), -1)
        fitted_on = x if rows is None else whole.reshape(len(whole), *x.shape[1:])
        scaling = self.paper_scaling(fitted_on) if self.paper else None
        made = self.assemble(
            x,
            y,
            owner,
            seed,
            classes=len(names),
            facts={"labels": list(names), **facts},
            scaling=scaling,
        )
        if not self.paper and not self.standardise:
            for s in made.splits:
                np.divide(s.x, np.float32(255), out=s.x)
            made.facts["scaling"] = "divided by 255"
        return made


def check_labels(title: str, y: NDArray[Any], classes: int) -> None:
    if len(y) and int(y.max()) >= classes:
        raise InvalidInput(
            f"the files of {title} hold the label {int(y.max())}, but its labels are 0 to"
            f" {classes - 1}; they are not its published ones."
        )
