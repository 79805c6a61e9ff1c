"""User errors about ranks: a one-line message with the numbers and the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import dualml

from dualml.common.errors import UserError
from dualml.experiment.load import load

pytestmark = pytest.mark.whole

TOML = """
name = "tiny-ranks"
model = "softmax"
title = { en = "Tiny", zh = "小" }
data = { name = "digits", train = 30, test = 20 }
evaluation = { train_samples = 10 }
limits = { collective = 5 }
[arms.ring]
optimizer = { name = "sgd", lr = 0.05 }
world_size = [2, 3]
batch_size = 4
updates = 3
aggregation = { strategy = "ring" }
[arms.star]
optimizer = { name = "sgd", lr = 0.05 }
world_size = 2
batch_size = 4
updates = 3
[arms.one]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 4
updates = 3
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-ranks.toml"
    path.write_text(TOML)
    return path


def run(lab: Path, out: Path, *words: object) -> tuple[int, list[dict[str, Any]]]:
    done = dualml("run", lab, "--backend", "numpy", "--out", out, "--no-report", "--json", *words)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)["trials"]


STAR = "arms.star."
MEDIAN = f"{STAR}aggregation.reduce=median"
OF = f"{STAR}aggregation.target=parameters"


@pytest.mark.parametrize(("words", "message"), [
    (["--world-size", "0"], "--world-size must be from 1 to 256; received 0"),
    (["--world-size", "-1"], "--world-size must be from 1 to 256; received -1"),
    (["--world-size", "300"], "--world-size must be from 1 to 256; received 300"),
    (["--world-size", "abc"], "'--world-size': Input should be a valid integer"),
    (["--world-size", "4", "LAB1"], "--world-size 4: no arm of lab1 has several ranks"),
    (["--world-size", "31", "--arm", "star"], "31 ranks share 30 training samples; use at most 30"),
    (["--arm", "star", "--set", f"{STAR}samples=7", "--world-size", "8"],
     "arms.star: 8 ranks share 7 training samples"),
    (["--set", f"{STAR}world_size=0"], "arms.star.world_size"),
    (["--set", f"{STAR}world_size=[]"], "is an empty list"),
    (["--set", f"{STAR}world_size=[2, 2]"], "there are two arms star-n2"),
    (["--set", f"{STAR}world_size=[2, 2.5]"], "arms.star"),
    (["--set", f"{STAR}aggregation.bucket_bytes=-1"], "arms.star.aggregation.bucket_bytes"),
    (["--set", f"{STAR}aggregation.bucket_bytes=1.5"], "valid integer"),
    (["--set", f"{STAR}aggregation.strategy=rnig"], "'rnig'; did you mean 'ring'"),
    (["--set", f"{STAR}aggregation.strategy=neighbour"], "set target = parameters"),
    (["--set", OF, "--set", MEDIAN], "set strategy = all_gather"),
    (["--set", f"{STAR}aggregation.cut=layers"], "cut = layers cuts the chunks of a ring"),
    (["--set", f"{STAR}aggregation.sync_period=4"], "sync_period = 4 needs target = param"),
    (["--set", OF, "--set", f"{STAR}aggregation.compress=topk"], "is for gradients"),
    (["--set", f"{STAR}straggler.rank=2"], "straggler.rank = 2, but world_size is 2"),
    (["--set", f"{STAR}straggler.rank=1", "--world-size", "1"],
     "--world-size 1: arms.star: straggler.rank"),
    (["--set", f"{STAR}straggler.compute=2.0", "--world-size", "1"],
     "straggler holds up other ranks"),
    (["--set", f"{STAR}kind=collectives"], "needs sizes (bytes) and strategies"),
    (["--set", f"{STAR}sizes=[3]"], "arms.star.sizes.0"),
    (["--set", f"{STAR}sizes=[6]"], "multiple of 4"),
    (["--set", f"{STAR}strategies=['rign']"], "did you mean 'ring'"),
    (["--set", f"{STAR}kind=collectives", "--set", f"{STAR}sizes=[4]", "--arm", "star",
      "--set", f"{STAR}strategies=['ring']", "--world-size", "1"],
     "arms.star: kind = collectives needs world_size >= 2; received 1"),
    (["--arm", "ring-n5"], "has no arm 'ring-n5'; did you mean 'ring-n"),
    (["--rendezvous", "carrier-pigeon"], "use auto, file:///path, tcp://host:port or env://"),
    (["--rendezvous", "tcp://127.0.0.1"], "names no port from 1 to 65535"),
    (["--rendezvous", "tcp://127.0.0.1:70000"], "names no port from 1 to 65535"),
    (["--rendezvous", "tcp://127.0.0.1:0"], "names no port from 1 to 65535"),
    (["--rendezvous", "file://store"], "names no file"),
    (["--rendezvous", "file:///"], "names no file"),
    (["--rendezvous", "file:///no/such/store"], "/no/such is not a folder"),
    (["--rendezvous", "env://"], "is for ranks that torchrun or msrun starts"),
    (["--rendezvous", "auto", "--arm", "one"], "--rendezvous: no arm"),
    (["--check", "--arm", "one"], "--check: no arm"),
    (["--rank", "1"], "--rank 1 needs --world-size N and --rendezvous tcp://HOST:PORT"),
    (["--rank", "2", "--world-size", "2", "--rendezvous", "tcp://127.0.0.1:9"], "from 0 to size"),
    (["--rank", "-1"], "'--rank': Input should be"),
    (["--rank", "0", "--world-size", "2", "--rendezvous", "tcp://192.0.2.1:9"],
     "192.0.2.1 is open to the network: set DUALML_TOKEN"),
    (["--rank", "0", "--world-size", "2", "--rendezvous", "tcp://192.0.2.1:9", "--insecure"],
     "rank 0 cannot listen at tcp://192.0.2.1:9"),
    (["--rank", "0", "--world-size", "2", "--rendezvous", "tcp://no.such.host.invalid:9"],
     "host 'no.such.host.invalid' is not known"),
    (["--insecure"], "--insecure is for ranks on other machines: see --rank"),
    (["--keep-local"], "--keep-local is for ranks on other machines: see --rank"),
])  # fmt: skip
def test_bad_input_about_ranks_is_one_line_and_exit_2(
    lab: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    name = "lab1" if "LAB1" in words else str(lab)
    given = [word for word in words if word != "LAB1"]
    done = dualml("run", name, *given, "--backend", "numpy", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "runs").exists()


def test_settings_of_ranks_are_not_changed_by_resuming(lab: Path, tmp_path: Path) -> None:
    run(lab, tmp_path / "o", "--arm", "one")
    for words in (["--check"], ["--rendezvous", "auto"]):
        done = dualml("run", "--resume", tmp_path / "o", *words)
        assert (done.returncode, f"leave out {words[0]}" in done.stderr) == (2, True), done.stderr


def test_an_arm_with_several_sizes_is_all_it_expands_to(lab: Path) -> None:
    assert list(load(str(lab), arms=["ring"]).arms) == ["ring-n2", "ring-n3"]
    assert list(load(str(lab), arms=["ring-n3"]).arms) == ["ring-n3"]
    assert list(load(str(lab), arms=["ring"], world_size=5).arms) == ["ring-n5"]
    assert list(load(str(lab), arms=["star", "ring-n2"]).arms) == ["ring-n2", "star"]
    with pytest.raises(UserError, match="did you mean 'ring'"):
        load(str(lab), arms=["rin"])


def test_an_arm_may_not_have_the_name_of_one_that_is_made(lab: Path) -> None:
    with pytest.raises(UserError, match="two arms ring-n2"):
        load(str(lab), overrides=["arms.ring.world_size=[2, 3, 2]"])
    lab.write_text(TOML.replace("[arms.star]", "[arms.ring-n3]"))
    with pytest.raises(UserError, match="two arms ring-n3"):
        load(str(lab))


def test_ranks_without_samples_take_part(lab: Path, tmp_path: Path) -> None:
    """Eight ranks for batches of four: four of them have no samples, and the result is the same."""
    code, trials = run(lab, tmp_path / "o", "--arm", "star", "--world-size", "8", "--check")
    assert code == 0, trials
    _, alone = run(lab, tmp_path / "1", "--arm", "one")
    assert trials[0]["world_size"] == 8
    assert trials[0]["final_loss"] == pytest.approx(alone[0]["final_loss"], rel=1e-12)


def test_checked_collectives_give_the_same_numbers(lab: Path, tmp_path: Path) -> None:
    _, plain = run(lab, tmp_path / "1", "--arm", "ring")
    _, checked = run(lab, tmp_path / "2", "--arm", "ring", "--check")
    assert json.loads((tmp_path / "2/run.json").read_text())["options"]["check"] is True
    assert [t["arm"] for t in checked] == ["ring-n2", "ring-n3"]
    assert [t["final_loss"] for t in checked] == [t["final_loss"] for t in plain]


def test_a_rank_that_never_comes_is_named_in_time(tmp_path: Path) -> None:
    """A rank that never joins is named in time, at the rendezvous, before any framework is used."""
    from dualml.algorithms.communicator import FileStore
    from dualml.algorithms.communicator.rendezvous import all_gather_via_store
    from dualml.common.errors import CommunicationError

    board = FileStore(tmp_path / "board")
    board.set("plan.2", "the plan")
    with pytest.raises(CommunicationError, match=r"rank 0 waited 0.2 s .*: ranks 1, 3 of 4"):
        all_gather_via_store(board, "plan", 0, range(4), "the plan", 0.2, "the 4 ranks to start")


LAUNCHED = {
    "torch": {"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "WORLD_SIZE": "2"},
    "deepspeed": {
        "CROSS_RANK": "0",
        "CROSS_SIZE": "1",
        "LOCAL_SIZE": "2",
        "RANK": "1",
        "WORLD_SIZE": "2",
    },
    "mindspore": {"MS_ROLE": "MS_WORKER", "RANK_ID": "1", "MS_WORKER_NUM": "2"},
}


@pytest.mark.parametrize("backend", LAUNCHED)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name the run folder with --out"),
        (["--out", "o", "--world-size", "3"], "--world-size 3 is another number of ranks"),
        (["--out", "o", "--backend", "numpy"], "only; received numpy"),
        (["--out", "o", "--rendezvous", "file:///tmp/store"], "leave out --rendezvous"),
        (["--resume", "o"], "needs --rendezvous tcp://HOST:PORT; without"),
    ],
)
def test_a_launcher_and_options_that_do_not_fit(
    lab: Path, tmp_path: Path, backend: str, words: list[str], message: str
) -> None:
    done = dualml("run", lab, "--arm", "star", *words, env=LAUNCHED[backend], cwd=tmp_path)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert message in done.stderr
