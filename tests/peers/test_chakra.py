"""Chakra traces, read by the package of mlcommons/chakra: its schema, its tools."""

import json
import subprocess
import sys

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet

from relaxjax.schedule import chakra
from tests.schedule.replayed.test_chakra import DEVICE, PROGRAM, attributes

schema = pytest.importorskip("chakra.schema.protobuf.et_def_pb2")
protolib = pytest.importorskip("chakra.src.third_party.utils.protolib")


def test_its_schema_finds_each_node_and_nothing_unknown(tmp_path):
    path = chakra(PROGRAM, tmp_path / "step", device=DEVICE)[1]
    metadata, nodes = schema.GlobalMetadata(), []
    with path.open("rb") as file:
        assert protolib.decodeMessage(file, metadata)
        while protolib.decodeMessage(file, node := schema.Node()):
            nodes.append(node)
            assert not any(len(UnknownFieldSet(x)) for x in (node, *node.attr))
    assert metadata.version == "0.0.4"
    kinds = [schema.NodeType.Name(node.type) for node in nodes]
    assert kinds == [
        "COMP_NODE",
        "COMM_COLL_NODE",
        "COMP_NODE",
        "COMM_RECV_NODE",
        "COMM_SEND_NODE",
        "COMP_NODE",
    ]
    ends = [attributes(node) for node in nodes if node.name == "p"]
    assert [(at["comm_src"], at["comm_dst"]) for at in ends] == [(0, 1), (1, 2)]


def test_its_jsonizer_writes_them_out(tmp_path):
    path, out = chakra(PROGRAM, tmp_path / "step")[0], tmp_path / "step.json"
    words = ["--input_filename", str(path), "--output_filename", str(out)]
    command = [sys.executable, "-m", "chakra.src.jsonizer.jsonizer", *words]
    subprocess.run(command, check=True)
    rest, found, decoder = out.read_text(), [], json.JSONDecoder()
    while rest:
        one, end = decoder.raw_decode(rest)
        found.append(one)
        rest = rest[end:]
    assert [node["name"] for node in found[1:]] == ["first", "s", "under", "p", "last"]
    sent = {a["name"]: a for a in found[4]["attr"]}
    assert sent["comm_dst"]["int32Val"] == 1
