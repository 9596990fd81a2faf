"""Activations whose backward pass is written by hand: right, wrong, or a surrogate."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class _Slope(torch.autograd.Function):
    """x·tanh(x), whose derivative is multiplied by ``factor``."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x.tanh()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return ctx.factor * gradient * (x.tanh() + x * (1 - x.tanh() ** 2)), None


class Right(nn.Module):
    def forward(self, x):
        return _Slope.apply(x, 1)


class Checkpointed(nn.Module):
    """Computed again in its backward pass, where `torch.autograd.grad` raises."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return checkpoint(lambda y: y * torch.sigmoid(self.slope * y), x, use_reentrant=True)


class Twice(nn.Module):
    def forward(self, x):
        return _Slope.apply(x, 2)


class TwiceAndKept(nn.Module):
    """Keeps a tensor that cannot be copied."""

    def forward(self, x):
        self.last = _Slope.apply(x, 2)
        return self.last


class TwiceInTraining(nn.Module):
    def forward(self, x):
        return _Slope.apply(x, 1 + self.training)


class TwiceForNegative(nn.Module):
    def forward(self, x):
        return torch.where(x < -2, _Slope.apply(x, 2), _Slope.apply(x, 1))


class TwiceCentred(nn.Module):
    """Mixes elements, and its gradient is wrong."""

    def forward(self, x):
        return _Slope.apply(x - x.mean(-1, keepdim=True), 2)


class RightCentred(nn.Module):
    """Mixes the samples of a batch, with kinks."""

    def forward(self, x):
        return (x - x.mean(0)).relu() * torch.softmax(x, -1)


class _Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x, slope)
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx, gradient):
        x, slope = ctx.saved_tensors
        return torch.where(x > 0, gradient, slope * gradient), gradient.sum().reshape(slope.shape)


class WrongSlope(nn.Module):
    """Right with respect to its input, wrong with respect to its parameter."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.full((1,), 0.25))

    def forward(self, x):
        return _Leaky.apply(x, self.slope)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < 1)


class StraightThrough(nn.Module):
    elementwise = True
    stochastic = False

    def forward(self, x):
        return _Step.apply(x)


class DeclaredStraightThrough(nn.Module):
    elementwise = True
    stochastic = False
    surrogate_gradient = True

    def forward(self, x):
        return _Step.apply(x)


class DeclaredInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = DeclaredStraightThrough()

    def forward(self, x):
        return 2 * self.inner(x)


class Undeclared(DeclaredStraightThrough):
    """A declaration describes the forward of its own class."""

    def forward(self, x):
        return 2 * super().forward(x)


class DeclaredThoughRight(nn.Module):
    surrogate_gradient = True

    def forward(self, x):
        return x.tanh()


def declared_function(x):
    return _Step.apply(x)


declared_function.surrogate_gradient = True  # type: ignore[attr-defined]


def undeclared_function(x):
    return x + (x.round() - x).detach()


def stopped(x):
    return x * x.sigmoid().detach()


def steps(x):
    """Jumps a thousand times a unit; its derivative is 0.1 between the jumps."""
    return (1000 * x).round() / 1000 + 0.1 * x


def single(x):
    return torch.tanh(x.float()).to(x.dtype)


class Single(nn.Module):
    """Cannot compute in float64."""

    def __init__(self):
        super().__init__()
        self.weight = torch.full((1, 1), 0.5)

    def forward(self, x):
        return torch.tanh(x.reshape(-1, 1) @ self.weight).reshape(x.shape)


class SingleTwice(Single):
    def forward(self, x):
        return _Slope.apply(super().forward(x), 2)


class Bernoulli(nn.Module):
    """Stochastic; the mask has no gradient, and evaluation is the expectation."""

    def forward(self, x):
        p = x.sigmoid()
        return x * (torch.rand_like(x) < p).to(x.dtype) if self.training else x * p


class OwnGenerator(nn.Module):
    """Draws from a generator that nobody else can seed."""

    def __init__(self):
        super().__init__()
        self.generator = torch.Generator()

    def forward(self, x):
        return x * torch.rand(x.shape, generator=self.generator, dtype=x.dtype)


class FromZero(nn.Module):
    """Its parameter starts at a kink."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return torch.where(x > 0, x, self.slope.abs() * x)


class _Constant(torch.autograd.Function):
    """``value`` with the gradient ``slope``, a constant: derivatives by the slope are lost."""

    @staticmethod
    def forward(ctx, x, value, slope):
        ctx.save_for_backward(slope.detach())
        return value.detach().clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None, None


class KeptSlope(nn.Module):
    def forward(self, x):
        s = x.sigmoid()
        return _Constant.apply(x, x * s, s * (1 + x * (1 - s)))


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return gradient * _Constant.apply(
            x, s * (1 + x * (1 - s)), s * (1 - s) * (2 + x * (1 - 2 * s))
        )


class KeptCurvature(nn.Module):
    """Its first and second derivatives are right."""

    def forward(self, x):
        return _Silu.apply(x)


class RowSoftmax(nn.Module):
    """Mixes elements; the sum of its outputs is constant."""

    def forward(self, x):
        return torch.softmax(x, -1)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        p = torch.softmax(x, -1)
        ctx.save_for_backward(p)
        return p.clone()

    @staticmethod
    def backward(ctx, gradient):
        (p,) = ctx.saved_tensors
        return p * (gradient - (p * gradient).sum(-1, keepdim=True))


class KeptSoftmax(nn.Module):
    def forward(self, x):
        return _Softmax.apply(x)


class _Sharp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, a):
        ctx.save_for_backward(x, a)
        return torch.tanh(a * x)

    @staticmethod
    def backward(ctx, gradient):
        x, a = ctx.saved_tensors
        slope = gradient * (1 - torch.tanh(a.detach() * x) ** 2)
        return a.detach() * slope, (x * slope).sum().reshape(a.shape)


class KeptSharpness(nn.Module):
    """All derivatives by its input are right; those of its slope by its parameter are lost."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return _Sharp.apply(x, self.a)


class FirstSize(nn.Module):
    """A buffer of the shape of its first input."""

    mask: torch.Tensor | None

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", None)

    def forward(self, x):
        if self.mask is None:
            self.mask = torch.ones_like(x)
        return torch.relu(x) * self.mask[: len(x)]


class SecondSize(FirstSize):
    """Has room for one more row."""

    def forward(self, x):
        if self.mask is None:
            self.mask = torch.ones_like(torch.cat([x, x[:1]]))
        return super().forward(x)
