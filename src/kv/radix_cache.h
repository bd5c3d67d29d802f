// RadixCache: keys and values of token prefixes that earlier sequences left behind, for later ones to start from.
//
// A tree per salt (a tenant's secret; different salts never share), one node a page of 128 tokens: the path to a node
// spells the tokens before it. Whole pages are shared as they are. The last page of a sequence may be partly filled: it
// hangs in the tree as a leaf, and a sequence that continues it copies it, so prefixes are found to the token although
// pages are whole. The cache owns the pages of its nodes; a Lease keeps those of one path from being evicted. What is
// not leased is evicted leaf by leaf, the longest unused first.
//
// For a model with states, pages are not enough to go on from: a node may hold the state behind its page, and a match
// ends at the deepest node that does. Partly filled pages are not kept then. The thread that owns the KvPool owns the
// cache.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kv/kv_pool.h"
#include "kv/state_pool.h"

namespace reprise::kv {

// How many tokens the two begin with in common.
int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

class RadixCache {
  struct Node;

 public:
  // The pools outlive the cache, and the cache outlives its leases. `states`: of a model that has them.
  explicit RadixCache(KvPool& pool, StatePool* states = nullptr) : pool_(&pool), states_(states) {}
  ~RadixCache();
  RadixCache(const RadixCache&) = delete;
  RadixCache& operator=(const RadixCache&) = delete;

  // Keeps the pages from the root to one node in the cache while it lives.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept : cache_(other.cache_), node_(std::exchange(other.node_, nullptr)) {}
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { reset(); }
    void reset();
    explicit operator bool() const { return node_ != nullptr; }

   private:
    friend class RadixCache;
    Lease(RadixCache* cache, Node* node);
    RadixCache* cache_ = nullptr;
    Node* node_ = nullptr;
  };

  struct Match {
    int64_t tokens = 0;         // in whole pages
    std::vector<PageId> pages;  // hold them
    Lease lease;                // of those pages
    SlotId state = kZeroSlot;   // behind them, where there are states
    // The page after them that begins with the most of what follows: a copy of it saves so many tokens more. 0: none.
    int64_t partial_tokens = 0;
    PageId partial_page = kScratchPage;
    Lease partial_lease;  // keep it until the page is copied
  };
  // The longest known prefix. Only the order of eviction changes.
  Match match(std::string_view salt, std::span<const int32_t> tokens);
  // How many tokens match() would save, partial page included; changes nothing.
  int64_t known_tokens(std::string_view salt, std::span<const int32_t> tokens) const;

  // SGLang's "dfs-weight": the keys in the order of a walk of the tree that visits the children with most keys first,
  // and a node's own keys after those of its children. A key belongs to the last whole page that it finds. Equal
  // weights keep the order of the keys.
  struct Key {
    std::string_view salt;
    std::span<const int32_t> tokens;
  };
  std::vector<size_t> depth_first_order(std::span<const Key> keys) const;

  // Puts the pages of `tokens` into the tree. The caller owned pages[from..] (those before are leased from the cache)
  // and owns none of them afterwards: where the tree already holds a page with the same tokens, the caller's goes back
  // to the pool and `pages` names the cached one, whose content is the same. A partly filled last page is taken when
  // `whole_sequence` is true; otherwise (the sequence still grows) it stays the caller's and does not count.
  struct Inserted {
    int64_t pages = 0;         // of `pages` that belong to the cache now
    Lease lease;               // of them
    SlotId state = kZeroSlot;  // behind them
  };
  // With states: `state`, one that is kept, is behind the tokens, which fill their pages. Where the tree has one
  // already, it is forgotten.
  Inserted insert(std::string_view salt, std::span<const int32_t> tokens, std::vector<PageId>& pages, int64_t from,
                  bool whole_sequence, SlotId state = kZeroSlot);

  // Forgets the state that was not used for the longest time, of those that are not leased. False: there is none.
  bool evict_state();

  // Gives up to `pages` pages back to the pool and says how many. Leased pages stay.
  int64_t evict(int64_t pages);
  // Everything that is not leased.
  int64_t clear() { return evict(held_pages()); }

  int64_t held_pages() const { return held_; }
  int64_t held_states() const { return static_cast<int64_t>(with_state_.size()); }
  int64_t evictable_pages() const { return held_ - leased_; }
  uint64_t evicted_pages() const { return evicted_; }
  // The tree is well formed, every page is in use and hangs there once, counts and the order of eviction are right.
  Status check_integrity() const;

 private:
  // Compares token runs; a map in this order has the longest common prefixes of a run next to the place where it would
  // be inserted.
  struct Less {
    using is_transparent = void;
    bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const;
  };
  using Children = std::map<std::vector<int32_t>, std::unique_ptr<Node>, Less>;
  struct Node {
    Node* parent = nullptr;  // null: a root
    std::string salt;        // of a root
    const std::vector<int32_t>* tokens = nullptr;
    PageId page = kScratchPage;
    SlotId state = kZeroSlot;  // behind the page; that slot: none
    int64_t leases = 0;        // of this node and those below
    uint64_t last_use = 0;
    Children children;
  };

  struct Neighbour {
    Node* node = nullptr;
    int64_t common = 0;
  };
  static Neighbour closest(const Children& children, std::span<const int32_t> tokens);
  Node* add(Node& parent, std::span<const int32_t> tokens, PageId page);
  void remove(Node* node);
  void touch(Node* node);
  bool can_go(const Node* node) const { return node->parent && node->children.empty() && node->leases == 0; }
  void acquire(Node* node);
  void drop(Node* node);
  Status check_node(const Node& node, std::set<PageId>& seen, int64_t& leased) const;

  void forget_state(Node* node);

  KvPool* pool_;
  StatePool* states_;  // null: the model has none
  std::set<Node*> with_state_;
  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;
  std::set<std::pair<uint64_t, Node*>> idle_;  // what can_go(), longest unused first
  uint64_t clock_ = 0, evicted_ = 0;
  int64_t held_ = 0, leased_ = 0;
};

}  // namespace reprise::kv
