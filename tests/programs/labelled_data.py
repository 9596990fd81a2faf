"""A user's datamodule with a label of each kind of annotation; it prints what it is given."""

from typing import Any

import pytorch_lightning as pl


class Labelled(pl.LightningDataModule):
    def __init__(
        self,
        label: str | None = None,
        size: int = 1,
        either: float | str = 0.5,
        anything: Any = None,
        bare=None,
        table: dict[str, Any] | None = None,
        rates: list[float] | None = None,
    ):
        super().__init__()
        self.given = {
            "label": label,
            "size": size,
            "either": either,
            "anything": anything,
            "bare": bare,
        }
        self.given |= {"table": table, "rates": rates}
