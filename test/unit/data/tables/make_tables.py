"""Writes the Parquet and Arrow files of ArrowTest.cpp beside itself, with the pyarrow of tools/requirements-arrow.txt.

    .venv/bin/python test/unit/data/tables/make_tables.py
"""
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet

HERE = Path(__file__).resolve().parent

table = pa.table({
    "x": pa.array([[1.5, 2.0], [-3.0, 40.0], [0.25, 6.0]], pa.list_(pa.float32())),
    "fixed": pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]]], pa.list_(pa.list_(pa.int16(), 2), 2)),
    "age": pa.array([31.0, None, 40.5], pa.float64()),
    "count": pa.array([3, 1, None], pa.int64()),
    "label": pa.array([0, 1, 2], pa.uint8()),
    "flag": pa.array([True, False, True]),
    "species": pa.array(["setosa", None, "a name of more than twelve bytes"]),
    "colour": pa.array(["red", "blue", "red"]).dictionary_encode(),
    "view": pa.array(["short", "a text of more than twelve bytes", None], pa.string_view()),
    "when": pa.array([0, 1, 2], pa.timestamp("s")),
    "ragged": pa.array([[1], [1, 2], [1]]),
    "half": pa.array([0.5, 1.5, -2.0], pa.float16()),
    "nothing": pa.array([None, None, None], pa.null()),
})
# Groups and batches have two rows, so that columns arrive in pieces.
pyarrow.parquet.write_table(table, HERE / "table.parquet", row_group_size=2, compression="snappy")
pyarrow.feather.write_feather(table, HERE / "table.feather", compression="zstd", chunksize=2)
with pyarrow.ipc.new_stream(HERE / "table.arrows", table.schema) as stream:
    stream.write_table(table, max_chunksize=2)
