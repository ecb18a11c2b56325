"""Chakra traces, read again by Protocol Buffers' own library.

The schema is stated here a second time, as `et_def.proto` of mlcommons/chakra has it,
and of each attribute the type that its feeder asks for.
"""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from relaxjax.schedule import Device, chakra, replay

FIELD = descriptor_pb2.FieldDescriptorProto
DEVICE = Device(flops=1e12, bandwidth=1e6)

PROGRAM = """HloModule step, is_scheduled=true, num_partitions=4
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
ENTRY %main (x: f32[1000]) -> f32[1000] {
  %x = f32[1000] parameter(0)
  %first = f32[1000] negate(%x)
  %second = f32[1000] negate(%first)
  %s = f32[1000] all-reduce-start(%second), ALL, to_apply=%add
  %under = f32[1000] negate(%second)
  %d = f32[1000] all-reduce-done(%s)
  %p = f32[1000] collective-permute(%d), PAIRS
  ROOT %last = f32[1000] add(%under, %p)
}
""".replace(
    "ALL", "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"
)
PROGRAM = PROGRAM.replace(
    "PAIRS", "channel_id=2, source_target_pairs={{0,1},{1,2},{3,3}}"
)


def schema() -> dict[str, Any]:
    """Classes of messages, by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="et.proto", package="et", syntax="proto3"
    )

    def message(called: str, **fields: tuple[int, int]) -> None:
        made = file.message_type.add(name=called)
        for key, (number, kind) in fields.items():
            many = key in ("ctrl_deps", "data_deps", "attr")
            label = FIELD.LABEL_REPEATED if many else FIELD.LABEL_OPTIONAL
            field = made.field.add(name=key, number=number, type=kind, label=label)
            if kind == FIELD.TYPE_MESSAGE:
                field.type_name = ".et.AttributeProto"

    text, wide = FIELD.TYPE_STRING, FIELD.TYPE_UINT64
    message(
        "AttributeProto",
        name=(1, text),
        int32_val=(7, FIELD.TYPE_INT32),
        int64_val=(9, FIELD.TYPE_INT64),
        uint64_val=(13, wide),
        bool_val=(27, FIELD.TYPE_BOOL),
    )
    message("GlobalMetadata", version=(1, text), attr=(2, FIELD.TYPE_MESSAGE))
    message(
        "Node",
        id=(1, wide),
        name=(2, text),
        type=(3, FIELD.TYPE_INT32),
        ctrl_deps=(4, wide),
        data_deps=(5, wide),
        start_time_micros=(6, wide),
        duration_micros=(7, wide),
        attr=(10, FIELD.TYPE_MESSAGE),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node")
    found = (pool.FindMessageTypeByName(f"et.{name}") for name in names)
    return dict(zip(names, map(message_factory.GetMessageClass, found), strict=True))


SCHEMA = schema()


def read(path: Path) -> tuple[Any, list[Any]]:
    """The metadata and the nodes of a file."""
    rest, messages = path.read_bytes(), []
    while rest:
        size = shift = place = 0
        while True:
            size |= (rest[place] & 127) << shift
            shift, place = shift + 7, place + 1
            if rest[place - 1] < 128:
                break
        messages.append(rest[place : place + size])
        assert len(messages[-1]) == size
        rest = rest[place + size :]
    metadata = SCHEMA["GlobalMetadata"].FromString(messages[0])
    return metadata, [SCHEMA["Node"].FromString(m) for m in messages[1:]]


FEEDER = {
    "comm_dst": "int32_val",
    "comm_size": "int64_val",
    "comm_src": "int32_val",
    "comm_tag": "int32_val",
    "comm_type": "int64_val",
    "is_cpu_op": "bool_val",
    "num_ops": "int64_val",
    "tensor_size": "uint64_val",
}
"""What the feeder of mlcommons/chakra asks of each; of another type it reads 0."""


def attributes(node: Any) -> dict[str, int]:
    """Values of a node as Chakra's feeder reads them, by name."""
    return {a.name: int(getattr(a, FEEDER[a.name])) for a in node.attr}


def traces(tmp_path: Path, program: str = PROGRAM) -> list[list[Any]]:
    return [read(p)[1] for p in chakra(program, tmp_path / "a/step", device=DEVICE)]


def test_a_file_for_each_device_begins_with_the_version(tmp_path):
    paths = chakra(PROGRAM, tmp_path / "a/step", device=DEVICE)
    assert [p.name for p in paths] == [f"step.{i}.et" for i in range(4)]
    assert {read(p)[0].version for p in paths} == {"0.0.4"}


def test_nodes_follow_what_they_wait_for(tmp_path):
    first, *_ = traces(tmp_path)
    found = [(n.id, n.name, n.type, list(n.data_deps)) for n in first]
    assert found == [
        (1, "first", 4, []),
        (2, "s", 7, [1]),
        (3, "under", 4, [1]),
        (4, "p", 5, [3, 2]),
        (5, "last", 4, [3, 2, 4]),
    ]


def test_what_nodes_say(tmp_path):
    first, *_ = traces(tmp_path)
    work, total, under, _, last = map(attributes, first)
    assert work == {"num_ops": 1, "tensor_size": 2 * 8000, "is_cpu_op": 0}
    assert last["tensor_size"] == 12000
    assert total == {"comm_type": 0, "comm_size": 4000, "is_cpu_op": 0}
    assert [n.duration_micros for n in first if n.type == 4] == [16000, 8000, 12000]
    assert under["tensor_size"] == 8000


def test_time_of_computation_is_that_of_a_replay(tmp_path):
    for nodes in traces(tmp_path):
        micros = sum(node.duration_micros for node in nodes)
        assert micros == pytest.approx(1e6 * replay(PROGRAM, device=DEVICE).compute)


def test_each_device_has_its_ends_of_a_permutation(tmp_path):
    ends = [
        [
            (n.type, attributes(n)["comm_src"], attributes(n)["comm_dst"])
            for n in nodes
            if n.name == "p"
        ]
        for nodes in traces(tmp_path)
    ]
    send, receive = 5, 6
    assert ends == [
        [(send, 0, 1)],
        [(receive, 0, 1), (send, 1, 2)],
        [(receive, 1, 2)],
        [],
    ]
    sent = [n for n in traces(tmp_path)[1] if n.name == "p"]
    assert [attributes(n)["comm_tag"] for n in sent] == [0, 1]
    assert {attributes(n)["comm_size"] for n in sent} == {4000}


LOOP = """HloModule loop, is_scheduled=true, num_partitions=2
%body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8] get-tuple-element(%t), index=1
  %g = f32[8] all-to-all(%x), channel_id=1, replica_groups={{0,1}}, dimensions={0}
  ROOT %r = (s32[], f32[8]) tuple(%i, %g)
}
%condition (t: (s32[], f32[8])) -> pred[] {
  %t = (s32[], f32[8]) parameter(0)
  ROOT %yes = pred[] constant(true)
}
ENTRY %main (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]) parameter(0)
  ROOT %w = (s32[], f32[8]) while(%t), condition=%condition, body=%body, TURNS
}
""".replace("TURNS", 'backend_config={"known_trip_count":{"n":"3"}}')


def test_a_loop_has_the_nodes_of_each_turn(tmp_path):
    nodes, _ = traces(tmp_path, LOOP)
    assert [(n.name, n.type, list(n.data_deps)) for n in nodes] == [
        ("g", 7, []),
        ("g", 7, [1]),
        ("g", 7, [1, 2]),
    ]
    assert attributes(nodes[0])["comm_type"] == 6


CHOICE = """HloModule choice, is_scheduled=true, num_partitions=2
%still (a: f32[8]) -> f32[8] {
  ROOT %a = f32[8] parameter(0)
}
%sums (b: f32[8]) -> f32[8] {
  %b = f32[8] parameter(0)
  %f = f32[8] negate(%b)
  ROOT %g = f32[8] all-reduce(%f), channel_id=1, replica_groups={{0,1}}, ADD
}
%add (c: f32[], d: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %e = f32[] add(%c, %d)
}
ENTRY %main (x: f32[8], i: s32[]) -> f32[8] {
  %x = f32[8] parameter(0)
  %i = s32[] parameter(1)
  ROOT %w = f32[8] CONTROL
}
""".replace("ADD", "use_global_device_ids=true, to_apply=%add")


@pytest.mark.parametrize(
    "control",
    [
        "conditional(%i, %x, %x), branch_computations={%still, %sums}",
        "call(%x), to_apply=%sums",
    ],
)
def test_a_branch_and_a_call_have_their_nodes(tmp_path, control):
    """The slowest branch is taken, as a replay does."""
    nodes, _ = traces(tmp_path, CHOICE.replace("CONTROL", control))
    assert [(n.name, n.type) for n in nodes] == [("f", 4), ("g", 7)]


COPY = """HloModule host, is_scheduled=true
ENTRY %main (x: f32[64]) -> f32[64] {
  %x = f32[64]{0:S(5)} parameter(0)
  %s = (f32[64]{0}, f32[64]{0:S(5)}, u32[]) copy-start(%x)
  %y = f32[64]{0} copy-done(%s)
  %t = (f32[64]{0:S(5)}, f32[64]{0}, u32[]) copy-start(%y)
  ROOT %z = f32[64]{0:S(5)} copy-done(%t)
}
"""


def test_copies_from_and_to_the_host(tmp_path):
    (nodes,) = traces(tmp_path, COPY)
    assert [(n.type, attributes(n)["tensor_size"]) for n in nodes] == [
        (2, 256),
        (3, 256),
    ]


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is among 2 of 4 devices"):
        chakra(PROGRAM.replace("{{0,1,2,3}}", "{{0,1},{2,3}}"), tmp_path / "step")
    with pytest.raises(ValueError, match="chakra: the text must be a module"):
        chakra(PROGRAM.replace("is_scheduled=true, ", ""), tmp_path / "step")
    assert not list(tmp_path.iterdir())
