"""Which path is taken, why not, and what to do: cases P5, S9 and the forms a checkpoint's config comes in."""

from typing import Any

import pytest

from mechanism.explain.config import read_config
from mechanism.explain.defects import known
from mechanism.explain.errors import ExplainError
from mechanism.explain.gemms import GemmAnswer, shapes
from mechanism.explain.models import NAMES, Model, awq, named
from mechanism.explain.path import path_taken

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
QWEN = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "hidden_size": 2048,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}
MIXTRAL = {
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "torch_dtype": "float16",
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "n_group": 8,
    "num_experts_per_tok": 8,
    "hidden_size": 7168,
    "moe_intermediate_size": 2048,
    "intermediate_size": 18432,
    "hidden_act": "silu",
}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "group_size": 128, "strategy": "group", "symmetric": True}}
    },
    "ignore": ["lm_head", "re:.*mlp.gate$"],
}


def model(intermediate: int = 768, hidden: int = 2048, group: int = 128, **more: Any) -> Model:
    given: dict[str, Any] = {"experts": 128, "top_k": 8, "dtype": "float16", "source": "test", "name": "test"}
    return Model(
        hidden=hidden,
        intermediate=intermediate,
        **{**given, "quantisation": awq(group, source="test"), **more},
    )


def obstacles(asked: Model, *, tp: int = 1, kernel: str = "vllm==0.22.0", arch: str = "sm_86") -> list[str]:
    return [
        f"{item.says} [{item.section}]"
        for item in path_taken(asked, tp=tp, kernel=kernel, arch=arch).obstacles
    ]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            {"intermediate": 10944},
            "intermediate % max(64, group) must be 0: 10944 leaves 64 over 128; use a group that divides it, or"
            " pad intermediate to 11008 [3]",
        ),
        (
            {"intermediate": 7392},
            "intermediate % max(64, group) must be 0: 7392 leaves 96 over 128; use a group that divides it, or"
            " pad intermediate to 7424 [3]",
        ),
        (
            {"intermediate": 352},
            "intermediate % max(64, group) must be 0: 352 leaves 96 over 128; use a group that divides it, or"
            " pad intermediate to 384 [3]",
        ),
        ({"hidden": 264}, "hidden % 128 must be 0: 264 leaves 8; pad hidden to 384 [3]"),
        (
            {"group": 48},
            "group must be one of (32, 64, 128): got 48; requantise with one of them [3]",
        ),
        ({"group": -1}, "group -1 cannot be loaded for a MoE layer; use 32, 64 or 128 [1.4]"),
    ],
    ids=["10944", "7392", "N704", "K264", "group48", "channelwise"],
)
def test_shapes_that_do_not_take_the_path(asked: dict[str, int], says: str) -> None:
    """Case P5: the rule, both numbers, the way out."""
    assert obstacles(model(**asked)) == [says]


def test_tensor_parallel_that_breaks_the_rule_names_those_that_keep_it() -> None:
    assert obstacles(model(1536), tp=8) == [
        "intermediate % max(64, group) must be 0: 192 leaves 64 over 128; use a group that divides it, or pad"
        " intermediate to 256 [3]",
        "tensor parallel sizes that keep the rule for 1536: 1, 2, 3, 4, 6, 12 [3]",
    ]
    assert obstacles(model(768), tp=5) == [
        "intermediate % tp must be 0: 768 leaves 3 over 5; use --tp 1 or 2 or 3 or 6 [1.2]"
    ]


def test_scale_permutation_defect_at_i_equal_to_group() -> None:
    """Case S9: I = 128 per rank (512 at tensor parallel 4), H = 4096, group 128."""
    path = path_taken(model(512, hidden=4096), tp=4, kernel="vllm==0.22.0", arch="sm_86")
    assert (path.kind, path.intermediate) == ("marlin", 128)
    gemms = tuple(
        GemmAnswer(shape=shape, launch=None, chosen_by="", split=None, alternatives=(), why_unknown="")
        for shape in shapes(hidden=4096, intermediate=128, group=128)
    )
    found = known(gemms, group=128, intermediate=128, dtype="float16", kernel="vllm==0.22.0", arch="sm_86")
    assert [(item.id, item.kind, item.section) for item in found] == [
        ("scale-permutation-w13", "defect", "1.4"),
        ("channelwise-w2", "trap", "1.4, 6.6"),
    ]
    assert (
        known(
            tuple(
                GemmAnswer(
                    shape=shape, launch=None, chosen_by="", split=None, alternatives=(), why_unknown=""
                )
                for shape in shapes(hidden=4096, intermediate=256, group=128)
            ),
            group=128,
            intermediate=256,
            dtype="float16",
            kernel="vllm==0.22.0",
            arch="sm_86",
        )
        == ()
    )


@pytest.mark.parametrize(
    ("config", "sizes", "kind"),
    [
        ({**QWEN, "quantization_config": AWQ}, (128, 8, 2048, 768, "bfloat16"), "marlin"),
        ({**MIXTRAL, "quantization_config": AWQ}, (8, 2, 4096, 14336, "float16"), "marlin"),
        ({**DEEPSEEK, "quantization_config": AWQ}, (256, 8, 7168, 2048, "float16"), "marlin"),
        ({"text_config": QWEN, "quantization_config": AWQ}, (128, 8, 2048, 768, "bfloat16"), "marlin"),
        ({**QWEN, "quantization_config": COMPRESSED}, (128, 8, 2048, 768, "bfloat16"), "other-type"),
        (
            {
                **QWEN,
                "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True},
            },
            (128, 8, 2048, 768, "bfloat16"),
            "other-type",
        ),
        (QWEN, (128, 8, 2048, 768, "bfloat16"), "not-marlin"),
        (
            {**QWEN, "quantization_config": {"quant_method": "fp8", "bits": 8}},
            (128, 8, 2048, 768, "bfloat16"),
            "not-marlin",
        ),
        (
            {**QWEN, "quantization_config": {**AWQ, "modules_to_not_convert": ["mlp.experts"]}},
            (128, 8, 2048, 768, "bfloat16"),
            "not-marlin",
        ),
    ],
    ids=["qwen", "mixtral", "deepseek", "nested", "compressed", "gptq", "plain", "fp8", "skipped"],
)
def test_configs(config: dict[str, Any], sizes: tuple[Any, ...], kind: str) -> None:
    read = read_config(config, name="config.json")
    assert (read.experts, read.top_k, read.hidden, read.intermediate, read.dtype) == sizes
    assert path_taken(read, tp=1, kernel="vllm==0.22.0", arch="sm_86").kind == kind


def test_older_awq_checkpoints_keep_their_quantisation_beside() -> None:
    beside = {"zero_point": True, "q_group_size": 64, "w_bit": 4, "version": "GEMM"}
    read = read_config(MIXTRAL, name="config.json", awq_file=beside)
    assert read.quantisation is not None
    assert (read.quantisation.method, read.quantisation.group, read.quantisation.bits) == ("awq", 64, 4)


@pytest.mark.parametrize(
    ("quantisation", "says"),
    [
        *(
            (
                given,
                f"the experts' weights are {name} (config.json: quantization_config): they run on the kernel that the"
                " build chooses for that format and device, whose arithmetic and cuts over K are not covered here;"
                " expected AWQ, or symmetric 4-bit GPTQ or compressed-tensors [1.1]",
            )
            for given, name in (
                ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8"),
                ({"quant_method": "mxfp4"}, "mxfp4"),
                ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
                (
                    {
                        "quant_method": "compressed-tensors",
                        "format": "nvfp4-pack-quantized",
                        "config_groups": {
                            "group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}
                        },
                    },
                    "float (compressed-tensors nvfp4-pack-quantized)",
                ),
                (
                    {
                        "quant_method": "compressed-tensors",
                        "format": "pack-quantized",
                        "config_groups": {
                            "group_0": {
                                "weights": {"num_bits": 4, "type": "int", "group_size": 128},
                                "input_activations": {"num_bits": 8, "type": "int"},
                            }
                        },
                    },
                    "int with quantised activations (compressed-tensors pack-quantized)",
                ),
            )
        ),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": True},
            "expected rows of K in their own order, got desc_act (config.json: quantization_config): the kernel then"
            " gathers rows by g_idx, which the specification leaves out; quantise with desc_act false [3]",
        ),
        (
            {**AWQ, "version": "gemv"},
            "expected AutoAWQ's layout gemm, got version gemv (config.json: quantization_config): its words are packed"
            " otherwise than this kernel's loader reads them; quantise with version gemm [1.1]",
        ),
        (
            {**AWQ, "modules_to_not_convert": ["mlp", "lm_head"]},
            "the checkpoint leaves experts unquantised (mlp); those layers run on another kernel [1.1]",
        ),
    ],
    ids=["fp8", "mxfp4", "bnb", "nvfp4", "w4a8", "act-order", "gemv", "mlp-left-out"],
)
def test_formats_that_run_elsewhere_are_named_once(quantisation: dict[str, Any], says: str) -> None:
    """One reason, of the format itself: no rule about groups of a format that has none."""
    assert obstacles(read_config({**QWEN, "quantization_config": quantisation}, name="config.json")) == [says]


@pytest.mark.parametrize("name", ["gate", "mlp.gate", "lm_head", "model.layers.0.mlp.gate", "re:.*gate$"])
def test_a_router_left_out_changes_nothing(name: str) -> None:
    config = {**QWEN, "quantization_config": {**AWQ, "modules_to_not_convert": [name]}}
    assert obstacles(read_config(config, name="config.json")) == []


def test_no_quantisation_says_what_to_do() -> None:
    assert obstacles(read_config(QWEN, name="config.json")) == [
        "the checkpoint names no quantisation: unquantised experts run on another kernel; if you mean an AWQ"
        " version of it, give --group-size 128 [1.1]"
    ]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            {key: value for key, value in QWEN.items() if key != "num_experts"},
            "config.json: number of routed experts: expected one of the keys num_experts, num_local_experts,"
            " n_routed_experts, moe_num_experts, num_moe_experts, found none; is this a MoE model? use --model"
            " for a known one",
        ),
        (
            {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336},
            "config.json: expected a mixture-of-experts model, got a dense one (llama): none of the keys num_experts,"
            " num_local_experts, n_routed_experts, moe_num_experts, num_moe_experts; only MoE layers align routes to"
            " padded blocks, so route alignment cannot change its bits",
        ),
        (
            {"model_type": "qwen3_moe", **{k: v for k, v in QWEN.items() if k != "moe_intermediate_size"}},
            "config.json: intermediate size of an expert: expected one of the keys moe_intermediate_size,"
            " expert_intermediate_size, found none; is this a MoE model? use --model for a known one",
        ),
        (
            {**QWEN, "quantization_config": "awq"},
            "config.json: quantization_config: expected an object with quant_method, got 'awq'; correct it, or give --group-size",
        ),
        (
            {**QWEN, "hidden_size": "2048"},
            "config.json: hidden_size: expected a positive integer, got '2048'",
        ),
        (
            {**QWEN, "quantization_config": {"quant_method": "compressed-tensors", "config_groups": [1]}},
            "config.json: quantization_config: config_groups: expected an object, got [1]",
        ),
        (
            {
                **QWEN,
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"g": {"weights": [1]}},
                },
            },
            "config.json: quantization_config.config_groups.g: weights: expected an object, got [1]",
        ),
        (
            {**QWEN, "hidden_size": 2**31},
            "config.json: hidden_size: expected 1..1048576, got 2147483648; no layer is larger; check the file",
        ),
        (
            {**QWEN, "moe_intermediate_size": 10**30},
            "config.json: moe_intermediate_size: expected 1..1048576, got 1000000000000000000000000000000; no layer"
            " is larger; check the file",
        ),
        (
            {**QWEN, "num_experts": 993},
            "config.json: num_experts: expected 1..992, got 993; the alignment kernel takes no more (marlin-moe 2.3)",
        ),
        (
            {**QWEN, "num_experts_per_tok": 10**10},
            "config.json: num_experts_per_tok: expected 1..992, got 10000000000; the alignment kernel takes no more"
            " (marlin-moe 2.3)",
        ),
        (
            {**QWEN, "hidden_act": "gelu"},
            "config.json: hidden_act: expected silu, which is what the specification covers (marlin-moe 8.1),"
            " got gelu; this tool has no answer for it",
        ),
    ],
    ids=[
        "no-experts",
        "dense",
        "no-intermediate",
        "quantisation",
        "text",
        "groups",
        "weights",
        "hidden",
        "intermediate",
        "experts",
        "top-k",
        "gelu",
    ],
)
def test_unusable_configs(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ExplainError) as raised:
        read_config(config, name="config.json")
    assert str(raised.value) == says


@pytest.mark.parametrize("architectures", [5, {"a": 1}, [], None])
def test_architectures_that_are_no_list_name_nothing(architectures: object) -> None:
    found = read_config(
        {**QWEN, "architectures": architectures, "model_type": "qwen3_moe"}, name="config.json"
    )
    assert found.name == "config.json (qwen3_moe)"


def test_names_of_checkpoints_are_understood() -> None:
    assert named("Qwen/Qwen3-Coder-30B-A3B-Instruct-AWQ").name == "qwen3-coder-30b-a3b"
    assert named("deepseek-v2-lite-chat").name == "deepseek-v2-lite"
    with pytest.raises(ExplainError) as raised:
        named("mixtral")
    assert str(raised.value) == (
        f"--model: expected one of {', '.join(NAMES)}; got mixtral; nearest: mixtral-8x7b, mixtral-8x22b; for any"
        " other model give its config.json by --config"
    )


@pytest.mark.parametrize(("arch", "section"), [("sm_70", "9.3 (21)"), ("sm_75", "scope")])
def test_devices_outside(arch: str, section: str) -> None:
    assert obstacles(model(), arch=arch)[0].endswith(f"[{section}]")
