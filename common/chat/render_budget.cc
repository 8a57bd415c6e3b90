// SPDX-License-Identifier: Apache-2.0
#include "common/chat/render_budget.h"

#include <algorithm>
#include <stdexcept>

#include "jinja/value.h"

namespace foretoken::chat {
namespace {

// The budget of the render that runs on this thread, or null.
thread_local RenderBudget* current_budget = nullptr;

}  // namespace

RenderBudget::RenderBudget(size_t max_bytes) : max_bytes_(max_bytes) { current_budget = this; }
RenderBudget::~RenderBudget() {
  current_budget = nullptr;
  for (const std::weak_ptr<jinja::value_t>& made : made_) {
    if (const std::shared_ptr<jinja::value_t> value = made.lock()) value->drop_members();
  }
}

void RenderBudget::Charge(size_t num_bytes) {
  num_bytes_ += num_bytes;
  is_exhausted_ |= num_bytes_ > max_bytes_;
  if (is_exhausted_) throw std::runtime_error("too much work");
}

void RenderBudget::Enter() {
  is_exhausted_ |= depth_ >= kMaxRenderDepth;
  if (is_exhausted_) throw std::runtime_error("too deep");
  ++depth_;
}

void RenderBudget::Remember(const std::shared_ptr<jinja::value_t>& made) {
  made_.push_back(made);
  if (made_.size() < max_made_) return;
  std::erase_if(made_, [](const std::weak_ptr<jinja::value_t>& value) { return value.expired(); });
  max_made_ = std::max(max_made_, 2 * made_.size());
}

}  // namespace foretoken::chat

// What the patched engine calls.
namespace jinja {

void charge(size_t num_bytes) {
  if (foretoken::chat::current_budget != nullptr) foretoken::chat::current_budget->Charge(num_bytes);
}

void enter_statement() {
  if (foretoken::chat::current_budget != nullptr) foretoken::chat::current_budget->Enter();
}

void remember(const std::shared_ptr<value_t>& made) {
  if (foretoken::chat::current_budget != nullptr) foretoken::chat::current_budget->Remember(made);
}

void leave_statement() noexcept {
  if (foretoken::chat::current_budget != nullptr) foretoken::chat::current_budget->Leave();
}

}  // namespace jinja
