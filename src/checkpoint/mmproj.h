// A vision tower as a GGUF file of its own beside that of its text model, which llama.cpp calls mmproj: its metadata as
// the fields of config.json, its tensors by the names of Hugging Face. Metadata and names are those of llama.cpp's
// tools/mtmd/clip-impl.h and of its conversions; which tower a text model takes, its family says (GgufTower). Plain
// functions; any thread.
#pragma once

#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

namespace reprise::checkpoint {

// Adds "vision_config" and the ids of placeholders to the fields of the text model, whose file is `text`.
Status add_mmproj_fields(const GgufFile& mmproj, const GgufFile& text, const Families& families, Json& config);

// Tensors of file `file` of a checkpoint. The patch embedding, which has a tensor for each of two frames, is put
// together in `made`, as a tensor of file `file` + 1.
Result<std::vector<CheckpointTensor>> mmproj_tensors(const GgufFile& mmproj, const Families& families, size_t file,
                                                     std::vector<uint8_t>& made);

}  // namespace reprise::checkpoint
