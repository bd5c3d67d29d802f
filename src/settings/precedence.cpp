#include "settings/precedence.h"

#include <utility>

namespace reprise::settings {

std::string_view name_of(Origin origin) {
  switch (origin) {
    case Origin::Default: return "default";
    case Origin::Device: return "device";
    case Origin::Model: return "model";
    case Origin::File: return "file";
    case Origin::Environment: return "environment";
    case Origin::Flag: return "flag";
    case Origin::Api: return "api";
  }
  return "";
}

void Precedence::give(std::string_view key, Given given) {
  const Origin origin = given.origin;
  given_[std::string(key)][origin] = std::move(given);
}

void Precedence::drop(Origin origin) {
  for (auto at = given_.begin(); at != given_.end();) {
    at->second.erase(origin);
    at = at->second.empty() ? given_.erase(at) : std::next(at);
  }
}

const Given* Precedence::in_effect(std::string_view key) const {
  const auto at = given_.find(key);
  return at == given_.end() ? nullptr : &at->second.rbegin()->second;
}

std::vector<Given> Precedence::all_of(std::string_view key) const {
  std::vector<Given> out;
  const auto at = given_.find(key);
  if (at == given_.end()) return out;
  for (auto given = at->second.rbegin(); given != at->second.rend(); ++given) out.push_back(given->second);
  return out;
}

std::vector<std::string> Precedence::keys() const {
  std::vector<std::string> out;
  for (const auto& [key, given] : given_) out.push_back(key);
  return out;
}

bool Precedence::agrees(const Precedence& other, std::string_view key) const {
  const Given *mine = in_effect(key), *its = other.in_effect(key);
  return mine && its ? *mine == *its : mine == its;
}

void Precedence::take(std::string_view key, const Precedence& other) {
  const auto its = other.given_.find(key);
  if (its != other.given_.end())
    given_[std::string(key)] = its->second;
  else if (const auto mine = given_.find(key); mine != given_.end())
    given_.erase(mine);
}

}  // namespace reprise::settings
