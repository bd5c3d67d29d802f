#include "sched/adapter_table.h"

#include <ctime>

#include "base/json.h"
#include "base/log.h"

namespace reprise::sched {

Result<AdapterPlace> parse_adapter_place(std::string_view text) {
  constexpr const char* kAllowed = "NAME=FOLDER, or an object like {\"name\": \"a\", \"path\": \"folder\"}";
  AdapterPlace out;
  if (text.starts_with("{")) {
    ASSIGN_OR_RETURN(const Json json, parse_json(text, "`lora_modules`"));
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string() && !value.is_null())
        return invalid("`lora_modules` {}: {} is not a text; allowed: {}", text, key, kAllowed);
      if (key == "name")
        out.name = value.get<std::string>();
      else if (key == "path")
        out.path = value.get<std::string>();
      else if (key != "base_model_name")
        return invalid("`lora_modules` {}: {} is not known; allowed: name, path, base_model_name", text, key);
    }
  } else {
    const size_t equal = text.find('=');
    out.name = text.substr(0, equal);
    out.path = equal == std::string_view::npos ? text : text.substr(equal + 1);
  }
  if (out.name.empty() || out.path.empty()) return invalid("`lora_modules` \"{}\": allowed: {}", text, kAllowed);
  return out;
}

AdapterPtr AdapterTable::find(std::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

std::vector<AdapterPtr> AdapterTable::list() const {
  std::lock_guard lock(mutex_);
  std::vector<AdapterPtr> out;
  for (const auto& [name, adapter] : by_name_) out.push_back(adapter);
  return out;
}

Status AdapterTable::check_free(const std::string& name) const {
  if (slots_.slots() == 0)
    return error(Code::Unsupported, "this model was opened without slots for adapters (`max_loras`)");
  if (by_name_.contains(name)) return invalid("the adapter \"{}\" is loaded already; unload it first", name);
  return Status::ok();
}

Result<engine::PreparedAdapter> AdapterTable::read(const AdapterPlace& place) const {
  {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(check_free(place.name));
  }
  ASSIGN_OR_RETURN(const checkpoint::LoraAdapter adapter, checkpoint::LoraAdapter::open(place.path));
  if (const auto& unknown = adapter.config().unknown(); !unknown.empty())
    log::notice("{}: {} of its adapter_config.json are not known, and not used", place.path, fmt::join(unknown, ", "));
  return slots_.prepare(adapter);
}

Status AdapterTable::free_retired() {
  for (size_t i = retired_.size(); i-- > 0;) {
    if (retired_[i].use_count() > 1) continue;
    RETURN_IF_ERROR(slots_.unload(retired_[i]->slot));
    retired_.erase(retired_.begin() + static_cast<ptrdiff_t>(i));
  }
  return Status::ok();
}

Result<AdapterPtr> AdapterTable::insert(const AdapterPlace& place, const engine::PreparedAdapter& prepared) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(check_free(place.name));
  RETURN_IF_ERROR(free_retired());
  auto slot = slots_.load(prepared);
  if (!slot && !retired_.empty())
    return error(Code::Busy, "{}; {} of them are of adapters that were unloaded and still answer requests",
                 slot.status().message(), retired_.size());
  RETURN_IF_ERROR(slot.status());
  auto made = std::make_shared<Adapter>();
  made->name = place.name;
  made->path = place.path;
  made->base_model = prepared.base_model;
  made->slot = *slot;
  made->serial = ++last_serial_;
  made->rank = prepared.rank;
  made->created = static_cast<int64_t>(std::time(nullptr));
  return by_name_[place.name] = std::move(made);
}

Result<AdapterPtr> AdapterTable::load(const AdapterPlace& place) {
  ASSIGN_OR_RETURN(const engine::PreparedAdapter prepared, read(place));
  return insert(place, prepared);
}

Result<int64_t> AdapterTable::remove(std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    std::string known;
    for (const auto& [other, adapter] : by_name_) known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", other);
    return error(Code::NotFound, "there is no adapter \"{}\"; loaded: {}", name, known.empty() ? "none" : known);
  }
  retired_.push_back(std::move(it->second));
  by_name_.erase(it);
  return static_cast<int64_t>(retired_.back().use_count()) - 1;
}

std::string salt_with(const AdapterPtr& adapter, std::string_view salt) {
  // A salt that a client chose begins as one with an adapter does only where it is told apart by a second mark.
  constexpr char kMark = '\1';
  if (adapter) return fmt::format("{}{}{}{}", kMark, adapter->serial, kMark, salt);
  return salt.starts_with(kMark) ? fmt::format("{}{}", kMark, salt) : std::string(salt);
}

}  // namespace reprise::sched
