// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/suffix/suffix_edges.h"

#include <algorithm>
#include <bit>

#include "absl/hash/hash.h"

namespace foretoken::proposer {

// Edges with a hash table from tokens to edges: linear probing, at most two thirds full. A peer chooses the tokens, so
// the hash must be one that it cannot foresee: Abseil's differs from process to process.
class SuffixEdges::LongList {
 public:
  explicit LongList(std::span<const SuffixEdge> edges) : edges_(edges.begin(), edges.end()) { Rehash(); }

  std::vector<SuffixEdge>& edges() { return edges_; }
  const std::vector<SuffixEdge>& edges() const { return edges_; }

  const SuffixEdge* Find(int32_t token_id) const {
    const uint32_t entry = slots_[SlotOf(token_id)];
    return entry == 0 ? nullptr : &edges_[entry - 1];
  }

  const void* Place() const { return slots_.data(); }

  void Add(const SuffixEdge& edge) {
    if (edges_.size() == edges_.capacity()) edges_.reserve(edges_.size() + edges_.size() / 4);
    edges_.push_back(edge);
    if (3 * edges_.size() > 2 * slots_.size()) {
      Rehash();
    } else {
      slots_[SlotOf(edge.token_id)] = static_cast<uint32_t>(edges_.size());
    }
  }

  void Swap(SuffixEdge* a, SuffixEdge* b) {
    std::swap(slots_[SlotOf(a->token_id)], slots_[SlotOf(b->token_id)]);
    std::swap(*a, *b);
  }

  // Removes the last edge.
  void PopBack() {
    size_t hole = SlotOf(edges_.back().token_id);
    edges_.pop_back();
    const size_t mask = slots_.size() - 1;
    // Later entries move into the hole unless that would put them before their own first slot.
    for (size_t slot = (hole + 1) & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
      const size_t first = FirstSlot(edges_[slots_[slot] - 1].token_id);
      if (((slot - first) & mask) < ((slot - hole) & mask)) continue;
      slots_[hole] = slots_[slot];
      hole = slot;
    }
    slots_[hole] = 0;
    if (4 * edges_.size() < edges_.capacity()) {
      edges_.shrink_to_fit();
      Rehash();
    }
  }

  size_t num_bytes() const { return edges_.capacity() * sizeof(SuffixEdge) + slots_.capacity() * sizeof(uint32_t); }

 private:
  size_t FirstSlot(int32_t token_id) const { return absl::HashOf(token_id) & (slots_.size() - 1); }
  // The token's slot, or the free slot for it.
  size_t SlotOf(int32_t token_id) const {
    size_t slot = FirstSlot(token_id);
    while (slots_[slot] != 0 && edges_[slots_[slot] - 1].token_id != token_id) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }
  void Rehash() {
    slots_ = std::vector<uint32_t>(size_t{1} << std::bit_width(2 * edges_.size()));
    for (size_t i = 0; i < edges_.size(); ++i) slots_[SlotOf(edges_[i].token_id)] = static_cast<uint32_t>(i) + 1;
  }

  std::vector<SuffixEdge> edges_;
  std::vector<uint32_t> slots_;  // 1 + the edge's index; 0: free
};

void SuffixEdges::Deleter::operator()(LongList* list) const { delete list; }

void SuffixEdges::Init(SuffixNode& node) {
  node.num_edges = 0;
  node.edges_class = 0;
  node.edges_place = kNoRun;
}

void SuffixEdges::Release(SuffixNode& node) {
  if (node.num_edges == kIsLong) {
    long_lists_[node.edges_place].reset();
    free_long_lists_.push_back(node.edges_place);
  } else if (node.edges_place != kNoRun) {
    ReturnRun(node.edges_class, node.edges_place);
  }
  Init(node);
}

std::span<SuffixEdge> SuffixEdges::Mutable(const SuffixNode& node) {
  if (node.num_edges == kIsLong) return long_lists_[node.edges_place]->edges();
  if (node.num_edges == 0) return {};
  return {&runs_[node.edges_place], node.num_edges};
}

std::span<const SuffixEdge> SuffixEdges::Get(const SuffixNode& node) const {
  if (node.num_edges == kIsLong) return long_lists_[node.edges_place]->edges();
  if (node.num_edges == 0) return {};
  return {&runs_[node.edges_place], node.num_edges};
}

const SuffixEdge* SuffixEdges::Find(const SuffixNode& node, int32_t token_id) const {
  if (node.num_edges == kIsLong) return long_lists_[node.edges_place]->Find(token_id);
  for (const SuffixEdge& edge : Get(node)) {
    if (edge.token_id == token_id) return &edge;
  }
  return nullptr;
}

SuffixEdge* SuffixEdges::Find(const SuffixNode& node, int32_t token_id) {
  return const_cast<SuffixEdge*>(static_cast<const SuffixEdges*>(this)->Find(node, token_id));
}

const void* SuffixEdges::Place(const SuffixNode& node) const {
  if (node.num_edges == kIsLong) return long_lists_[node.edges_place]->Place();
  return node.num_edges == 0 ? nullptr : &runs_[node.edges_place];
}

void SuffixEdges::Add(SuffixNode& node, const SuffixEdge& edge) {
  if (node.num_edges == kMaxRun) MakeLong(node);
  if (node.num_edges == kIsLong) {
    long_lists_[node.edges_place]->Add(edge);
  } else {
    const int32_t run_class = node.edges_class;
    if (node.edges_place == kNoRun) {
      node.edges_place = TakeRun(run_class);
    } else if (node.num_edges == kRunLengths[run_class]) {
      const uint32_t place = TakeRun(run_class + 1);
      std::copy_n(&runs_[node.edges_place], node.num_edges, &runs_[place]);
      ReturnRun(run_class, node.edges_place);
      node.edges_class = static_cast<uint8_t>(run_class + 1);
      node.edges_place = place;
    }
    runs_[node.edges_place + node.num_edges] = edge;
    ++node.num_edges;
  }
  const std::span<SuffixEdge> edges = Mutable(node);
  SuffixEdge* added = &edges.back();
  for (; added != edges.data() && added[-1].count < added->count; --added) Swap(node, added, added - 1);
}

void SuffixEdges::MakeLong(SuffixNode& node) {
  auto list = std::unique_ptr<LongList, Deleter>(new LongList(Get(node)));
  Release(node);
  if (free_long_lists_.empty()) {
    free_long_lists_.push_back(static_cast<uint32_t>(long_lists_.size()));
    long_lists_.emplace_back();
  }
  node.edges_place = free_long_lists_.back();
  free_long_lists_.pop_back();
  long_lists_[node.edges_place] = std::move(list);
  node.num_edges = kIsLong;
}

void SuffixEdges::Swap(const SuffixNode& node, SuffixEdge* a, SuffixEdge* b) {
  if (a == b) return;
  if (node.num_edges == kIsLong) {
    long_lists_[node.edges_place]->Swap(a, b);
  } else {
    std::swap(*a, *b);
  }
}

SuffixEdge* SuffixEdges::Increment(SuffixNode& node, SuffixEdge* edge) {
  // The edge changes places with the first edge of the same count, so the order stays descending.
  const std::span<SuffixEdge> edges = Mutable(node);
  SuffixEdge* first =
      std::partition_point(edges.data(), edge, [&](const SuffixEdge& e) { return e.count > edge->count; });
  Swap(node, edge, first);
  ++first->count;
  return first;
}

SuffixEdge* SuffixEdges::Decrement(SuffixNode& node, SuffixEdge* edge) {
  const std::span<SuffixEdge> edges = Mutable(node);
  SuffixEdge* end = edges.data() + edges.size();
  SuffixEdge* last = std::partition_point(edge, end, [&](const SuffixEdge& e) { return e.count >= edge->count; }) - 1;
  Swap(node, edge, last);
  --last->count;
  return last;
}

void SuffixEdges::Remove(SuffixNode& node, SuffixEdge* edge) {
  const std::span<SuffixEdge> edges = Mutable(node);
  // The edge moves to the end and the order stays descending. Edges of one count need one swap together.
  while (edge != &edges.back()) {
    const uint32_t count = edge[1].count;
    SuffixEdge* end = edges.data() + edges.size();
    SuffixEdge* last = std::partition_point(edge + 1, end, [&](const SuffixEdge& e) { return e.count >= count; }) - 1;
    Swap(node, edge, last);
    edge = last;
  }
  if (node.num_edges == kIsLong) {
    long_lists_[node.edges_place]->PopBack();
    if (Get(node).size() <= kMaxRun / 2) MoveToRun(node);
  } else if (--node.num_edges == 0) {
    Release(node);
  } else if (2 * node.num_edges <= kRunLengths[node.edges_class]) {
    MoveToRun(node);
  }
}

// Moves the edges to the shortest run that holds them.
void SuffixEdges::MoveToRun(SuffixNode& node) {
  const std::span<const SuffixEdge> edges = Get(node);
  const auto num_edges = static_cast<uint8_t>(edges.size());
  const auto run_class = std::ranges::lower_bound(kRunLengths, num_edges) - kRunLengths.begin();
  const uint32_t place = TakeRun(static_cast<int32_t>(run_class));
  std::ranges::copy(edges, &runs_[place]);
  Release(node);
  node.num_edges = num_edges;
  node.edges_class = static_cast<uint8_t>(run_class);
  node.edges_place = place;
}

uint32_t SuffixEdges::TakeRun(int32_t run_class) {
  const uint32_t free = free_runs_[run_class];
  if (free == kNoRun) return runs_.AppendRun(kRunLengths[run_class]);
  free_runs_[run_class] = runs_[free].count;
  return free;
}

void SuffixEdges::ReturnRun(int32_t run_class, uint32_t place) {
  runs_[place].count = free_runs_[run_class];
  free_runs_[run_class] = place;
}

size_t SuffixEdges::num_bytes() const {
  size_t num_bytes = runs_.size() * sizeof(SuffixEdge) + long_lists_.capacity() * sizeof(long_lists_[0]);
  for (const auto& list : long_lists_) {
    if (list != nullptr) num_bytes += sizeof(LongList) + list->num_bytes();
  }
  return num_bytes;
}

}  // namespace foretoken::proposer
