"""Grading of submissions: each on its own, several at a time, and none twice."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import cast

from dualml.common.files import nonfinite_to_none, read_json, write_json
from dualml.common.seeds import derive_seed
from dualml.common.words import Messages
from dualml.course.check import CheckResult, CheckWatcher, check
from dualml.course.encoding import presentable
from dualml.course.exercise import ExerciseFile
from dualml.course.grading.request import GradingRequest as GradingRequest
from dualml.course.grading.results import (
    SubmissionResult,
    add_files,
    failed_result,
    not_graded_result,
    reason_of,
    refused_result,
)
from dualml.course.grading.submissions import FoundFiles, Submission, SubmissionRefused, unpack
from dualml.course.source import MAX_SOURCE_BYTES, Problem

RESULT = "result.json"
#: Largest number of characters of a student's file, including escapes.
MAX_SOURCE_CHARS = 10 * MAX_SOURCE_BYTES


def grade(
    request: GradingRequest,
    found: Sequence[Submission],
    jobs: int,
    done: Callable[[str, bool], None] = lambda student, again: None,
) -> dict[str, SubmissionResult]:
    """Grade all submissions that have no stored result of this request yet, ``jobs`` at a time,
    store their results, and return the result of every student, in the order of ``found``. No error
    in one submission affects another one's result.

    Args:
        done: function called with each finished student, and whether the result already existed.
    """
    results: dict[str, SubmissionResult] = {}
    assert request.fingerprint  # made once, not in every thread
    with ThreadPoolExecutor(jobs) as pool:
        running = {
            pool.submit(grade_submission, request, submission): submission for submission in found
        }
        try:
            for future in as_completed(running):
                submission = running[future]
                results[submission.student], again = future.result()
                done(submission.student, again)
        except BaseException:
            request.stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return {submission.student: results[submission.student] for submission in found}


def folder_of(request: GradingRequest, submission: Submission) -> Path:
    """Return the folder of a submission's results, which may not exist yet."""
    return request.out / "students" / submission.results_folder


def key_of(request: GradingRequest, submission: Submission) -> str:
    """Return the key under which a result is kept, a hash of request and submission; empty if the
    submission cannot be read."""
    try:
        digest = submission.digest()
    except OSError:
        return ""
    return hashlib.sha256(f"{request.fingerprint}{digest}".encode()).hexdigest()


def load_finished(
    request: GradingRequest, submission: Submission, key: str
) -> SubmissionResult | None:
    """Load the existing result with this key, of the same submission and request; None if there is
    none, it cannot be read, or the key is empty."""
    path = folder_of(request, submission) / RESULT
    try:
        result = read_json(path) if key and path.is_file() else None
    except (ValueError, OSError):
        return None
    if not isinstance(result, dict) or result.get("key") != key:
        return None
    return cast(SubmissionResult, result)


def grade_submission(
    request: GradingRequest, submission: Submission
) -> tuple[SubmissionResult, bool]:
    """Return the result of one submission, and whether it already existed. A new one is stored;
    raise `KeyboardInterrupt` if the request was stopped meanwhile."""
    words = Messages(request.lang)
    try:
        key = key_of(request, submission)
        if (old := load_finished(request, submission, key)) is not None:
            return old | {"folder": submission.results_folder}, True
        result = judge_submission(request, submission, words) | {"key": key}
        if not request.stop.is_set():
            return store_result(request, submission, result, words), False
    except Exception as error:  # the others' grades do not depend on it
        result = failed_result(request, submission, error, words)
    if request.stop.is_set():
        raise KeyboardInterrupt
    return store_result(request, submission, result, words), False


def judge_submission(
    request: GradingRequest, submission: Submission, words: Messages
) -> SubmissionResult:
    """Unpack one submission and check each requested file; return the result, refused if it cannot
    be unpacked."""
    with tempfile.TemporaryDirectory(prefix="dualml-", ignore_cleanup_errors=True) as temporary:
        home = Path(temporary)
        try:
            handed = unpack(submission, home, [file.name for file in request.files])
        except SubmissionRefused as error:
            why = words(f"grade.refusal.{error.kind}", what=error.what)
            return refused_result(request, submission, why, words)
        checked = [check_one_file(request, file, handed, home) for file in request.files]
        return add_files(request, submission, checked, words)


def store_result(
    request: GradingRequest, submission: Submission, result: SubmissionResult, words: Messages
) -> SubmissionResult:
    """Write a result, and return it as it will be read. If it cannot be written, return an ungraded
    result, so that the next call grades again."""
    sources = presentable(result["sources"], MAX_SOURCE_CHARS)
    result = presentable(result | {"sources": {}}) | {"sources": sources}
    folder = folder_of(request, submission)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / RESULT, result)
    except OSError as error:
        if result["not_graded"] is None:
            result = not_graded_result(request, submission, reason_of(error, words))
    normal: SubmissionResult = json.loads(json.dumps(nonfinite_to_none(result)))
    return normal


def check_one_file(
    request: GradingRequest, file: ExerciseFile, handed: FoundFiles, home: Path
) -> CheckResult:
    """Check one of the requested files, whether it was handed in or not; for a file found twice
    with different content, this is the only problem reported."""
    path = handed.paths.get(file.name, home / ".absent" / file.name)
    seed = derive_seed(0, "grade", request.secret, request.lab.name, file.name)
    watcher = CheckWatcher(is_cancelled=request.stop.is_set)
    checked = check(file, path, seed, watcher=watcher, isolation=request.isolation)
    if file.name in handed.twice:
        problem = Problem("twice", handed.twice[file.name])
        checked = replace(checked, problems=[problem])
    return checked
