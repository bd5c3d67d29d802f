#include "server/key_ring.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <set>

#include "base/json.h"
#include "base/sha256.h"
#include "server/fields.h"

namespace reprise::server {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;
constexpr std::string_view kMembers[] = {
    "name",     "sha256", "admin", "requests_per_minute", "tokens_per_minute", "max_running", "max_tokens_per_request",
    "priority", "expires"};

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

bool is_hash(std::string_view hash) {
  return hash.size() == 64 && hash.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "2027-01-31" (its beginning) or "2027-01-31T12:00:00Z".
std::optional<int64_t> time_of(const std::string& text) {
  std::tm t{};
  for (const char* form : {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"}) {
    t = {};
    if (const char* end = ::strptime(text.c_str(), form, &t); end && !*end) return ::timegm(&t);
  }
  return std::nullopt;
}

KeyRules read_rules(Fields& f, const Json& object) {
  KeyRules k;
  if (object.is_object())
    for (const auto& [name, value] : object.items())
      if (std::find(std::begin(kMembers), std::end(kMembers), name) == std::end(kMembers))
        f.fail(name.substr(0, 64), fmt::format("it is unknown; there are {}", fmt::join(kMembers, ", ")));
  k.name = f.text("name", "");
  if (!is_name(k.name)) f.fail("name", "1 to 64 letters, digits, dots, dashes and underscores are expected");
  k.sha256 = f.text("sha256", "");
  if (!is_hash(k.sha256)) f.fail("sha256", "64 digits in lower-case hexadecimal are expected");
  k.admin = f.flag("admin", false);
  k.requests_per_minute = f.integer("requests_per_minute", 0, 0, kMost);
  k.tokens_per_minute = f.integer("tokens_per_minute", 0, 0, kMost);
  k.max_running = f.integer("max_running", 0, 0, kMost);
  k.max_tokens_per_request = f.integer("max_tokens_per_request", 0, 0, kMost);
  k.priority = f.maybe_integer("priority", -1000000, 1000000);
  if (const auto expires = f.maybe_text("expires")) {
    k.expires = time_of(*expires);
    if (!k.expires) f.fail("expires", "a time such as 2027-01-31T12:00:00Z, or a day such as 2027-01-31, is expected");
  }
  return k;
}

std::string seconds_text(double s) { return fmt::format("{}s", static_cast<int64_t>(std::ceil(std::max(0.0, s)))); }

}  // namespace

Result<std::vector<KeyRules>> KeyRing::parse(std::string_view file) {
  std::vector<KeyRules> out;
  std::set<std::string> names, hashes;
  for (size_t number = 1; !file.empty(); ++number) {
    const size_t end = std::min(file.find('\n'), file.size());
    const std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(file.size(), end + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto object = parse_json(line, fmt::format("line {}", number));
    if (!object) return object.status();
    Fields f(*object);
    KeyRules k = read_rules(f, *object);
    if (f.error()) return invalid("line {}: {}", number, f.error()->message);
    if (!names.insert(k.name).second) return invalid("line {}: there is another key \"{}\"", number, k.name);
    if (!hashes.insert(k.sha256).second) return invalid("line {}: \"{}\" is the key of another line", number, k.name);
    out.push_back(std::move(k));
  }
  if (out.empty()) return invalid("there is no key in it; `reprise key new NAME` makes one");
  return out;
}

void KeyRing::replace(std::vector<KeyRules> keys) {
  keys_ = std::move(keys);
  by_hash_.clear();
  std::map<std::string, Buckets> before = std::exchange(buckets_, {});
  for (size_t i = 0; i < keys_.size(); ++i) {
    const KeyRules& k = keys_[i];
    by_hash_[k.sha256] = i;
    Buckets& b = buckets_[k.name];
    if (const auto had = before.find(k.name); had != before.end()) b = had->second;
    // A new limit begins with a full bucket; a smaller one does not keep what was in the larger.
    const auto set = [](Bucket& bucket, int64_t& limit, int64_t now) {
      if (limit != now) bucket = {};
      limit = now;
    };
    set(b.requests, b.request_limit, k.requests_per_minute);
    set(b.tokens, b.token_limit, k.tokens_per_minute);
  }
}

const KeyRules* KeyRing::find(std::string_view key) const {
  if (keys_.empty() || key.empty()) return nullptr;
  const auto it = by_hash_.find(sha256_hex(key));
  return it == by_hash_.end() ? nullptr : &keys_[it->second];
}

void KeyRing::fill(Bucket& bucket, int64_t limit, Clock::time_point now) {
  const auto most = static_cast<double>(limit);
  if (bucket.at == Clock::time_point{})
    bucket.level = most;
  else
    bucket.level = std::min(most, bucket.level + most / 60 * std::chrono::duration<double>(now - bucket.at).count());
  bucket.at = now;
}

KeyRing::Charge KeyRing::charge(const KeyRules& key, int64_t tokens, Clock::time_point now) {
  Charge out;
  out.taken = true;
  out.tokens = key.tokens_per_minute > 0 ? std::min(tokens, key.tokens_per_minute) : tokens;
  Buckets& b = buckets_[key.name];
  const auto look = [&](Bucket& bucket, int64_t limit, double wanted, const char* what) {
    if (limit == 0) return;
    fill(bucket, limit, now);
    const double missing = std::min(wanted, static_cast<double>(limit)) - bucket.level;
    // Sums of parts of seconds are not exact; a billionth of a token is none.
    if (missing <= 1e-9 || !out.taken) return;
    out.taken = false;
    out.limit = what;
    out.retry_after_s = static_cast<int64_t>(std::ceil(missing * 60 / static_cast<double>(limit) - 1e-9));
  };
  look(b.requests, key.requests_per_minute, 1, "requests");
  look(b.tokens, key.tokens_per_minute, static_cast<double>(tokens), "tokens");
  const auto take = [&](Bucket& bucket, int64_t limit, double wanted, const char* what) {
    if (limit == 0) return;
    if (out.taken) bucket.level -= std::min(wanted, static_cast<double>(limit));
    const double left = std::max(0.0, bucket.level), most = static_cast<double>(limit);
    out.headers.emplace_back(fmt::format("x-ratelimit-limit-{}", what), std::to_string(limit));
    out.headers.emplace_back(fmt::format("x-ratelimit-remaining-{}", what),
                             std::to_string(static_cast<int64_t>(std::floor(left + 1e-9))));
    out.headers.emplace_back(fmt::format("x-ratelimit-reset-{}", what), seconds_text((most - left) * 60 / most));
  };
  take(b.requests, key.requests_per_minute, 1, "requests");
  take(b.tokens, key.tokens_per_minute, static_cast<double>(tokens), "tokens");
  return out;
}

void KeyRing::reconcile(const std::string& name, int64_t charged, int64_t used, Clock::time_point now) {
  const auto it = buckets_.find(name);
  if (it == buckets_.end() || it->second.token_limit == 0) return;
  Buckets& b = it->second;
  fill(b.tokens, b.token_limit, now);
  b.tokens.level = std::min(static_cast<double>(b.token_limit), b.tokens.level + static_cast<double>(charged - used));
}

}  // namespace reprise::server
