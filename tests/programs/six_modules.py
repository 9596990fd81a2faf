"""Modules and data as people write them, six unlike kinds; each takes an activation's name."""

import csv
import math
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import BinaryAccuracy, BinaryF1Score, BinaryJaccardIndex

import actlab


class Perceptron(nn.Sequential):
    def __init__(self, activation: str = "relu", inputs: int = 4, width: int = 8, outputs: int = 1):
        act = actlab.factory(activation)
        super().__init__(nn.Linear(inputs, width), act(width), nn.Linear(width, outputs))


# 1. As in templates for Hydra: parts are arguments, the optimiser a partial, metrics attributes.


class Partials(pl.LightningModule):
    def __init__(
        self,
        net: nn.Module,
        optimizer: OptimizerCallable = torch.optim.Adam,
        scheduler: LRSchedulerCallable | None = None,
        compile: bool = False,
    ):
        super().__init__()
        self.save_hyperparameters(ignore=["net"], logger=False)
        self.net, self.optimizer, self.scheduler = net, optimizer, scheduler
        self.criterion = nn.BCEWithLogitsLoss()
        self.val_acc, self.val_loss = BinaryAccuracy(), MeanMetric()

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def model_step(self, batch):
        x, y = batch
        logits = self(x)
        return self.criterion(logits, y.float()), logits, y

    def on_train_start(self):
        self.val_loss.reset()
        self.val_acc.reset()

    def training_step(self, batch, batch_idx):
        loss, _, _ = self.model_step(batch)
        self.log("train/loss", loss, on_step=False, on_epoch=True, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        loss, logits, y = self.model_step(batch)
        self.val_loss(loss)
        self.val_acc(logits, y)
        self.log("val/loss", self.val_loss, on_step=False, on_epoch=True)
        self.log("val/acc", self.val_acc, on_step=False, on_epoch=True)

    def setup(self, stage):
        if self.hparams.compile and stage == "fit":
            self.net = torch.compile(self.net)

    def configure_optimizers(self):
        optimizer = self.optimizer(self.trainer.model.parameters())
        if self.scheduler is None:
            return {"optimizer": optimizer}
        scheduler = {
            "scheduler": self.scheduler(optimizer),
            "monitor": "val/loss",
            "interval": "epoch",
        }
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


class Halves(pl.LightningDataModule):
    def __init__(self, rows: int = 96, batch_size: int = 16, num_workers: int = 0):
        super().__init__()
        self.save_hyperparameters(logger=False)

    def setup(self, stage):
        x = torch.randn(self.hparams.rows, 4, generator=torch.Generator().manual_seed(0))
        parts = random_split(TensorDataset(x, (x.sum(1) > 0).long()), [0.5, 0.25, 0.25])
        self.train, self.val, self.test = parts

    def loader(self, rows, **options):
        return DataLoader(
            rows, self.hparams.batch_size, num_workers=self.hparams.num_workers, **options
        )

    def train_dataloader(self):
        return self.loader(self.train, shuffle=True)

    def val_dataloader(self):
        return self.loader(self.val)

    def test_dataloader(self):
        return self.loader(self.test)


# 2. Two networks, two optimisers, manual optimisation; nothing of a validation but a sample's
# distance.


class GAN(pl.LightningModule):
    def __init__(self, activation: str = "relu", lr: float = 1e-3, latent: int = 3):
        super().__init__()
        self.automatic_optimization = False
        self.lr, self.latent = lr, latent
        self.generator = Perceptron(activation, latent, 16, 2)
        self.discriminator = Perceptron(activation, 2, 16, 1)

    def training_step(self, batch, batch_idx):
        (real,) = batch
        g, d = self.optimizers()
        fake = self.generator(torch.randn(len(real), self.latent))
        self.toggle_optimizer(g)
        g_loss = functional.softplus(-self.discriminator(fake)).mean()
        g.zero_grad()
        self.manual_backward(g_loss)
        g.step()
        self.untoggle_optimizer(g)
        self.toggle_optimizer(d)
        d_loss = functional.softplus(self.discriminator(fake.detach())).mean()
        d_loss = d_loss + functional.softplus(-self.discriminator(real)).mean()
        d.zero_grad()
        self.manual_backward(d_loss)
        d.step()
        self.untoggle_optimizer(d)
        self.log_dict({"g_loss": g_loss, "d_loss": d_loss}, on_step=False, on_epoch=True)

    def validation_step(self, batch, batch_idx):
        (real,) = batch
        fake = self.generator(
            torch.randn(len(real), self.latent, generator=torch.Generator().manual_seed(0))
        )
        self.log("val_mse", (fake.mean(0) - real.mean(0)).square().mean())

    def configure_optimizers(self):
        betas = (0.5, 0.999)
        parts = self.generator, self.discriminator
        return [torch.optim.Adam(part.parameters(), self.lr, betas) for part in parts], []


class Ring(pl.LightningDataModule):
    def train_dataloader(self):
        angle = torch.linspace(0, 2 * math.pi, 64)
        return DataLoader(
            TensorDataset(torch.stack([angle.cos(), angle.sin()], 1)), 16, shuffle=True
        )

    def val_dataloader(self):
        return DataLoader(self.train_dataloader().dataset, 64)


# 3. Segmentation: collections of metrics with prefixes, an encoder created late, two validation
# sets.


class Segmenter(pl.LightningModule):
    def __init__(self, activation: str = "relu", width: int = 4):
        super().__init__()
        self.activation, self.width, self.net = activation, width, None
        metrics = MetricCollection({"iou": BinaryJaccardIndex(), "f1": BinaryF1Score()})
        self.train_metrics = metrics.clone(prefix="train/")
        self.val_metrics = nn.ModuleList([metrics.clone(prefix=f"val{n}/") for n in range(2)])

    def configure_model(self):
        if self.net is None:
            act = actlab.factory(self.activation)
            convolution = nn.Conv2d(1, self.width, 3, padding=1)
            self.net = nn.Sequential(convolution, act(self.width), nn.Conv2d(self.width, 1, 1))

    def training_step(self, batch, batch_idx):
        image, mask = batch
        logits = self.net(image)
        self.train_metrics.update(logits.sigmoid(), mask)
        return functional.binary_cross_entropy_with_logits(logits, mask.float())

    def on_train_epoch_end(self):
        self.log_dict(self.train_metrics.compute())
        self.train_metrics.reset()

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        image, mask = batch
        metrics = self.val_metrics[dataloader_idx]
        metrics.update(self.net(image).sigmoid(), mask)
        self.log_dict(metrics, add_dataloader_idx=False)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 0.01)


class Squares(pl.LightningDataModule):
    def pictures(self, seed):
        generator = torch.Generator().manual_seed(seed)
        image = torch.rand(16, 1, 8, 8, generator=generator)
        return TensorDataset(image, (image > 0.6).long())

    def train_dataloader(self):
        return DataLoader(self.pictures(0), 8, shuffle=True)

    def val_dataloader(self):
        return [DataLoader(self.pictures(seed), 8) for seed in (1, 2)]


# 4. A variational autoencoder, which draws in training and in validation.


class VAE(pl.LightningModule):
    def __init__(self, activation: str = "relu", latent: int = 2, beta: float = 1.0):
        super().__init__()
        self.encoder = Perceptron(activation, 4, 16, 2 * latent)
        self.decoder = Perceptron(activation, latent, 16, 4)
        self.beta = beta

    def elbo(self, batch, split):
        x = batch[0]
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        reconstruction = (self.decoder(z) - x).square().sum(1).mean()
        kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        loss = reconstruction + self.beta * kl
        values = {
            f"{split}/loss": loss,
            f"{split}/reconstruction_mse": reconstruction,
            f"{split}/kl": kl,
        }
        self.log_dict(values, on_epoch=True, on_step=False)
        return loss

    def training_step(self, batch, batch_idx):
        return self.elbo(batch, "train")

    def validation_step(self, batch, batch_idx):
        self.elbo(batch, "val")

    def test_step(self, batch, batch_idx):
        self.elbo(batch, "test")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


# 5. A recurrent network on windows of a CSV file; schedule by steps, gradient clipping is the
# Trainer's.


class Forecaster(pl.LightningModule):
    def __init__(self, activation: str = "tanh", hidden: int = 8, lr: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.head = Perceptron(activation, hidden, hidden, 1)

    def forward(self, window):
        states, _ = self.lstm(window)
        return self.head(states[:, -1])

    def training_step(self, batch, batch_idx):
        loss = functional.mse_loss(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", functional.mse_loss(self(batch[0]), batch[1]), prog_bar=True)

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return self(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), self.hparams.lr)
        steps = self.trainer.estimated_stepping_batches
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.hparams.lr, total_steps=int(steps)
        )
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Windows(pl.LightningDataModule):
    def __init__(self, file: str = "series.csv", length: int = 6, batch_size: int = 8):
        super().__init__()
        self.file, self.length, self.batch_size = Path(file), length, batch_size

    def prepare_data(self):
        if not self.file.exists():
            values = [[n, math.sin(n / 4)] for n in range(64)]
            with self.file.open("w", newline="") as file:
                csv.writer(file).writerows([["time", "value"], *values])

    def setup(self, stage):
        with self.file.open(newline="") as file:
            values = torch.tensor([float(row["value"]) for row in csv.DictReader(file)])
        windows = values.unfold(0, self.length + 1, 1).unsqueeze(-1)
        self.rows = TensorDataset(windows[:, :-1], windows[:, -1])

    def train_dataloader(self):
        return DataLoader(Subset(self.rows, range(40)), batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(Subset(self.rows, range(40, 58)), batch_size=self.batch_size)

    predict_dataloader = val_dataloader


# 6. Texts of many lengths: batches and predictions are dictionaries, paddings are masked.


class Tagger(pl.LightningModule):
    def __init__(self, activation: str = "gelu", words: int = 20, width: int = 8):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.head = Perceptron(activation, width, width, 2)

    def forward(self, input_ids, attention_mask, labels=None):
        mask = attention_mask.unsqueeze(-1)
        logits = self.head((self.embedding(input_ids) * mask).sum(1) / mask.sum(1))
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}

    def training_step(self, batch, batch_idx):
        outputs = self(**batch)
        self.log(
            "train_loss",
            outputs["loss"],
            on_step=True,
            on_epoch=True,
            batch_size=len(batch["labels"]),
        )
        return {"loss": outputs["loss"], "logits": outputs["logits"].detach()}

    def validation_step(self, batch, batch_idx):
        outputs = self(**batch)
        right = (outputs["logits"].argmax(1) == batch["labels"]).float().mean()
        values = {"val_loss": outputs["loss"], "val_accuracy": right}
        self.log_dict(values, batch_size=len(batch["labels"]))

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        logits = self(batch["input_ids"], batch["attention_mask"])["logits"]
        return {"label": logits.argmax(1), "score": logits.softmax(1).amax(1)}

    def configure_optimizers(self):
        decayed = [p for p in self.parameters() if p.dim() > 1]
        rest = [p for p in self.parameters() if p.dim() <= 1]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, 0.01)


class Texts(Dataset):
    def __init__(self, seed, number):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(2, 7, (number,), generator=generator).tolist()
        self.texts = [torch.randint(1, 20, (length,), generator=generator) for length in lengths]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return {"input_ids": self.texts[index], "labels": int(self.texts[index].sum() % 2)}


class Corpus(pl.LightningDataModule):
    def __init__(self, batch_size: int = 8, num_workers: int = 0):
        super().__init__()
        self.options: dict[str, Any] = {"batch_size": batch_size, "num_workers": num_workers}

    def setup(self, stage):
        self.parts = {"train": Texts(0, 32), "val": Texts(1, 16)}

        def collated(
            rows: list[dict[str, Any]],
        ) -> dict[str, torch.Tensor]:  # a closure, as a tokenizer needs
            ids = pad_sequence([row["input_ids"] for row in rows], batch_first=True)
            labels = torch.tensor([row["labels"] for row in rows])
            return {"input_ids": ids, "attention_mask": (ids > 0).float(), "labels": labels}

        self.options["collate_fn"] = collated

    def train_dataloader(self):
        return DataLoader(self.parts["train"], shuffle=True, **self.options)

    def val_dataloader(self):
        return DataLoader(self.parts["val"], **self.options)

    predict_dataloader = val_dataloader
