#!/usr/bin/env python3
"""A GGUF model in four files, as the gguf package splits them.

Writes tests/data/gguf/granite-0000N-of-00004.gguf: granite.gguf with seven tensors a part. The package writes the same names
and keys (split.no, split.count, split.tensors.count) as llama.cpp's llama-gguf-split.
"""

from common import DATA

import gguf

TENSORS = 7  # of a part


def main():
    reader = gguf.GGUFReader(DATA / "gguf" / "granite.gguf")
    architecture = reader.get_field(gguf.Keys.General.ARCHITECTURE).contents()
    writer = gguf.GGUFWriter(None, architecture, split_max_tensors=TENSORS)
    for key, field in reader.fields.items():
        if key == gguf.Keys.General.ARCHITECTURE or key.startswith("GGUF."):
            continue
        kind = field.types[0]
        writer.add_key_value(key, field.contents(), kind,
                             field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for t in reader.tensors:
        writer.add_tensor(t.name, t.data, raw_shape=t.data.shape, raw_dtype=t.tensor_type)
    writer.write_header_to_file(DATA / "gguf" / "granite.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
