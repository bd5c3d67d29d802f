// capture_as_measured(): whether the captures of a size read weights ahead, and have the streams of its plan or one, by
// the time that replays of it take.
//
// All are captures of the same plan, so bits, memory and launches are the same. The largest size is measured, and the
// largest of at most half of each measured one; sizes in between go by the next larger that was. Staged tokens are
// numbers that differ, which experts tell apart; contexts are empty, and rows belong to no sequence. Used at start-up,
// on its thread.
#pragma once

#include "compile/compiled_model.h"
#include "compile/staging.h"

namespace reprise::engine {

// The second stream must save so much of a replay. What is read ahead must not cost any; what it costs beside attention
// over contexts was counted when it was placed (passes/insert_prefetch.cpp).
constexpr double kStreamsGain = 0.02;

// `one`: one stream is tried as well.
Status capture_as_measured(CompiledModel& model, int64_t size, const LiveSizes& live, Stream& stream, Staging& staging,
                           int64_t vocab, bool one);

}  // namespace reprise::engine
