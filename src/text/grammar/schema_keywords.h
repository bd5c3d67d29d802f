// What single keywords of a JSON schema say, read and checked. Free functions; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/grammar/json_numbers.h"
#include "text/grammar/schema_merge.h"

namespace reprise::text::grammar {

// JSON without blanks, as values of enum and const are written.
std::string dump_json(const OrderedJson& value);

bool is_of_type(const OrderedJson& value, std::string_view type);
// The types of "type"; without it those that the other keywords speak of.
Result<std::vector<std::string_view>> types_of(const SchemaSource::Place& place);
// The pattern of a format; empty for those that say nothing.
std::string format_pattern(std::string_view format);
// minLength and its like: whole numbers, which may be written 2.0. Without the keyword, `out` stays.
Status read_size(const SchemaSource::Place& place, const char* keyword, std::optional<size_t>* out);
// The stricter of minimum and exclusiveMinimum (`low`), or of the others. For whole numbers the bound itself belongs.
Status read_bound(const SchemaSource::Place& place, bool low, bool whole, std::optional<NumberBound>* out);

}  // namespace reprise::text::grammar
