// SPDX-License-Identifier: Apache-2.0
// Bounds the work of one render. The Jinja engine charges every value that it makes, every copy and comparison, and
// every member of a list or an object that it visits, and counts how deep its statements are nested. When a bound is
// passed, the engine stops with an exception.
//
//   RenderBudget budget;
//   ... run the template on this thread ...
//   if (budget.is_exhausted()) ...
//
// The bounds count work, not time, so that the same conversation is always accepted or always refused.
// Threads: it holds for the thread that made it, because the engine makes values in places that know nothing of a
// render.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace jinja {
struct value_t;
}

namespace foretoken::chat {

// Bytes of values, copied strings and visited members. A value takes about 250, so this is 4 million values, which take
// a second. All values of one render fit into this many bytes.
inline constexpr size_t kMaxRenderBytes = size_t{1} << 30;
// Statements and expressions inside each other. Each takes one to three KiB of the stack.
inline constexpr int kMaxRenderDepth = 400;

class RenderBudget {
 public:
  explicit RenderBudget(size_t max_bytes = kMaxRenderBytes);
  // Takes apart the lists and objects that are still there: they hold themselves, or each other. So all other values of
  // the render must have gone before.
  ~RenderBudget();
  RenderBudget(const RenderBudget&) = delete;
  RenderBudget& operator=(const RenderBudget&) = delete;

  bool is_exhausted() const { return is_exhausted_; }
  size_t num_bytes() const { return num_bytes_; }

  // Called by the engine. They throw std::runtime_error when a bound is passed, and from then on always.
  void Charge(size_t num_bytes);
  void Enter();
  void Leave() { --depth_; }
  void Remember(const std::shared_ptr<jinja::value_t>& made);

 private:
  const size_t max_bytes_;
  size_t num_bytes_ = 0;
  int depth_ = 0;
  std::vector<std::weak_ptr<jinja::value_t>> made_;  // lists and objects; most of them have gone
  size_t max_made_ = 1024;                           // with more entries, the expired ones are removed
  bool is_exhausted_ = false;
};

}  // namespace foretoken::chat
