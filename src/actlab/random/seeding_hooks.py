"""Seed the global generators during each call of an activation that draws from them."""

from __future__ import annotations

from torch import nn
from torch.utils.hooks import RemovableHandle

from actlab.random.hashing import seed_for
from actlab.random.seeding import Generators, seed_generators
from actlab.random.streams import Calls, MemberStream, Stream, Uniform, global_seed


class SeedGlobal:
    """Hooks that seed the global generators during each call of a third-party activation.

    An activation that calls ``torch.rand``, ``F.dropout`` or ``numpy.random`` therefore draws the
    same numbers alone, in a stack and after a resume. The hooks restore the generators after each
    call, so other code, such as data loaders, draws as before. An activation that is also random in
    evaluation draws the same numbers in each evaluation batch.

    ``site`` is the number of the activation in its network.
    """

    def __init__(self, stream: Stream | MemberStream, site: int) -> None:
        self.stream = stream
        self.site = site
        self._calls = Calls()
        self._before: list[Generators] = []
        self._handles: list[RemovableHandle] = []

    def attach(self, module: nn.Module) -> None:
        """Register both hooks on a module."""
        # The second hook is called after an error, too, or the generators would stay
        # seeded
        self._handles = [
            module.register_forward_pre_hook(self),
            module.register_forward_hook(self.after, always_call=True),
        ]

    def detach(self) -> None:
        """Remove both hooks."""
        for handle in self._handles:
            handle.remove()

    def __call__(self, module: nn.Module, args: tuple[object, ...]) -> None:
        """Seed the global generators before the module's forward."""
        # A list, because calls may be nested
        self._before.append(Generators.now())
        if not module.training:
            # Without the position: each batch of an evaluation has the same numbers
            seed_generators(seed_for(self.stream.seeds[0], "evaluation", self.site))
            return

        # A repeated call in one step draws other numbers
        site = [self.site]
        repeat = self._calls.count(self.stream)
        if repeat:
            site.append(repeat)
        seed_generators(global_seed(self.stream, *site))

    def after(self, module: nn.Module, args: object, output: object) -> None:
        """Restore the generators after the module's forward."""
        self._before.pop().restore()


def seeded(module: nn.Module) -> list[tuple[nn.Module, SeedGlobal]]:
    """Return the `SeedGlobal` hooks in a module, each with the part that it is attached to."""
    pairs = []
    for part in module.modules():
        # torch has no public list of hooks
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, SeedGlobal):
                pairs.append((part, hook))
    return pairs


def attach_like(module: nn.Module, stream: Stream | MemberStream) -> None:
    """Bind every `Uniform` and `SeedGlobal` in a module to another stream; sites stay the same."""
    for part in module.modules():
        if isinstance(part, Uniform):
            part.stream = stream
    for _, hook in seeded(module):
        hook.stream = stream
