// The rules of the simulator: what it refuses because a source of the vendor says so. One table, so that each refusal
// can be traced: a rule has a name, a statement, where it was read, the versions of CANN it holds for, the code of the
// refusal and the test that shows that it bites. docs/ascend-simulator.md carries the same table; a test compares them.
//
// Refusals of malformed arguments (a null pointer, shapes that do not fit) are no rules. The counters may be used by
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ascend_sim {

// The versions that are told apart, each by the sources of its time: 8.1 by the headers and kernels of 8.1.RC1, 8.5 by
// the operator sources of November 2025, 9.1 by those of August 2026.
enum class Cann : uint8_t { V8_1, V8_5, V9_1 };
inline constexpr Cann kNewest = Cann::V9_1;

enum class Rule : uint8_t {
  SymbolOf85,
  SymbolOf91,
  TensorsOutliveExecutor,
  AttentionWorkspace,
  AttentionMaxJoined,
  AttentionJoinedPages,
  AttentionJoinedBf16,
  AttentionJoinedWidth,
  AttentionJoinedTokens,
  AttentionRatio,
  AttentionCausalLength,
  AttentionBand,
  AttentionBandWidth,
  AttentionSinkType,
  AttentionSinkJoined,
  AttentionSinkWidth,
  VarlenHeads,
  VarlenSequences,
  LatentHeads,
  LatentPages,
  LatentRows,
  LatentRowSizes,
  DeltaSizes,
  DeltaStates,
  DeltaRows,
  GroupedScale,
  GroupedFractalAlign,
  GroupedRows,
  GatedProductView,
  GateRenorm,
  DispatchSizes,
  DispatchExperts,
  DispatchQuant,
  DispatchRoom,
  DispatchBuffer,
  DispatchAlone,
  SwigluBuffer,
  CacheValueNull,
  CacheNotRepeated,
  CacheSlotTwice,
  CacheStrides,
  RopeStrides,
  PageableInCapture,
  CmoPrefetchOnly,
  CmoOwnMemory,
  GroupKernelsOnly,
  GroupAiCpu,
  UpdateSameClass,
  UpdateAllTasks,
  UpdateMixedOnly,
  OneOperatorLibrary,
  CollectiveSame,
  Count
};

struct RuleText {
  Rule rule;  // its own place in the table
  const char* id;
  const char* statement;
  const char* source;
  unsigned versions;  // bit n: the version n of Cann
  int code;
  const char* test;  // as CTest names it
};

#pragma GCC visibility push(default)  // for the tests of both halves

const RuleText& text_of(Rule rule);
inline bool holds(Rule rule, Cann version) { return (text_of(rule).versions >> static_cast<int>(version) & 1) != 0; }
const char* name_of(Cann version);

// How often the rule refused something in this process.
uint64_t times_refused(Rule rule);
// Counts a refusal and answers its text: the rule's name and statement, then what was found.
std::string refusal(Rule rule, const std::string& found);

// All rules as the page shows them.
std::string rules_page();

#pragma GCC visibility pop

}  // namespace ascend_sim
