"""The model index is complete: its files exist, and the sizes of parts add up."""

from __future__ import annotations

import re

import pytest

from pellucid.local.model_index import (
    DEFAULT_MODEL,
    Model,
    UnknownModel,
    all_models,
    default_threads,
    find_model,
    read_data,
)


@pytest.mark.parametrize("model", all_models(), ids=lambda model: model.name)
def test_an_entry_is_complete(model: Model) -> None:
    assert model.licence
    assert model.licence_url.startswith("https://")
    assert model.download_url.startswith("https://")
    assert model.download_url.endswith(model.file)
    assert model.note.endswith(".")
    if model.parts:
        assert re.fullmatch("[0-9a-f]{64}", model.sha256)
        assert sum(part.bytes for part in model.parts) == model.bytes
    else:  # the hub's hash counts
        assert not model.sha256
        assert model.hub
    for part in model.parts:
        assert re.fullmatch(r"[a-z0-9-]+==[\d.]+", part.requirement)
        assert re.fullmatch("[0-9a-f]{64}", part.sha256)
    assert (model.template is None) is (model.grammar is None), "a model that reasons by itself needs neither"
    for name in (model.template, model.grammar):
        assert name is None or read_data(name)


def test_the_default_model_is_the_publishers_file() -> None:
    assert all_models()[0] is find_model() is find_model(DEFAULT_MODEL)
    assert find_model().bytes == 1_117_320_768
    assert find_model().sha256 == "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
    assert find_model("smollm2-135m").sha256.startswith("b179c9523d0e")


def test_what_is_fetched_without_being_requested_is_small() -> None:
    assert find_model().bytes <= 1_200_000_000


def test_an_environment_variable_sets_another_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example/")
    assert find_model().download_url.startswith("https://hub.example/Qwen/")


def test_the_error_for_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownModel, match=r"'gpt-9'.*qwen2\.5-coder-1\.5b, smollm2-135m, qwen3-1\.7b"):
        find_model("gpt-9")


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (4, 3), (16, 15)])
def test_the_default_is_one_thread_fewer_than_cores(cores: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    assert default_threads() == threads
