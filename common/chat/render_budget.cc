// SPDX-License-Identifier: Apache-2.0
#include "common/chat/render_budget.h"

#include <stdexcept>

#include "jinja/utils.h"

namespace foretoken::chat {
namespace {

// The budget of the render that runs on this thread, or null.
thread_local RenderBudget* current_budget = nullptr;

}  // namespace

RenderBudget::RenderBudget(size_t max_bytes) : max_bytes_(max_bytes) { current_budget = this; }
RenderBudget::~RenderBudget() { current_budget = nullptr; }

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

}  // namespace foretoken::chat

// What the patched engine calls.
namespace jinja {

void charge(size_t num_bytes) {
  if (foretoken::chat::current_budget != nullptr) foretoken::chat::current_budget->Charge(num_bytes);
}

void enter_statement() {
  if (foretoken::chat::current_budget != nullptr) foretoken::chat::current_budget->Enter();
}

void leave_statement() noexcept {
  if (foretoken::chat::current_budget != nullptr) foretoken::chat::current_budget->Leave();
}

}  // namespace jinja
