"""Checkpoints: every way of naming the keys, tied once, nothing changed before everything fits, no pickle unasked."""

import json
import os
import pickle
from dataclasses import replace

import pytest
import torch
from llms_from_scratch import ch04 as upstream
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

from book_utils import GPTModel, get_config, load_model, load_weights, save_model
from book_utils.checkpoints import gpt2_config
from book_utils.parity import stir

TINY_GPT2 = {
    "vocab_size": 16,
    "n_positions": 16,
    "n_embd": 16,
    "n_head": 4,
    "n_layer": 2,
    "bos_token_id": None,
    "eos_token_id": None,
}


@pytest.fixture
def ids():
    return torch.randint(16, (2, 6))


@pytest.fixture
def model(cfg):
    return stir(GPTModel(replace(cfg, qkv_bias=True, tie_weights=True)), 1).eval()


def gpt2(**settings):
    torch.manual_seed(2)
    theirs = GPT2LMHeadModel(GPT2Config(**TINY_GPT2, **settings)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return theirs


def same(ours, theirs, in_idx):
    logits = theirs(in_idx)
    torch.testing.assert_close(ours(in_idx), getattr(logits, "logits", logits), rtol=0, atol=1e-4)


# one's own


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_saved_is_what_is_loaded(cfg, tmp_path, ids, tied):
    model = stir(GPTModel(replace(cfg, tie_weights=tied, drop_rate=0.1)).to(torch.bfloat16), 1).eval()
    save_model(model, tmp_path / "m.safetensors")
    assert ("out_head.weight" in load_file(tmp_path / "m.safetensors")) == (not tied)
    loaded = load_model(tmp_path / "m.safetensors")
    assert loaded.cfg == model.cfg and not loaded.training
    assert (loaded.out_head.weight is loaded.tok_emb.weight) == tied
    assert torch.equal(loaded(ids), model(ids)) and loaded(ids).dtype == torch.bfloat16
    assert all(parameter.requires_grad and not parameter.is_meta for parameter in loaded.parameters())
    save_model(loaded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


@pytest.mark.parametrize("assign", [False, True])
def test_the_file_restores_the_tie_through_load_state_dict_too(model, tmp_path, assign):
    save_model(model, tmp_path / "m.safetensors")
    state = load_file(tmp_path / "m.safetensors")
    with torch.device("meta"):
        empty = GPTModel(model.cfg)
    if not assign:
        empty.to_empty(device="cpu")
    empty.load_state_dict(state, assign=assign)
    assert empty.out_head.weight is empty.tok_emb.weight
    assert torch.equal(empty.tok_emb.weight, model.tok_emb.weight)


def test_saving_overwrites_only_when_told_and_leaves_nothing_behind(model, tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    save_model(model, path)
    kept = path.read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save_model(model, path)

    def break_off(state, file, metadata):
        file.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr("book_utils.checkpoints.save_file", break_off)
    with pytest.raises(OSError, match="no space left"):
        save_model(model, path, overwrite=True)
    assert path.read_bytes() == kept and list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    stir(model, 3)
    save_model(model, path, overwrite=True)
    assert path.read_bytes() != kept


@pytest.mark.usefixtures("as_readers_see")
def test_what_has_no_values_is_not_saved(cfg, tmp_path):
    with torch.device("meta"):
        empty = GPTModel(cfg)
    with pytest.raises(ValueError, match="meta device"):
        save_model(empty, tmp_path / "m.safetensors")
    with pytest.raises(TypeError, match="model must be a GPTModel, got Linear"):
        save_model(torch.nn.Linear(1, 1), tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("as_readers_see")
def test_what_could_not_be_loaded_again_is_not_saved(model, tmp_path):
    path = tmp_path / "m.safetensors"

    def refused(candidate, words, error=ValueError):
        with pytest.raises(error, match=words):
            save_model(candidate, path)
        assert list(tmp_path.iterdir()) == []

    headed = GPTModel(model.cfg)
    headed.out_head = torch.nn.Linear(16, 2)
    refused(headed, r"another shape: out_head\.weight is \[2, 16\], not \[16, 16\]")
    headed.out_head = torch.nn.Identity()
    refused(headed, r"missing: out_head\.weight")
    more = GPTModel(model.cfg)
    more.extra = torch.nn.Linear(2, 2)
    refused(more, r"unknown: extra\.weight")
    shared = GPTModel(model.cfg)
    shared.trf_blocks[1].norm2 = shared.trf_blocks[0].norm1
    refused(shared, r"two of one Parameter: trf_blocks\.0\.norm1\.scale and trf_blocks\.1\.norm2\.scale; trf")
    part = GPTModel(model.cfg)
    part.final_norm.to("meta")
    refused(part, "on the meta device")
    with pytest.raises(TypeError, match="overwrite must be True or False, got 'no'"):
        save_model(model, path, overwrite="no")
    path.mkdir()
    with pytest.raises(FileExistsError, match=r"m\.safetensors exists"):
        save_model(model, path, overwrite=True)


def test_a_model_is_saved_as_it_is_tied_and_not_as_it_was_configured(cfg, tmp_path, ids):
    by_hand = GPTModel(cfg).eval()
    by_hand.out_head.weight = by_hand.tok_emb.weight
    parted = GPTModel(replace(cfg, tie_weights=True)).eval()
    parted.out_head = torch.nn.Linear(16, 16, bias=False)
    for name, model, tied in [("hand", by_hand, True), ("parted", parted, False)]:
        save_model(model, tmp_path / name)
        loaded = load_model(tmp_path / name)
        assert loaded.cfg.tie_weights == tied == (loaded.out_head.weight is loaded.tok_emb.weight)
        assert torch.equal(loaded(ids), model(ids))


def test_weights_that_are_not_contiguous_are_saved_as_they_are(cfg, tmp_path):
    model = GPTModel(cfg)
    turned = torch.randn(16, 16).T
    model.trf_blocks[0].att.out_proj.weight = torch.nn.Parameter(turned)
    save_model(model, tmp_path / "m.safetensors")
    assert torch.equal(load_model(tmp_path / "m.safetensors").trf_blocks[0].att.out_proj.weight, turned)


def test_a_link_stays_and_its_target_is_replaced(model, tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        save_model(model, tmp_path / "link")
    save_model(model, tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink() and load_model(tmp_path / "target").cfg == model.cfg


@pytest.mark.usefixtures("as_readers_see")
def test_a_model_that_a_file_cannot_fill_is_left_as_it_is(model, tmp_path):
    save_model(model, tmp_path / "m.safetensors")
    headed, more = GPTModel(model.cfg), GPTModel(model.cfg)
    headed.out_head = torch.nn.Linear(16, 2)
    more.extra = torch.nn.Linear(2, 2)
    with torch.device("meta"):
        empty = GPTModel(model.cfg)
    for target, words in [(headed, "another shape: out_head"), (more, "unknown: extra"), (empty, "meta device")]:
        before = {name: value.clone() for name, value in target.state_dict().items()}
        with pytest.raises(ValueError, match=words):
            load_weights(target, tmp_path / "m.safetensors")
        assert target is empty or all(torch.equal(target.state_dict()[name], before[name]) for name in before)
    with pytest.raises(TypeError, match="model must be a GPTModel, got Linear"):
        load_weights(torch.nn.Linear(1, 1), tmp_path / "m.safetensors")
    with pytest.raises(TypeError, match="allow_pickle must be True or False, got 1"):
        load_model(tmp_path / "m.safetensors", allow_pickle=1)


def test_two_tables_do_not_fit_a_model_tied_by_hand(cfg, tmp_path):
    model = GPTModel(cfg)
    model.out_head.weight = model.tok_emb.weight
    before = model.tok_emb.weight.clone()
    save_model(GPTModel(cfg), tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"tie_weights is True, but tok_emb\.weight and out_head\.weight differ"):
        load_weights(model, tmp_path / "m.safetensors")
    assert torch.equal(model.tok_emb.weight, before)


def test_one_table_in_two_precisions_is_one_table(cfg, tmp_path):
    tied = replace(cfg, tie_weights=True)
    state = {name: value.clone() for name, value in GPTModel(tied).to(torch.bfloat16).state_dict().items()}
    state["out_head.weight"] = state["out_head.weight"].float()
    save_file(state, tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors", tied)
    assert loaded.out_head.weight is loaded.tok_emb.weight and loaded.tok_emb.weight.dtype == torch.bfloat16


# Hugging Face's


def test_a_folder_as_transformers_writes_it(tmp_path, ids):
    theirs = gpt2()
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    same(ours, theirs, ids)
    assert ours.cfg.tie_weights and ours.cfg.qkv_bias and ours.cfg.rate("attn") == 0.1
    assert ours.out_head.weight is ours.tok_emb.weight and not ours.training
    same(load_model(tmp_path / "model.safetensors"), theirs, ids)  # config.json stands beside it


def test_an_untied_folder_and_one_in_shards(tmp_path, ids):
    theirs = gpt2(tie_word_embeddings=False)
    theirs.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ours = load_model(tmp_path)
    assert not ours.cfg.tie_weights
    same(ours, theirs, ids)


def test_the_bare_model_without_prefix_and_head(tmp_path, ids):
    theirs = gpt2()
    GPT2Model.from_pretrained(None, config=theirs.config, state_dict=theirs.transformer.state_dict()).save_pretrained(
        tmp_path
    )
    keys = load_file(tmp_path / "model.safetensors")
    assert "wte.weight" in keys and "lm_head.weight" not in keys
    same(load_model(tmp_path), theirs, ids)


@pytest.mark.parametrize("prefix", ["", "transformer."])
@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("masks", [True, False])
def test_every_variant_of_the_keys(cfg, tmp_path, ids, prefix, head, tied, masks):
    theirs = gpt2()
    state = {name: value.clone() for name, value in theirs.state_dict().items()}
    renamed = {prefix + name.removeprefix("transformer."): v for name, v in state.items() if name != "lm_head.weight"}
    if head:
        renamed["lm_head.weight"] = state["lm_head.weight"]
    if masks:
        renamed[f"{prefix}h.0.attn.bias"] = torch.ones(1, 1, 16, 16).tril().bool()
        renamed[f"{prefix}h.1.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(renamed, tmp_path / "gpt2.safetensors")
    sizes = replace(cfg, qkv_bias=True, tie_weights=tied)
    ours = load_model(tmp_path / "gpt2.safetensors", sizes)
    same(ours, theirs, ids)
    assert (ours.out_head.weight is ours.tok_emb.weight) == tied
    assert (ours.out_head.weight.data_ptr() == ours.tok_emb.weight.data_ptr()) == tied


def test_a_lone_file_does_not_know_its_heads(tmp_path):
    save_file({k: v.clone() for k, v in gpt2().state_dict().items()}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=r"does not say its sizes, and no config.json is beside it; pass cfg="):
        load_model(tmp_path / "x.safetensors")


def test_a_tied_configuration_refuses_two_tables(tmp_path):
    gpt2(tie_word_embeddings=False).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "tie_word_embeddings": True}))
    with pytest.raises(ValueError, match=r"tie_weights is True, but transformer.wte.weight and lm_head.weight differ"):
        load_model(tmp_path)


@pytest.mark.usefixtures("as_readers_see")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"activation_function": "gelu"}, "activation_function = 'gelu', not 'gelu_new'"),
        ({"layer_norm_epsilon": 1e-6, "n_inner": 32}, r"epsilon = 1e-06, not 1e-05; n_inner = 32, not None"),
        ({"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx = True, not False"),
        ({"model_type": "llama"}, "model_type = 'llama', not 'gpt2'"),
        ({"n_head": 3}, "emb_dim must be divisible by n_heads"),
        ({"n_layer": "2"}, "n_layers must be an integer"),
        ({"vocab_size": None}, "vocab_size must be an integer"),
        ({"tie_word_embeddings": "yes"}, "tie_weights must be True or False"),
    ],
)
def test_a_config_for_another_computation_is_refused(tmp_path, change, words):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", **TINY_GPT2}))
    assert gpt2_config(path).emb_dim == 16
    path.write_text(json.dumps({"model_type": "gpt2", **TINY_GPT2, **change}))
    with pytest.raises(ValueError, match=words) as error:
        gpt2_config(path)
    assert str(path) in str(error.value)


def test_a_config_with_gaps_or_no_json_is_refused(tmp_path):
    path = tmp_path / "config.json"
    for text, words in [("{", "cannot be read"), ("[]", "no JSON object"), ("{}", "lacks vocab_size, context_length")]:
        path.write_text(text)
        with pytest.raises(ValueError, match=words):
            gpt2_config(path)
    old = {("n_ctx" if key == "n_positions" else key): value for key, value in TINY_GPT2.items()}
    path.write_text(json.dumps({**old, "n_inner": 64}))
    assert gpt2_config(path).context_length == 16


# upstream's


def test_an_upstream_state_dict_as_it_is(cfg, tmp_path, ids):
    for bias in (False, True):
        sizes = replace(cfg, qkv_bias=bias)
        theirs = stir(upstream.GPTModel(sizes), 4).eval()
        file = tmp_path / f"{bias}.safetensors"
        save_file(theirs.state_dict(), file)  # with its masks
        assert "trf_blocks.0.att.mask" in load_file(file)
        same(load_model(file, sizes), theirs, ids)
        ours = GPTModel(sizes).eval()
        load_weights(ours, file)
        same(ours, theirs, ids)


# what is refused


def test_every_wrong_key_is_named_and_nothing_changes(model, tmp_path):
    state = {name: value.clone() for name, value in gpt2().state_dict().items() if name != "lm_head.weight"}
    del state["transformer.ln_f.bias"], state["transformer.h.1.mlp.c_fc.weight"]
    state["transformer.h.2.ln_1.weight"] = torch.ones(16)
    state["transformer.wpe.weight"] = torch.ones(15, 16)
    state["transformer.h.0.attn.c_proj.weight"] = torch.ones(16, 16).int()
    save_file(state, tmp_path / "x.safetensors")
    before = [parameter.clone() for parameter in model.parameters()]
    for load in (lambda path: load_weights(model, path), lambda path: load_model(path, model.cfg)):
        with pytest.raises(ValueError, match=r"x.safetensors: the weights do not fit the configuration") as error:
            load(tmp_path / "x.safetensors")
        for words in (
            "missing: transformer.ln_f.bias",
            "missing: transformer.h.1.mlp.c_fc.weight",
            "unknown: transformer.h.2.ln_1.weight",
            "another shape: transformer.wpe.weight is [15, 16], not [16, 16]",
            "no floating-point tensor: transformer.h.0.attn.c_proj.weight is torch.int32",
        ):
            assert words in str(error.value)
        assert len(str(error.value).splitlines()) == 6
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def test_a_file_of_another_configuration_is_refused(model, tmp_path):
    save_model(model, tmp_path / "m.safetensors")
    deeper = GPTModel(replace(model.cfg, n_layers=3))
    with pytest.raises(ValueError, match=r"m\.safetensors: these weights are for other sizes: n_layers = 3, not 2"):
        load_weights(deeper, tmp_path / "m.safetensors")
    for cfg in (replace(model.cfg, n_heads=2), replace(model.cfg, n_heads=8, vocab_size=17)):
        with pytest.raises(ValueError, match=rf"n_heads = {cfg.n_heads}, not 4"):  # of which no shape tells
            load_model(tmp_path / "m.safetensors", cfg)
    with pytest.raises(ValueError, match="not the weights of a GPT-2"):
        save_file({"x": torch.ones(1)}, tmp_path / "x.safetensors")
        load_model(tmp_path / "x.safetensors", model.cfg)


def test_a_pickle_file_is_refused_until_allowed(cfg, tmp_path, ids):
    theirs = upstream.GPTModel(cfg).eval()
    torch.save(theirs.state_dict(), tmp_path / "model.pth")
    torch.save(theirs.state_dict(), tmp_path / "old.safetensors", _use_new_zipfile_serialization=False)
    for name in ("model.pth", "old.safetensors"):  # by its content, whatever it is called
        with pytest.raises(ValueError, match=rf"{name} is a pickle file, which can run code.*allow_pickle=True"):
            load_model(tmp_path / name, cfg)
        same(load_model(tmp_path / name, cfg, allow_pickle=True), theirs, ids)


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_pickle_that_runs_code_runs_none(cfg, tmp_path):
    canary = tmp_path / "canary"
    torch.save({"tok_emb.weight": Canary(str(canary))}, tmp_path / "a.pth")
    (tmp_path / "b.pkl").write_bytes(pickle.dumps(Canary(str(canary)), protocol=2))
    for name in ("a.pth", "b.pkl"):
        for allowed in (False, True):
            with pytest.raises(ValueError, match=r"pickle file|cannot be read with weights_only"):
                load_model(tmp_path / name, cfg, allow_pickle=allowed)
    for content, kind in [([1, 2], "list"), ({1: torch.ones(1)}, "dict")]:
        torch.save(content, tmp_path / "c.pth")
        with pytest.raises(ValueError, match=f"holds no state dict, but {kind}"):
            load_model(tmp_path / "c.pth", cfg, allow_pickle=True)
    assert not canary.exists()


def test_a_damaged_file_is_one_clear_error(model, tmp_path):
    path = tmp_path / "m.safetensors"
    save_model(model, path)
    whole = path.read_bytes()
    for length in (0, 4, 9, 100, 1000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"m.safetensors is no whole safetensors file"):
            load_model(path)
    save_file({}, path)
    with pytest.raises(ValueError, match=r"m\.safetensors: these are not the weights of a GPT-2: there are none"):
        load_model(path, model.cfg)
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(ValueError, match="no whole safetensors file"):
        load_model(path)
    path.write_bytes(whole.replace(b'\\"emb_dim\\": 16', b'\\"emb_dim\\": -6'))
    with pytest.raises(ValueError, match="its configuration cannot be read: emb_dim must be at least 1, got -6"):
        load_model(path)


def test_sizes_that_no_file_has_are_refused_at_once(model, tmp_path):
    path = tmp_path / "m.safetensors"
    save_model(model, path)
    state = load_file(path)
    for key, value, words in [
        ("n_layers", 10**9, "n_layers = 1000000000, but the file holds 28 tensors"),
        ("vocab_size", 10**20, "m.safetensors: "),
        ("emb_dim", 4 * 10**10, "m.safetensors: "),
    ]:
        save_file(state, path, {"book_utils.config": json.dumps({**dict(model.cfg), key: value})})
        with pytest.raises(ValueError, match=words):
            load_model(path)
    for text in ("[" * 100_000, "{}", "[]", "3"):
        save_file(state, path, {"book_utils.config": text})
        with pytest.raises(ValueError, match=r"m\.safetensors: its configuration cannot be read"):
            load_model(path)
    save_file(state, path, {"config": "what another program wrote"})
    assert load_model(path, model.cfg).cfg == model.cfg


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    gpt2().save_pretrained(tmp_path, max_shard_size="10KB")
    first, *_, last = sorted(tmp_path.glob("*.safetensors"))
    save_file({**load_file(last), **load_file(first)}, last)
    with pytest.raises(ValueError, match=rf"{last.name} holds other tensors than model.safetensors.index.json says"):
        load_model(tmp_path)


def test_a_folder_of_another_architecture_is_named_as_such(tmp_path):
    save_file({"model.layers.0.mlp.weight": torch.ones(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ValueError, match=r"these are not the weights of a GPT-2: model\.layers\.0\.mlp\.weight"):
        load_model(tmp_path)


def test_config_json_is_read_beside_gpt2s_names_alone_and_must_agree(cfg, tmp_path, ids):
    theirs = gpt2()
    theirs.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="these weights are for other sizes: n_heads = 8, not 4"):
        load_model(tmp_path, replace(cfg, n_heads=8, qkv_bias=True, tie_weights=True))
    ours = load_model(tmp_path, replace(cfg, qkv_bias=True, tie_weights=False))  # the tie is the caller's to choose
    assert ours.out_head.weight is not ours.tok_emb.weight
    same(ours, theirs, ids)
    save_file(GPTModel(cfg).state_dict(), tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="does not say its sizes"):
        load_model(tmp_path / "other.safetensors")


def test_gpt2s_defaults_are_those_of_transformers(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY_GPT2))
    theirs, ours = GPT2Config(**TINY_GPT2), gpt2_config(path)
    assert (ours.rate("emb"), ours.rate("attn"), ours.rate("shortcut")) == (
        theirs.embd_pdrop,
        theirs.attn_pdrop,
        theirs.resid_pdrop,
    )
    assert ours.tie_weights == theirs.tie_word_embeddings
    path.write_text(json.dumps({**TINY_GPT2, "embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.4}))
    ours = gpt2_config(path)
    assert (ours.rate("emb"), ours.rate("attn"), ours.rate("shortcut")) == (0.2, 0.3, 0.4)
    for setting in ("scale_attn_weights", "add_cross_attention"):
        path.write_text(json.dumps({**TINY_GPT2, setting: not getattr(theirs, setting)}))
        with pytest.raises(ValueError, match=setting):
            gpt2_config(path)


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*nowhere"):
        load_model(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*pipe"):
        load_model(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match=r"holds no file model.safetensors"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(FileNotFoundError, match=r"holds no file model.safetensors"):
        load_model(tmp_path)
    for name in ("../x.safetensors", "..", "", "a\0.safetensors", "/x.safetensors", "x.bin", "a/b.safetensors", 3):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
        with pytest.raises(ValueError, match="does not name the shards"):
            load_model(tmp_path)
    for content in ({}, {"weight_map": {}}, {"weight_map": ["x"]}):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match="does not name the shards"):
            load_model(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "1.safetensors"}}))
    with pytest.raises(FileNotFoundError, match=r"1\.safetensors"):
        load_model(tmp_path)


def test_the_sizes_may_be_an_upstream_dictionary(cfg, tmp_path, ids):
    model = GPTModel(cfg).eval()
    save_file(model.state_dict(), tmp_path / "bare.safetensors")
    plain = {key: cfg[key] for key in ("vocab_size", "context_length", "emb_dim", "n_heads", "n_layers")}
    assert torch.equal(load_model(tmp_path / "bare.safetensors", plain)(ids), model(ids))
    with pytest.raises(ValueError, match="another shape"):
        load_model(tmp_path / "bare.safetensors", get_config("tiny") and {**plain, "vocab_size": 5})
