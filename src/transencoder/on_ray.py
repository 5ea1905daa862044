"""Parts computed by a Ray cluster: actors, one per GPU or else per CPU, compute the shards that they are given.

If an actor is lost with its node, its shard is given to another actor. All nodes must see the same files. Ray's own
data pipelines would serve the same purpose, but pass data between stages, where this module uses files. Whole calls run
as tasks.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from transencoder import progress
from transencoder.errors import InputError, RunError, TransencoderError, reason_of
from transencoder.shards import Parts, Shard

logger = logging.getLogger(__name__)

Make = Callable[[Shard], None]
"""Function that computes the part of a shard."""

_LOSSES = 3
"""Number of times that each actor, on average, and each task may be lost: more losses are no accident."""

_LOOK_SECONDS = 0.5


def make_all(parts: Parts, maker: Callable[..., Make], *arguments: Any) -> None:
    """Compute the parts that are missing.

    Args:
        parts: Parts, which determine the shards.
        maker: Function that is called once in each actor, with `arguments`, and returns the function that computes
            parts. Both `maker` and `arguments` must be picklable.
        arguments: Arguments of `maker`.

    Raises:
        InputError: Ray is not installed, or `maker` refuses its arguments.
        RunError: Actors are lost again and again.
    """
    with _cluster() as (ray, _, n_units, unit):
        actor = ray.remote(_Actor).options(**unit)
        shards = replace(parts, fewest=n_units).shards()
        logger.info("Ray: %d shards for %d actors", len(shards), min(n_units, len(shards)))
        _share_out(shards, lambda: actor.remote(maker, arguments, os.getcwd()), min(n_units, len(shards)))


def call_all(
    call: Callable[..., Any], arguments: Sequence[Sequence[Any]], may_start: Callable[[int], bool]
) -> list[Any]:
    """Call a function once for each of `arguments`, each as a task on a GPU or else a CPU; return the results in order.

    A task that is lost with its node is started again: the function has to resume from what it left. An error in one
    task is raised here, and the others are cancelled.

    Args:
        call: Function to call. It must be picklable, as must its arguments and its result.
        arguments: Arguments of each task.
        may_start: Function that is called repeatedly and tells whether the task of a given number may start now. If
            none may and none is running, the next one starts.

    Raises:
        TransencoderError: The function raised it, Ray is not installed, or a task is lost again and again.
    """
    with _cluster() as (ray, is_ours, _, unit):
        task = ray.remote(_call).options(max_retries=_LOSSES, **unit)
        waiting, running, results = dict(enumerate(arguments)), dict[Any, int](), dict[int, Any]()
        try:
            with progress.task("runs on Ray", len(arguments)) as advance:
                while waiting or running:
                    ready = [number for number in waiting if may_start(number)]
                    for number in ready or [*waiting][: 0 if running else 1]:
                        running[task.remote(os.getcwd(), call, waiting.pop(number))] = number
                    done, _ = ray.wait([*running], timeout=_LOOK_SECONDS)
                    for each in done:
                        results[running.pop(each)] = _got(each)
                        advance(1)
        finally:
            # Ours ends with its tasks. To cancel one that has just ended crashes Ray 2.60.
            if running and not is_ours:
                for each in ray.wait([*running], num_returns=len(running), timeout=0)[1]:
                    ray.cancel(each)
        return [results[number] for number in range(len(arguments))]


def _call(folder: str, call: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    os.chdir(folder)  # paths are relative to it
    return call(*arguments)


@contextmanager
def _cluster() -> Iterator[tuple[Any, bool, int, dict[str, int]]]:
    """Yield Ray, connected; whether the connection is ours, which ends here; how many units it has; what a unit is.

    Its units are its GPUs or, without any, its CPUs; an actor or a task takes one.
    """
    try:
        import ray
    except ImportError as error:
        raise InputError("Ray is not installed; pip install 'transencoder[ray]', or leave --engine out") from error
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("--engine ray under torchrun: Ray starts processes of its own; leave torchrun or --engine out")
    is_ours = not ray.is_initialized()
    if is_ours:
        # Without an address Ray looks for the last cluster of this machine, which takes minutes if that was killed.
        address = os.environ.get("RAY_ADDRESS") or "local"
        if address != "local":
            logger.info("Ray: connecting to %s, as RAY_ADDRESS says", address)  # tries for minutes, in silence
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except ConnectionError as error:
            if address == "local":
                raise
            raise RunError(
                f"no Ray cluster answers at {address} ({reason_of(error)}); start one there, or unset RAY_ADDRESS"
            ) from error
    try:
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        n_units, unit = _units([each["Resources"] for each in nodes if each["Alive"]])
        yield ray, is_ours, n_units, unit
    finally:
        if is_ours:
            ray.shutdown()


def _units(nodes: Sequence[Mapping[str, float]]) -> tuple[int, dict[str, int]]:
    """Return the number of units of a cluster, and the resources of one, which every node with such units can give."""
    with_gpus = [(int(each["GPU"]), int(each.get("CPU", 0))) for each in nodes if each.get("GPU")]
    if with_gpus:
        n_gpus = sum(gpus for gpus, _ in with_gpus)
        return n_gpus, {"num_gpus": 1, "num_cpus": min(cpus // gpus for gpus, cpus in with_gpus)}
    return max(1, sum(int(each.get("CPU", 0)) for each in nodes)), {"num_cpus": 1}


def _got(reference: Any) -> Any:
    """Return the result of an actor's method or of a task.

    Raises:
        TransencoderError: The method or the task raised it.
        RunError: The task is lost again and again.
        RayActorError: The actor is lost.
    """
    import ray
    from ray.exceptions import RayActorError, RayError, RayTaskError

    try:
        return ray.get(reference)
    except RayActorError:
        raise
    except RayTaskError as error:
        cause = error.cause
        raise (type(cause)(str(cause)) if isinstance(cause, TransencoderError) else error) from error
    except RayError as error:
        raise RunError(f"Ray lost a task {_LOSSES + 1} times, the last time so: {error}") from error


class _Actor:
    """A worker process of the cluster."""

    def __init__(self, maker: Callable[..., Make], arguments: tuple[Any, ...], folder: str) -> None:
        self.given = maker, arguments, folder
        self.maker: Make | None = None

    def load(self) -> None:
        """Load the function that computes parts."""
        maker, arguments, folder = self.given
        os.chdir(folder)  # paths are relative to it
        self.maker = maker(*arguments)

    def make(self, number: int, n: int) -> None:
        """Compute the part of shard `number` of `n`."""
        assert self.maker is not None, "loaded first"
        self.maker(Shard(number, n))


class _Actors:
    """The actors, and the current work of each.

    Args:
        start: Function that starts an actor.
        shards: Shards to compute.
    """

    def __init__(self, start: Callable[[], Any], shards: Sequence[Shard]) -> None:
        self.start = start
        self.waiting = [*shards]
        self.busy: dict[Any, tuple[Any, Shard | None]] = {}
        """Pending result of each busy actor -> the actor, and the shard that it computes; None: it is loading."""
        self.idle: list[Any] = []
        """Actors without work, which take over the shards of lost actors."""
        self.n_lost = 0
        self.last_loss: Exception | None = None

    def add(self) -> None:
        """Start an actor."""
        actor = self.start()
        self.busy[actor.load.remote()] = actor, None

    def wait_for_one(self) -> Shard | None:
        """Wait until an actor is done or lost, give out the next shard, and return the finished shard, if any."""
        import ray
        from ray.exceptions import RayActorError

        (done,), _ = ray.wait([*self.busy], num_returns=1)
        actor, shard = self.busy.pop(done)
        try:
            _got(done)
        except RayActorError as error:
            logger.warning("Ray lost an actor%s; another takes its place", f", with shard {shard}" if shard else "")
            self.n_lost += 1
            self.last_loss = error
            self.waiting += [shard] if shard else []
            if self.idle:
                self._occupy(self.idle.pop())
            else:
                self.add()
            return None
        self._occupy(actor)
        return shard

    def _occupy(self, actor: Any) -> None:
        """Give an actor the next shard; without one it becomes idle."""
        if not self.waiting:
            self.idle.append(actor)
            return
        following = self.waiting.pop(0)
        self.busy[actor.make.remote(following.number, following.n)] = actor, following


def _share_out(shards: Sequence[Shard], start: Callable[[], Any], n_actors: int) -> None:
    """Give each actor a shard, and another one when it is done, until all are computed."""
    actors = _Actors(start, shards)
    for _ in range(n_actors):
        actors.add()
    n_left = len(shards)
    with progress.task("shards on Ray", n_left) as advance:
        while n_left:
            if actors.wait_for_one() is not None:
                n_left -= 1
                advance(1)
            if actors.n_lost > _LOSSES * n_actors:
                raise RunError(f"Ray lost {actors.n_lost} actors, the last one so: {actors.last_loss}")
