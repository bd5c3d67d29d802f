#include "verification/model_tests.h"

#include "base/check.h"

namespace reprise::verification {

extern const unsigned char kModelTestsBytes[];
extern const size_t kModelTestsSize;

OrderedJson tests_of_family(std::string_view architecture) {
  static const OrderedJson all = [] {
    auto parsed = parse_ordered_json({reinterpret_cast<const char*>(kModelTestsBytes), kModelTestsSize}, "model tests");
    CHECK(parsed.is_ok(), "{}", parsed.status().message());
    return std::move(*parsed);
  }();
  for (const OrderedJson& family : all["families"]) {
    if (family["architecture"].get_ref<const std::string&>() != architecture) continue;
    OrderedJson out{{"graph_modes", OrderedJson::object()}, {"features", OrderedJson::object()}};
    for (const char* part : {"graph_modes", "features"})
      for (const auto& [name, keys] : family[part].items())
        for (const OrderedJson& key : keys) out[part][name].push_back(all["tests"][key.get<std::string>()]);
    out["untested"] = family["untested"];
    return out;
  }
  return OrderedJson::object();
}

}  // namespace reprise::verification
