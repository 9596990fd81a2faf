"""The task of study ``gpt_plain`` in a plain loop of torch without actlab: a second reading.

    python benchmarks/gpt_loop.py TEXT [--activation gelu] [--gated] [--lr 0.003] [--seeds 2]
    [--threads 1]

    python benchmarks/gpt_loop.py TEXT --turns 5 --updates 400    # beside a Trainer: what actlab
    costs

It prints the validation loss of each seed in nats a byte, their mean, and the seconds and CPU
seconds of a run. Seeds are torch's own, so its runs are others than the study's: means agree within
the spread of seeds.
"""

import argparse
import lzma
import math
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

D, HEADS, BLOCKS, T, BATCH, UPDATES, WARM = 64, 2, 2, 64, 16, 800, 80
ACTIVATIONS = {
    **{
        "gelu": F.gelu,
        "relu": F.relu,
        "silu": F.silu,
        "elu": F.elu,
        "tanh": torch.tanh,
        "sine": torch.sin,
    },
    **{
        "sigmoid": torch.sigmoid,
        "identity": lambda x: x,
        "relu_squared": lambda x: F.relu(x).square(),
    },
}


class Block(nn.Module):
    """Attention and a hidden layer, each behind a norm and beside a shortcut."""

    def __init__(self, act, gated):
        super().__init__()
        self.act, self.hidden = act, 8 * D // 3 // 8 * 8 if gated else 4 * D
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.first = nn.Linear(D, self.hidden * (2 if gated else 1), bias=False)
        self.second = nn.Linear(self.hidden, D, bias=False)

    def forward(self, x):
        """Map (B, T, D) to (B, T, D)."""
        b, t, _ = x.shape
        q, k, v = (
            y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(D, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, D))
        h = self.first(self.ln2(x))
        if h.shape[-1] == self.hidden:
            return x + self.second(self.act(h))
        gate, up = h.chunk(2, -1)
        return x + self.second(self.act(gate) * up)


class Model(nn.Module):
    """Embeddings, blocks, a last norm and the head."""

    def __init__(self, act, gated):
        super().__init__()
        self.token, self.place = nn.Embedding(256, D), nn.Embedding(T, D)
        self.blocks = nn.ModuleList(Block(act, gated) for _ in range(BLOCKS))
        self.ln, self.head = nn.LayerNorm(D), nn.Linear(D, 256, bias=False)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                std = 0.02 if name.startswith(("token", "place")) else p.shape[1] ** -0.5
                nn.init.normal_(
                    p,
                    std=std / (math.sqrt(2 * BLOCKS) if "proj" in name or "second" in name else 1),
                )

    def forward(self, x):
        """Map tokens (B, T) to logits (B, T, 256)."""
        x = self.token(x) + self.place.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def read(path):
    """The bytes for training, and windows for validation, int64 (256, T + 1)."""
    raw = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    text = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    train, rest = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    windows = min(256, len(rest) // 2 // (T + 1))
    return train, rest[: windows * (T + 1)].view(windows, T + 1).long()


def trained(train, act, gated, lr, seed, updates):
    """A model after all updates."""
    torch.manual_seed(seed)
    model = Model(act, gated)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))
    warm = max(1, updates * WARM // UPDATES)
    span = torch.arange(T + 1)
    for k in range(updates):
        cosine = 0.1 + 0.45 * (1 + math.cos(math.pi * (k - warm) / (updates - warm)))
        for group in optimizer.param_groups:
            group["lr"] = lr * ((k + 1) / warm if k < warm else cosine)
        seen = train[torch.randint(len(train) - T, (BATCH, 1)) + span].long()
        loss = F.cross_entropy(model(seen[:, :-1]).flatten(0, 1), seen[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


@torch.no_grad()
def loss_of(model, windows):
    """The mean loss in nats a byte."""
    logits = model(windows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).item()


def in_turns(path, turns, updates):
    """Print processor times of ``gpt_plain`` in a Trainer, with tests and checkpoints, and here."""
    from actlab.experiments import build
    from actlab.storage.mappings import read_mapping
    from actlab.storage.resources import config_file

    config, (train, _), ratios = read_mapping(config_file("gpt_plain")), read(path), []
    config["data"]["init_args"] |= {"dataset": str(path), "updates_per_epoch": updates // 4}
    for turn in range(turns):
        with tempfile.TemporaryDirectory() as folder:
            config["trainer"] |= {
                "logger": False,
                "default_root_dir": folder,
                "enable_progress_bar": False,
            }
            trainer, task, data = build(config)
            start = time.process_time()
            trainer.fit(task, data)
            middle = time.process_time()
            trained(train, F.gelu, gated=False, lr=3e-3, seed=turn, updates=updates)
            seconds = middle - start, time.process_time() - middle
        ratios.append(seconds[0] / seconds[1])
        print(
            f"Trainer {seconds[0]:.2f} s, loop {seconds[1]:.2f} s, ratio {ratios[-1]:.3f}",
            flush=True,
        )
    print(f"median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--activation", default="gelu", choices=ACTIVATIONS)
    parser.add_argument("--gated", action="store_true")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, help="turns of a Trainer and the loop")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.turns:
        in_turns(args.text, args.turns, args.updates)
        return
    train, windows = read(args.text)
    losses, start, cpu = [], time.perf_counter(), time.process_time()
    for seed in range(args.seeds):
        model = trained(
            train, ACTIVATIONS[args.activation], args.gated, args.lr, seed, args.updates
        )
        losses.append(loss_of(model, windows))
    wall, cpu = (time.perf_counter() - start) / args.seeds, (time.process_time() - cpu) / args.seeds
    print(
        "validation loss:",
        *(f"{loss:.3f}" for loss in losses),
        f"mean {sum(losses) / len(losses):.3f}",
    )
    print(f"a run: {wall:.1f} s, {cpu:.1f} CPU seconds")


if __name__ == "__main__":
    main()
