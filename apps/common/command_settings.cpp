#include "common/command_settings.h"

#include <algorithm>
#include <map>

#include "settings/config_file.h"
#include "settings/effects.h"
#include "settings/environment.h"

namespace reprise::apps {

using settings::Given;
using settings::Origin;

std::shared_ptr<CommandSettings> CommandSettings::find(const CLI::App& command) {
  return std::dynamic_pointer_cast<CommandSettings>(command.get_config_formatter());
}

std::shared_ptr<CommandSettings> CommandSettings::of(CLI::App& command) {
  if (auto known = find(command)) return known;
  auto made = std::make_shared<CommandSettings>();
  made->command_ = command.get_name();
  command.config_formatter(made);
  return made;
}

void CommandSettings::add(const settings::Binding& binding, const CLI::Option* option) {
  entries_.push_back({binding, option, settings::values_in(binding.target)});
}

const CommandSettings::Entry* CommandSettings::entry(std::string_view key) const {
  const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.binding.key == key; });
  return at == entries_.end() ? nullptr : &*at;
}

Status CommandSettings::take_environment(const char* const* environment) {
  ASSIGN_OR_RETURN(const auto variables, settings::variables_of(environment));
  for (const settings::Variable& v : variables) {
    if (!entry(v.row->key)) {
      unread_.push_back(v.name);
      continue;
    }
    ASSIGN_OR_RETURN(std::vector<std::string> values, settings::values_of(v));
    given_.give(v.row->key, {Origin::Environment, std::move(values)});
  }
  return Status::ok();
}

std::string CommandSettings::config_path() const {
  const Given* config = given_.in_effect("config");
  return config ? config->values.front() : std::string();
}

Status CommandSettings::take_file(settings::Precedence& given) const {
  const std::string path = config_path();
  if (path.empty()) return Status::ok();
  auto values = settings::read_config(path);
  if (!values) return values.status().at("--config");
  for (settings::FileValue& v : *values) {
    if (!entry(v.key))
      return invalid("--config: {}: \"{}\" is no setting of `{}`", v.place, settings::name_of(v.key), command_);
    if (!v.values.empty()) given.give(v.key, {Origin::File, std::move(v.values), v.place});
  }
  return Status::ok();
}

Status CommandSettings::take(const char* const* environment) {
  for (const Entry& e : entries_)
    if (e.option && e.option->count() > 0) given_.give(e.binding.key, {Origin::Flag, e.option->results()});
  RETURN_IF_ERROR(take_environment(environment));
  RETURN_IF_ERROR(take_file(given_));
  settings::Precedence others = given_;
  others.drop(Origin::Flag);  // whose values the parser has stored
  for (const std::string& key : others.keys()) {
    const Given& g = *given_.in_effect(key);
    if (g.origin == Origin::Flag) continue;
    for (const std::string& value : g.values)
      RETURN_IF_ERROR(settings::assign(entry(key)->binding.row(), value, entry(key)->binding.target));
  }
  return Status::ok();
}

Status CommandSettings::assign(const settings::Precedence& given) {
  given_ = given;
  for (const std::string& key : given_.keys()) {
    const Entry* e = entry(key);
    if (!e) return invalid("\"{}\" is no setting of `{}`", settings::name_of(key), command_);
    for (const std::string& value : given_.in_effect(key)->values)
      RETURN_IF_ERROR(settings::assign(e->binding.row(), value, e->binding.target));
  }
  return Status::ok();
}

Result<settings::Precedence> CommandSettings::with_file_of_now() const {
  settings::Precedence out = given_;
  out.drop(Origin::File);
  RETURN_IF_ERROR(take_file(out));
  return out;
}

void CommandSettings::add_print_flag(CLI::App& command) {
  const auto check = [](const std::string& form) {
    return form == "true" || form == "text" || form == "json"
               ? std::string()
               : fmt::format("\"{}\" is not known; allowed: text, json", form);
  };
  command
      .add_flag("--print-settings", print_,
                "print what is in effect, who set it and what that outranked, and exit; --print-settings=json: as JSON")
      ->check(CLI::Validator(check, ""));
}

std::string CommandSettings::printed() const {
  std::map<const settings::Setting*, const Entry*> by_row;
  for (const Entry& e : entries_) by_row[&e.binding.row()] = &e;
  std::vector<settings::Effect> effects;
  for (const auto& [row, e] : by_row)  // rows lie in the order of the table
    effects.push_back(settings::effect_of(*row, settings::default_of(*row, e->initial), given_));
  if (print_ == "json") {
    const OrderedJson all{
        {"command", command_}, {"settings", settings::effects_as_json(effects)}, {"not_read", unread_}};
    return all.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  }
  std::string out = settings::effects_as_text(effects);
  if (!unread_.empty()) out += fmt::format("\n`{}` does not read: {}\n", command_, fmt::join(unread_, ", "));
  return out;
}

}  // namespace reprise::apps
