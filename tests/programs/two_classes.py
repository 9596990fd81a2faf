"""Points of two classes."""

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset


class Points(pl.LightningDataModule):
    num_classes, input_shape = 2, (4,)

    def batches(self):
        x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), 8)

    train_dataloader = val_dataloader = test_dataloader = batches
