"""The stages of a study, one after the other."""

import os
import shutil
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from spt_core.errors import InputError
from spt_core.events import Note
from spt_core.files import written_whole
from spt_core.learning.cohort import feature_files, open_cohort
from spt_core.learning.training import TrainResult
from spt_core.patches.encode import slide_tasks
from spt_core.patches.folder import find_slides, write_summary
from spt_core.patches.job import NotWrittenError
from spt_core.patches.local_workers import encode_in_processes
from spt_core.patches.settings import SlideResult
from spt_core.studies.bench import Bench, open_bench
from spt_core.studies.benchmark import REPORT_FOLDER, benchmark
from spt_core.studies.benchmark_result import Benchmark
from spt_core.studies.benchmark_settings import BenchmarkSettings
from spt_core.studies.split_files import write_splits
from spt_core.studies.study_check import check_study, read_study_labels
from spt_core.studies.study_finding import Rank, stops
from spt_core.studies.study_folder import Request, Stage, StudyFolder
from spt_core.studies.study_folds import kept_divisions
from spt_core.studies.study_model import (
    ChosenSteps,
    chosen_steps,
    learned_from,
    pretrain_settings,
    steps_sentence,
    train_settings,
    trained,
)
from spt_core.studies.study_patches import choose_patch_run, train_encoder
from spt_core.studies.study_recorder import Recorder
from spt_core.studies.study_requests import Watch
from spt_core.studies.study_result import StudyResult
from spt_core.studies.study_runs import (
    ChosenRun,
    begun_run,
    choose_run,
    end_run,
    refuse_changed,
)
from spt_core.studies.study_settings import COMPARED, Goal, StudySettings
from spt_core.studies.study_words import comparisons, result_sentences, write_result
from spt_core.tokens import Labels, layout, read_index, read_tokens, write_tokens
from spt_core.tokens.finding import name_of
from spt_core.training.run_folder import RunFolder

Events = Generator[Any, None, Any]
BEFORE = "before"  # the training without labels


class Work:
    """A study at work; :meth:`events` reads from top to bottom."""

    def __init__(
        self,
        settings: StudySettings,
        folder: StudyFolder,
        recorder: Recorder,
        watch: Watch,
        command: str,
    ) -> None:
        self.settings, self.folder, self.recorder = settings, folder, recorder
        self.watch, self.command = watch, command
        self.features = folder.features_of(settings)

    def events(self) -> Generator[Any, None, StudyResult]:
        labels = self._labels()
        if self.watch.hands_over:
            return (yield from self._end_begun(labels))
        yield from self._check()
        if self.settings.aim is Goal.PATCHES:
            return (yield from self._patches())
        yield from self._encode(labels)
        run = yield from self._choose(labels)
        if run.run.status == "finished":
            return self._as_it_is(run.run.number, self.folder.model)
        start = None
        if self.settings.aim is Goal.BOTH and self.settings.pretrain_once:
            start = yield from self._pretrain(run, self.settings.pretrain_steps)
        bench = self._bench(run, start)
        found = yield from self._evaluate(bench)
        if bench is not None:
            refuse_failed(bench, self.settings.method)
        chosen = chosen_steps(self.settings, bench)
        if self.settings.aim is Goal.BOTH and start is None:
            start = yield from self._pretrain(run, chosen.before)
        return (yield from self._hand_over(run, found, chosen, start))

    def _end_begun(self, labels: Labels | None) -> Generator[Any, None, StudyResult]:
        """Hand over what a run that was broken off has come to, without a step."""
        if self.settings.aim is Goal.PATCHES:
            return (yield from self._patches())
        cohort = open_cohort(self.features, labels)
        run = begun_run(self.folder, cohort, self._recipe())
        self.recorder.run = run.run.number
        start = None
        if self.settings.aim is Goal.BOTH:
            start = RunFolder(run.path / BEFORE).last
        bench = self._bench(run, start if self.settings.pretrain_once else None)
        found = yield from self._evaluate(bench)
        chosen = chosen_steps(self.settings, bench)
        return (yield from self._hand_over(run, found, chosen, start))

    # check

    def _labels(self) -> Labels | None:
        """What is wrong with them is a finding; names are known where nothing is."""
        labels = None
        if self.settings.labels:
            try:
                labels = read_study_labels(self.settings)
            except (InputError, OSError):
                labels = None
            else:
                rows = labels.by_slide.values()
                self.recorder.hide(row.patient for row in rows if row.patient)
        return labels

    def _check(self) -> Events:
        self.recorder.enter(Stage.CHECK)
        yield Note("Looking at slides and labels.")
        found = check_study(self.settings, look=False)
        if wrong := stops(found):
            raise InputError("\n".join(str(one) for one in wrong))
        for one in found:
            if one.rank is Rank.DOUBTFUL:
                yield Note(str(one))

    # encode

    def _encode(self, labels: Labels | None) -> Events:
        settings = self.settings
        if not settings.slides:
            return
        self.recorder.enter(Stage.ENCODE)
        rows = labels.by_slide.values() if labels else ()
        sizes = {row.slide: row.mpp for row in rows if row.mpp is not None}
        self.features.mkdir(parents=True, exist_ok=True)
        if settings.features:
            linked = link_features(Path(settings.features), self.features)
            if linked:
                yield Note(f"{linked} slides have features already: they are taken.")
        given = {
            name_of(path)
            for path in (feature_files(settings.features) if settings.features else ())
        }
        tasks = [
            task
            for task in slide_tasks(
                find_slides([Path(settings.slides)]), self.features, sizes
            )
            if task.name not in given
        ]
        how = replace(settings.encode, device=settings.device, redo=False)
        results = yield from unless_unwritable(encode_in_processes(tasks, how))
        write_summary(self.features, results)
        for one in results:
            if one.status in ("failed", "busy"):
                yield Note(f"{one.name} is left out: {one.reason}")

    # choose the run

    def _choose(self, labels: Labels | None) -> Generator[Any, None, ChosenRun]:
        cohort = open_cohort(self.features, labels)
        yield from cohort.notes()
        run = choose_run(self.folder, cohort, self._recipe())
        self.recorder.run = run.run.number
        for note in run.notes:
            yield Note(note)
        is_given = labels is not None and labels.has_splits
        in_folds = self.settings.ignore_split or not is_given
        if self.settings.evaluates and in_folds and not run.splits.exists():
            folds, seed = self.settings.folds, self.settings.seed
            divisions = kept_divisions(self.folder, run.cohort, folds, seed)
            write_splits(run.splits, run.cohort, divisions)
        return run

    def _recipe(self) -> str:
        """Of the settings; a model to start from counts by what is in it."""
        recipe = self.settings.recipe()
        if self.settings.init:
            start = Path(self.settings.init).read_bytes().hex()
            recipe = self.folder.hidden(recipe + start)
        return recipe

    def _as_it_is(self, number: int, model: Path) -> StudyResult:
        return StudyResult(
            self.folder.path,
            "finished",
            (f"Nothing is new since run {number}.",),
            model if model.exists() else None,
            self.folder.report,
            number,
        )

    # evaluate in folds

    def _benchmark(self, run: ChosenRun, start: Path | None) -> BenchmarkSettings:
        settings = self.settings
        return BenchmarkSettings(
            features=(f"features={self.features.absolute()}",),
            labels=str(settings.labels),
            out=str(run.path / "evaluation"),
            methods=(*COMPARED, settings.method),
            slide_table=settings.slide_table,
            patient_from=settings.patient_from,
            folds=settings.folds,
            seeds=settings.seeds,
            splits=str(run.splits) if run.splits.exists() else None,
            ignore_split=settings.ignore_split,
            unlabelled=settings.aim.pretrains,
            model=settings.model,
            views=settings.views,
            details=settings.details,
            steps=settings.steps,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            standardise=settings.standardise,
            site_batches=settings.site_batches,
            pretrain_steps=settings.pretrain_steps,
            init=str(start) if start else settings.init,
            only=str(run.slide_list),
            device=settings.device,
            workers=settings.workers,
            title=settings.title or "Study",
        )

    def _bench(self, run: ChosenRun, start: Path | None) -> Bench | None:
        """Opened once: what is changed on disk afterwards is not mixed in."""
        if not self.settings.evaluates:
            return None
        bench = open_bench(self._benchmark(run, start))
        refuse_changed(self.folder, run.run, bench.cohort)
        return bench

    def _evaluate(self, bench: Bench | None) -> Generator[Any, None, Benchmark | None]:
        if bench is None:
            return None
        self.recorder.enter(Stage.EVALUATE)
        return (yield from benchmark(bench.settings, command=self.command, bench=bench))

    # train what is handed over

    def _pretrain(
        self, run: ChosenRun, steps: int | None
    ) -> Generator[Any, None, Path]:
        self.recorder.enter(Stage.PRETRAIN)
        settings = pretrain_settings(
            self.settings, self.features, run.path / BEFORE, steps, run.cohort
        )
        part = learned_from(run.cohort, with_labels=False)
        result = yield from trained(self.folder, settings, part, lambda: False)
        return result.last

    def _hand_over(
        self,
        run: ChosenRun,
        found: Benchmark | None,
        chosen: ChosenSteps,
        start: Path | None,
    ) -> Generator[Any, None, StudyResult]:
        self.recorder.enter(Stage.TRAIN)
        settings = train_settings(
            self.settings, self.features, run.path / "model", chosen.steps, run.cohort
        )
        if start is not None:
            settings = replace(settings, init=str(start))
        part = learned_from(run.cohort, with_labels=self.settings.aim.needs_labels)
        self.watch.has_model = True
        result: TrainResult = yield from trained(
            self.folder, settings, part, self.watch.ends_training
        )
        self.watch.hand_over()
        # Without a request the last: nothing that was held out could choose.
        best = self.watch.request is Request.KEEP_BEST
        kept = ("best" if best else "last") if self.watch.keeps_model else ""
        copied(result.best if best else result.last, self.folder.model)
        self.recorder.enter(Stage.REPORT)
        compared = comparisons(found, self.settings.method) if found else []
        how = steps_sentence(result, chosen, kept)
        said = result_sentences(self.settings, found, compared, len(part), how)
        if found is not None:
            copied_folder(run.path / "evaluation" / REPORT_FOLDER, self.folder.report)
        else:
            shutil.rmtree(self.folder.report, ignore_errors=True)
        facts = {"run": run.run.number, "slides": len(part), "steps": result.steps}
        write_result(self.folder.report, self.settings, found, compared, said, facts)
        status = "stopped" if kept else "finished"
        end_run(self.folder, run.run, status)
        yield Note(said[0])
        return StudyResult(
            self.folder.path,
            status,
            tuple(said),
            self.folder.model,
            self.folder.report,
            run.run.number,
        )

    def _patches(self) -> Generator[Any, None, StudyResult]:
        run = choose_patch_run(
            self.folder, self.settings, begins=not self.watch.hands_over
        )
        self.recorder.run = run.number
        if run.status == "finished":
            return self._as_it_is(run.number, self.folder.encoder)
        self.recorder.enter(Stage.TRAIN)
        for note in run.notes:
            yield Note(note)

        def after_step() -> bool:  # reading the patches before it may take minutes
            self.watch.has_model = True
            return self.watch.ends_training()

        steps = yield from train_encoder(self.settings, self.folder, run, after_step)
        self.watch.hand_over()
        # There is no best one: nothing that is held out could choose.
        is_early = self.watch.keeps_model
        copied(run.encoder, self.folder.encoder)
        self.recorder.enter(Stage.REPORT)
        slides = len(run.slides)
        early = " It was stopped on request." if is_early else ""
        said = result_sentences(
            self.settings,
            None,
            (),
            slides,
            f"It took {steps} steps.{early} Use it by 'spt study OTHER --encoder "
            f"{self.folder.encoder}', or 'spt encode'.",
        )
        facts = {"run": run.number, "slides": slides, "steps": steps}
        write_result(self.folder.report, self.settings, None, (), said, facts)
        status = "stopped" if is_early else "finished"
        run.write(self.settings, status)
        return StudyResult(
            self.folder.path,
            status,
            tuple(said),
            self.folder.encoder,
            self.folder.report,
            run.number,
        )


def refuse_failed(bench: Bench, method: str) -> None:
    """Stop where a training of the study's own method failed in a fold."""
    cells = [cell for cell in bench.cells() if cell.method == method]
    failed = [cell for cell in cells if not bench.folder.is_done(cell)]
    if failed:
        raise InputError(
            f"{len(failed)} of {len(cells)} trainings in folds failed: "
            f"{bench.folder.why_failed(failed[0]) or 'they were not done.'} No model "
            "was made. Run the study again: only what failed is done again."
        )


def unless_unwritable(
    events: Generator[Any, None, list[SlideResult]],
) -> Generator[Any, None, list[SlideResult]]:
    """Encode, and stop where features cannot be written, as on a full disk.

    Another slide that fails is left out; what is amiss here is not the slide.
    """
    with closing(events):
        while True:
            try:
                event = next(events)
            except StopIteration as stop:
                return stop.value
            if isinstance(event, SlideResult) and isinstance(
                event.error, NotWrittenError
            ):
                raise InputError(event.reason)
            yield event


def link_features(source: Path, folder: Path) -> int:
    """Take feature files over without copying them where that can be; how many.

    Those of other tools are written as ours: what belongs to them lies elsewhere.
    """
    count = 0
    for path in feature_files(source):
        target = folder / f"{name_of(path)}{layout.ENDING}"
        if read_index(path).facts.source != layout.OURS:
            if not target.exists():
                write_tokens(target, read_tokens(path, dtype=None))
                count += 1
            continue
        if target.exists() and (
            target.samefile(path) or target.stat().st_size == path.stat().st_size
        ):
            continue
        target.unlink(missing_ok=True)
        try:
            os.link(path, target)
        except OSError:  # another disk
            copied(path, target)
        count += 1
    return count


def copied(source: Path, target: Path) -> None:
    with written_whole(target) as temporary:
        shutil.copyfile(source, temporary)


def copied_folder(source: Path, target: Path) -> None:
    """Put the files of one folder in place of those of another."""
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(source.iterdir()):
        if path.is_file():
            copied(path, target / path.name)
