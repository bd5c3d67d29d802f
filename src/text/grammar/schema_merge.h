// SchemaSource: the JSON of one schema while it is compiled: checks its keywords, follows $ref, and merges the schemas
// that a value must meet at the same time (allOf, and what stands next to $ref or anyOf) into one without allOf and
// $ref. Merged schemas live here, and count against the limits. For one compilation, on one thread.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/grammar/limits.h"

namespace reprise::text::grammar {

class SchemaSource {
 public:
  // A schema and where it stands: "#/properties/a".
  struct Place {
    const OrderedJson* json;
    std::string path;

    // A member that stands under `keyword` by this name.
    Place member(const OrderedJson& json, const char* keyword, const std::string& name) const;
    Status error(std::string_view what) const { return invalid("json_schema: {}: {}", path, what); }
    // nullptr when there is no such keyword.
    const OrderedJson* find(const char* keyword) const;
  };

  SchemaSource(const OrderedJson& root, const GrammarLimits& limits) : root_{&root, "#"}, limits_(limits) {}

  // To be called first: the size and depth of the whole.
  Status check_size();
  const Place& root() const { return root_; }
  // A schema is true, false or an object; keywords that are not understood are an error.
  Status check_keywords(const Place& place) const;
  // Where the $ref of this schema leads.
  Result<Place> follow(const Place& place) const;
  // Whether something besides these keywords says what a value may be.
  static bool says_more_than(const Place& place, std::initializer_list<std::string_view> keywords);
  // Keeps a schema that was made here.
  Place keep(OrderedJson json, std::string path);
  // The same without $ref and allOf.
  Result<Place> flatten(const Place& place, int depth = 0);
  // Both at once; neither has $ref or allOf at its top.
  Result<Place> merge(const Place& a, const Place& b);

 private:
  Status count(const OrderedJson& json, int depth);
  Result<OrderedJson> merge_keyword(const std::string& key, const OrderedJson& a, const OrderedJson& b,
                                    const Place& place) const;
  static void merge_lists(const Place& a, const Place& b, OrderedJson* out);
  static void merge_objects(const OrderedJson& a, const OrderedJson& b, OrderedJson* out);

  Place root_;
  GrammarLimits limits_;
  size_t values_ = 0;
  std::deque<OrderedJson> made_;
};

}  // namespace reprise::text::grammar
