"""What a case gets, and where it puts what it finds."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kwok_operator.controlplane import Flags
from kwok_operator.reporter import Reporter
from tests.bench.actors import Actor, Ceiling, Kwokctl, Operator
from tests.bench.cluster import BenchCluster, bench_cluster
from tests.bench.measures import CEILING, Measure
from tests.bench.options import Options
from tests.bench.progress import Progress


@dataclass
class Context:
    """One case."""

    name: str
    limits: str
    options: Options
    directory: Path
    reporter: Reporter
    measures: list[Measure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def case(self) -> str:
        """What results are kept under: those with raised limits beside the others."""
        return self.name if self.limits == "default" else f"{self.name}, limits {self.limits}"

    def add(
        self,
        who: str,
        figure: str,
        value: float,
        *,
        work: str,
        n: int,
        unit: str = "",
        reference: str = CEILING,
    ) -> None:
        """Note one value; those of further rounds are joined to it."""
        self.measures.append(
            Measure(
                case=self.case,
                work=work,
                n=n,
                who=who,
                figure=figure,
                unit=unit,
                values=(value,),
                reference=reference,
            )
        )

    def note(self, text: str) -> None:
        """Something that who reads the table has to know."""
        if text not in self.notes:
            self.notes.append(text)
            self.reporter.say(f"  {text}")

    def failed(self, what: str, error: Exception) -> None:
        """Something that could not be measured, and why."""
        why = " ".join(f"{type(error).__name__}: {error}".split())
        self.note(f"failed: {what}: {why[:500]}")

    def cluster(
        self,
        name: str = "",
        *,
        stages: bool = False,
        extra_args: Sequence[str] = (),
        raised: bool = False,
        flags: Flags | None = None,
    ) -> AbstractContextManager[BenchCluster]:
        """A fresh cluster; with `stages` kwok takes its Stages from the API, with `raised` the
        limits of Kubernetes' clients are raised in any case.
        """
        return bench_cluster(
            self.directory / "logs" / (name or self.case),
            raised_limits=raised or self.limits == "raised",
            stages=stages,
            extra_args=extra_args,
            flags=flags,
        )

    def progress(self, total: int) -> Progress:
        return Progress(self.case, total, self.reporter)

    def actor(self, who: str, bench: BenchCluster, *, groups: int = 1) -> Actor:
        """A rival by its name."""
        if who == "operator":
            return Operator(bench, flags=self.options.operator_flags, groups=groups)
        return Ceiling(bench) if who == "ceiling" else Kwokctl(bench, groups=groups)

    @contextmanager
    def turn(self, what: str, bench: BenchCluster, progress: Progress) -> Iterator[None]:
        """One rival's turn. If it fails, that is a note, and the case goes on without it."""
        progress.step(what)
        try:
            yield
        except Exception as error:
            self.failed(what, error)
        bench.cluster.check()
        bench.clear(progress.tick)
