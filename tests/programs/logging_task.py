"""A task that logs what it likes, in each hook and in each of Lightning's ways."""

import torch
from torchmetrics import MeanMetric

from actlab.tasks import ClassificationTask


class LoggingTask(ClassificationTask):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.norms = MeanMetric()

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("own/loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        self.norms(torch.stack([p.norm() for p in self.parameters()]))
        self.log("own/norm", self.norms, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        self.log("own/val_batch", float(batch_idx))

    def on_validation_epoch_end(self):
        super().on_validation_epoch_end()
        self.log_dict({"own/validations": 1.0})

    def test_step(self, batch, batch_idx):
        super().test_step(batch, batch_idx)
        self.log("own/test_size", float(len(batch[0])))

    def on_train_epoch_end(self):
        super().on_train_epoch_end()
        self.log("own/epoch", float(self.current_epoch), logger=True)
