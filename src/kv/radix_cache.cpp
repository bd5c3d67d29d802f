#include "kv/radix_cache.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"

namespace reprise::kv {
namespace {

// A copied page costs about as much as computing a few tokens; fewer than this are computed.
constexpr int64_t kLeastPartialTokens = 8;

}  // namespace

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first - a.begin();
}

bool RadixCache::Less::operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

RadixCache::Lease::Lease(RadixCache* cache, Node* node) : cache_(cache), node_(node) { cache_->acquire(node_); }

RadixCache::Lease& RadixCache::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    reset();
    cache_ = other.cache_;
    node_ = std::exchange(other.node_, nullptr);
  }
  return *this;
}

void RadixCache::Lease::reset() {
  if (node_) cache_->drop(std::exchange(node_, nullptr));
}

RadixCache::~RadixCache() {
  clear();
  CHECK(held_ == 0, "{} pages are still leased when their cache goes", held_);
}

void RadixCache::acquire(Node* node) {
  for (; node->parent; node = node->parent) {
    if (node->leases == 0) {
      ++leased_;
      idle_.erase({node->last_use, node});
    }
    ++node->leases;
  }
  ++node->leases;  // a root with leases is not removed
}

void RadixCache::drop(Node* node) {
  Node* root = nullptr;
  for (Node* n = node; n; n = n->parent) {
    root = n;
    CHECK(n->leases > 0);
    --n->leases;
    if (n->leases == 0 && n->parent) {
      --leased_;
      if (can_go(n)) idle_.insert({n->last_use, n});
    }
  }
  if (root->children.empty() && root->leases == 0) roots_.erase(roots_.find(root->salt));
}

// A node is used no later than those below it, so leaves go before what they hang on.
void RadixCache::touch(Node* node) {
  const uint64_t now = ++clock_;
  for (; node && node->parent; node = node->parent) {
    const bool waits = can_go(node);
    if (waits) idle_.erase({node->last_use, node});
    node->last_use = now;
    if (waits) idle_.insert({now, node});
  }
}

RadixCache::Neighbour RadixCache::closest(const Children& children, std::span<const int32_t> tokens) {
  Neighbour best;
  const auto after = children.lower_bound(tokens);
  const auto consider = [&](Children::const_iterator it) {
    const int64_t common = common_prefix(it->first, tokens);
    if (common > best.common) best = {it->second.get(), common};
  };
  if (after != children.end()) consider(after);
  if (after != children.begin()) consider(std::prev(after));
  return best;
}

RadixCache::Match RadixCache::match(std::string_view salt, std::span<const int32_t> tokens) {
  Match m;
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return m;
  Node* at = root->second.get();
  while (static_cast<int64_t>(tokens.size()) - m.tokens >= kPageTokens) {
    const auto child = at->children.find(tokens.subspan(static_cast<size_t>(m.tokens), kPageTokens));
    if (child == at->children.end()) break;
    at = child->second.get();
    m.pages.push_back(at->page);
    m.tokens += kPageTokens;
  }
  if (states_) {
    for (; at->parent && at->state == kZeroSlot; at = at->parent) {
      m.pages.pop_back();
      m.tokens -= kPageTokens;
    }
    touch(at);
    m.state = at->state;
    if (at->parent) m.lease = Lease(this, at);
    return m;
  }
  const auto rest = tokens.subspan(static_cast<size_t>(m.tokens));
  const Neighbour part = closest(at->children, rest.first(std::min(rest.size(), static_cast<size_t>(kPageTokens))));
  if (part.common >= kLeastPartialTokens) {
    m.partial_tokens = part.common;
    m.partial_page = part.node->page;
    touch(part.node);
    m.partial_lease = Lease(this, part.node);
  } else {
    touch(at);
  }
  if (at->parent) m.lease = Lease(this, at);
  return m;
}

std::vector<size_t> RadixCache::depth_first_order(std::span<const Key> keys) const {
  struct Place {
    std::vector<size_t> own;            // keys that end here
    std::vector<const Node*> children;  // on the way to others, in the order of the first key
    size_t weight = 0;                  // keys here and below
  };
  std::unordered_map<const Node*, Place> places;  // null: all roots together
  const auto step_into = [&](const Node* parent, const Node* child) {
    Place& p = places[parent];
    if (std::find(p.children.begin(), p.children.end(), child) == p.children.end()) p.children.push_back(child);
    ++places[child].weight;
  };
  for (size_t i = 0; i < keys.size(); ++i) {
    const Node* at = nullptr;
    const auto root = roots_.find(keys[i].salt);
    const Children* children = root == roots_.end() ? nullptr : &root->second->children;
    auto rest = keys[i].tokens;
    while (children && rest.size() >= static_cast<size_t>(kPageTokens)) {
      const auto child = children->find(rest.first(static_cast<size_t>(kPageTokens)));
      if (child == children->end()) break;
      step_into(at, child->second.get());
      at = child->second.get();
      children = &at->children;
      rest = rest.subspan(static_cast<size_t>(kPageTokens));
    }
    places[at].own.push_back(i);
  }
  std::vector<size_t> out;
  std::vector<std::pair<const Node*, bool>> walk{{nullptr, false}};  // and whether its children are done
  while (!walk.empty()) {
    const auto [node, done] = walk.back();
    walk.pop_back();
    Place& p = places[node];
    if (done) {
      out.insert(out.end(), p.own.begin(), p.own.end());
      continue;
    }
    walk.emplace_back(node, true);
    std::stable_sort(p.children.begin(), p.children.end(),
                     [&](const Node* a, const Node* b) { return places[a].weight > places[b].weight; });
    for (auto it = p.children.rbegin(); it != p.children.rend(); ++it) walk.emplace_back(*it, false);
  }
  return out;
}

int64_t RadixCache::known_tokens(std::string_view salt, std::span<const int32_t> tokens) const {
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return 0;
  const Node* at = root->second.get();
  int64_t known = 0, with_state = 0;
  while (static_cast<int64_t>(tokens.size()) - known >= kPageTokens) {
    const auto child = at->children.find(tokens.subspan(static_cast<size_t>(known), kPageTokens));
    if (child == at->children.end()) break;
    at = child->second.get();
    known += kPageTokens;
    if (at->state != kZeroSlot) with_state = known;
  }
  if (states_) return with_state;
  const auto rest = tokens.subspan(static_cast<size_t>(known));
  const int64_t part =
      closest(at->children, rest.first(std::min(rest.size(), static_cast<size_t>(kPageTokens)))).common;
  return known + (part >= kLeastPartialTokens ? part : 0);
}

RadixCache::Node* RadixCache::add(Node& parent, std::span<const int32_t> tokens, PageId page) {
  if (can_go(&parent)) idle_.erase({parent.last_use, &parent});
  auto child = std::make_unique<Node>();
  child->parent = &parent;
  child->page = page;
  const auto [it, fresh] =
      parent.children.emplace(std::vector<int32_t>(tokens.begin(), tokens.end()), std::move(child));
  CHECK(fresh);
  Node* node = it->second.get();
  node->tokens = &it->first;
  ++held_;
  idle_.insert({node->last_use, node});
  return node;
}

void RadixCache::remove(Node* node) {
  CHECK(can_go(node));
  idle_.erase({node->last_use, node});
  pool_->release(std::span(&node->page, 1));
  forget_state(node);
  --held_;
  Node* parent = node->parent;
  parent->children.erase(parent->children.find(std::span<const int32_t>(*node->tokens)));
  if (can_go(parent)) idle_.insert({parent->last_use, parent});
  if (!parent->parent && parent->children.empty() && parent->leases == 0) roots_.erase(roots_.find(parent->salt));
}

void RadixCache::forget_state(Node* node) {
  if (node->state == kZeroSlot) return;
  states_->forget(std::exchange(node->state, kZeroSlot));
  with_state_.erase(node);
}

bool RadixCache::evict_state() {
  Node* oldest = nullptr;
  for (Node* n : with_state_)
    if (n->leases == 0 && (!oldest || n->last_use < oldest->last_use)) oldest = n;
  if (oldest) forget_state(oldest);
  return oldest != nullptr;
}

RadixCache::Inserted RadixCache::insert(std::string_view salt, std::span<const int32_t> tokens,
                                        std::vector<PageId>& pages, int64_t from, bool whole_sequence, SlotId state) {
  const auto full = static_cast<int64_t>(tokens.size()) / kPageTokens;
  const auto rest = tokens.subspan(static_cast<size_t>(full * kPageTokens));
  CHECK(from <= full && full <= static_cast<int64_t>(pages.size()), "{} of {} pages, {} full", from, pages.size(),
        full);
  auto found = roots_.find(salt);
  if (found == roots_.end()) {
    found = roots_.emplace(std::string(salt), std::make_unique<Node>()).first;
    found->second->salt = found->first;
  }
  Node* at = found->second.get();
  ++at->leases;  // it stays while the last page of another branch may go
  Inserted out;
  for (int64_t i = 0; i < full; ++i) {
    const auto run = tokens.subspan(static_cast<size_t>(i * kPageTokens), kPageTokens);
    const auto child = at->children.find(run);
    PageId& page = pages[static_cast<size_t>(i)];
    if (child != at->children.end()) {
      at = child->second.get();
      if (page != at->page) {
        CHECK(i >= from, "page {} was leased, yet another one has its tokens", page);
        pool_->release(std::span(&page, 1));
        page = at->page;
      }
      continue;
    }
    CHECK(i >= from, "the cache has lost the leased page {}", page);
    // A leaf that was partly filled with the beginning of this run is of no use any more.
    if (const Neighbour part = closest(at->children, run);
        part.node && part.common == static_cast<int64_t>(part.node->tokens->size()) && can_go(part.node))
      remove(part.node);
    at = add(*at, run, page);
  }
  out.pages = full;
  touch(at);
  CHECK(state == kZeroSlot || (states_ && at->parent && rest.empty()), "a state behind no whole page");
  if (state != kZeroSlot) {
    if (at->state == kZeroSlot) {
      at->state = state;
      with_state_.insert(at);
    } else {
      states_->forget(state);
    }
  }
  out.state = at->state;
  if (whole_sequence && static_cast<int64_t>(pages.size()) > full) {
    const auto spare = std::span(pages).subspan(static_cast<size_t>(full));
    const Neighbour part = rest.empty() ? Neighbour{} : closest(at->children, rest);
    const bool known = part.common == static_cast<int64_t>(rest.size());
    const bool keep = static_cast<int64_t>(rest.size()) >= kLeastPartialTokens && !known;
    if (keep) {
      if (part.node && part.common == static_cast<int64_t>(part.node->tokens->size()) && can_go(part.node))
        remove(part.node);
      touch(add(*at, rest, spare[0]));
    }
    pool_->release(spare.subspan(keep ? 1 : 0));
    pages.resize(static_cast<size_t>(full));
  }
  if (at->parent) out.lease = Lease(this, at);
  Node* root = found->second.get();
  if (--root->leases == 0 && root->children.empty()) roots_.erase(found);
  return out;
}

int64_t RadixCache::evict(int64_t pages) {
  int64_t gone = 0;
  for (; gone < pages && !idle_.empty(); ++gone) remove(idle_.begin()->second);
  evicted_ += static_cast<uint64_t>(gone);
  return gone;
}

Status RadixCache::check_node(const Node& node, std::set<PageId>& seen, int64_t& leased) const {
  int64_t below = 0;
  for (const auto& [tokens, child] : node.children) {
    if (child->parent != &node || child->tokens != &tokens)
      return error(Code::Internal, "the node of page {} is not tied to its parent", child->page);
    const auto n = static_cast<int64_t>(tokens.size());
    if (n < 1 || n > kPageTokens) return error(Code::Internal, "the node of page {} has {} tokens", child->page, n);
    if (n < kPageTokens && !child->children.empty())
      return error(Code::Internal, "page {} is partly filled and has others behind it", child->page);
    if (child->state != kZeroSlot && (n < kPageTokens || !with_state_.contains(child.get())))
      return error(Code::Internal, "page {} has a state and is {}", child->page,
                   n < kPageTokens ? "no whole one" : "not listed");
    if (!pool_->in_use(child->page)) return error(Code::Internal, "page {} is cached and free", child->page);
    if (!seen.insert(child->page).second) return error(Code::Internal, "page {} is cached twice", child->page);
    if (child->last_use > node.last_use && node.parent)
      return error(Code::Internal, "page {} was used after the one before it", child->page);
    if (can_go(child.get()) != idle_.contains({child->last_use, child.get()}))
      return error(Code::Internal, "page {} is {} the order of eviction", child->page,
                   can_go(child.get()) ? "missing from" : "wrongly in");
    below += child->leases;
    leased += child->leases > 0;
    RETURN_IF_ERROR(check_node(*child, seen, leased));
  }
  if (below > node.leases) return error(Code::Internal, "{} leases below a node that counts {}", below, node.leases);
  return Status::ok();
}

Status RadixCache::check_integrity() const {
  std::set<PageId> seen;
  int64_t leased = 0;
  for (const auto& [salt, root] : roots_) {
    if (root->parent || root->salt != salt) return error(Code::Internal, "a root is not one");
    if (root->children.empty() && root->leases == 0) return error(Code::Internal, "a root without pages is left");
    RETURN_IF_ERROR(check_node(*root, seen, leased));
  }
  if (static_cast<int64_t>(seen.size()) != held_)
    return error(Code::Internal, "{} pages are cached, {} are counted", seen.size(), held_);
  if (leased != leased_) return error(Code::Internal, "{} pages are leased, {} are counted", leased, leased_);
  for (const Node* n : with_state_)
    if (!seen.contains(n->page) || n->state == kZeroSlot)
      return error(Code::Internal, "a node without a state is listed with one");
  int64_t idle = 0;
  for (const auto& [use, node] : idle_) idle += can_go(node);
  if (idle != static_cast<int64_t>(idle_.size())) return error(Code::Internal, "the order of eviction holds others");
  return Status::ok();
}

}  // namespace reprise::kv
