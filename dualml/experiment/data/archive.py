"""Extraction of a dataset's files from the archive in which they are published."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from dualml.common.errors import UserError
from dualml.experiment.data.cifar import read_verified_records
from dualml.experiment.data.idx import file_error, read_data
from dualml.experiment.data.registry import RecordInfo

#: Most members of an archive that are read; CIFAR's archives have eight.
MAX_MEMBERS = 64
#: Maximum bytes of a member that is skipped, such as a page of text.
MAX_SKIPPED_BYTES = 2**20


def read_archive(info: RecordInfo, path: Path, remedy: str) -> dict[str, bytes]:
    """Read the archive of the dataset ``info`` from ``path`` and return name → bytes of the
    dataset's files, each one checked; write nothing.

    Raises:
        UserError: it cannot be read, or is not the one that was published; the text ends with
            ``remedy``.
    """
    return unpack_archive(info, path, read_data(path, info.size + 1, remedy), remedy)


def unpack_archive(info: RecordInfo, path: Path, data: bytes, remedy: str) -> dict[str, bytes]:
    """Return name → bytes of every file of the dataset in an archive, each one checked; write
    nothing.

    Args:
        path: the archive's name, for error messages.
        data: the archive's whole content.
        remedy: what the user should do about a bad archive, for error messages.

    Raises:
        UserError: the archive is another one, or a file in it is missing or bad.
    """
    if len(data) != info.size:
        how = "is cut short" if len(data) < info.size else "has bytes after its end"
        raise file_error(path, f"{how}: expected {info.size:,} bytes, found {len(data):,}", remedy)
    have = hashlib.sha256(data).hexdigest()
    if have != info.sha256:
        what = f"is another archive: expected sha256 {info.sha256}, found {have}"
        raise file_error(path, what, remedy)
    wanted = {file.name: file for file in info.files}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|gz") as archive:
            for number, member in enumerate(archive):
                if number == MAX_MEMBERS:
                    raise file_error(path, f"has more than {MAX_MEMBERS} members", remedy)
                place = PurePosixPath(member.name)
                file = wanted.get(place.name) if place.parent.name == info.inside else None
                limit = MAX_SKIPPED_BYTES if file is None else file.size
                if member.size > limit:
                    what = f"has a member {member.name} of {member.size:,} bytes"
                    raise file_error(path, f"{what}; at most {limit:,} are read", remedy)
                if file is None:
                    continue
                if not member.isreg():
                    what = f"has a member {member.name} that is a link or no plain file"
                    raise file_error(path, what, remedy)
                stream = archive.extractfile(member)
                assert stream is not None
                inside = path / member.name
                found[file.name] = read_verified_records(
                    inside, file, remedy, stream.read(file.size + 1)
                )
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise file_error(path, f"is no whole archive: {error}", remedy) from None
    if missing := [name for name in wanted if name not in found]:
        raise UserError(f"{path} has no {', '.join(missing)}; remedy: {remedy}")
    return found
