// SPDX-License-Identifier: Apache-2.0
// A thread of a block is a context with a stack of its own; a barrier goes back to the scheduler, which resumes those
// that waited for it once all of them do. Streams, graphs and memory are in emulated_streams.cc.
#include <cuda_runtime.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels/check.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace foretoken::testing {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr size_t kWarpThreads = 32;

enum class ThreadState { kReady, kAtWarpBarrier, kAtBlockBarrier, kDone };

struct EmulatedThread {
  ucontext_t context;
  ThreadState state = ThreadState::kReady;
  std::unique_ptr<char[]> stack;
};

// The block that runs now.
struct EmulatedBlock {
  ucontext_t scheduler;
  std::vector<EmulatedThread> threads;
  EmulatedThread* current = nullptr;
  const std::function<void()>* body = nullptr;
};
EmulatedBlock block;

void Leave(ThreadState state) {
  block.current->state = state;
  swapcontext(&block.current->context, &block.scheduler);
}

void RunBody() {
  (*block.body)();
  Leave(ThreadState::kDone);
}

void Prepare(EmulatedThread& thread) {
  if (!thread.stack) thread.stack = std::make_unique<char[]>(kStackBytes);
  FT_CHECK(getcontext(&thread.context) == 0);
  thread.context.uc_stack.ss_sp = thread.stack.get();
  thread.context.uc_stack.ss_size = kStackBytes;
  makecontext(&thread.context, RunBody, 0);
  thread.state = ThreadState::kReady;
}

bool AllAre(std::span<const EmulatedThread> threads, ThreadState state) {
  return std::all_of(threads.begin(), threads.end(), [state](const auto& thread) { return thread.state == state; });
}

// Resumes threads that all wait at the same barrier.
bool Release(std::span<EmulatedThread> threads, ThreadState barrier) {
  if (!AllAre(threads, barrier)) return false;
  for (EmulatedThread& thread : threads) thread.state = ThreadState::kReady;
  return true;
}

// Forwards in every other block and backwards in the rest: a thread that reads too early what another writes does so in
// one of them.
void RunToBarriers() {
  const bool is_forward = (blockIdx.x + blockIdx.y) % 2 == 0;
  const size_t num_threads = block.threads.size();
  for (size_t i = 0; i < num_threads; ++i) {
    const size_t thread = is_forward ? i : num_threads - 1 - i;
    if (block.threads[thread].state != ThreadState::kReady) continue;
    threadIdx = dim3(static_cast<unsigned>(thread), 0, 0);
    block.current = &block.threads[thread];
    FT_CHECK(swapcontext(&block.scheduler, &block.current->context) == 0);
  }
}

void RunBlock() {
  for (EmulatedThread& thread : block.threads) Prepare(thread);
  for (;;) {
    RunToBarriers();
    const std::span<EmulatedThread> threads = block.threads;
    if (AllAre(threads, ThreadState::kDone)) return;
    bool released = Release(threads, ThreadState::kAtBlockBarrier);
    for (size_t i = 0; i < threads.size(); i += kWarpThreads) {
      const size_t count = std::min(kWarpThreads, threads.size() - i);
      released |= Release(threads.subspan(i, count), ThreadState::kAtWarpBarrier);
    }
    const bool every_thread_reaches_the_barrier = released;
    FT_CHECK(every_thread_reaches_the_barrier);
  }
}

}  // namespace

void RunGrid(const dim3& grid, const dim3& shape, const std::function<void()>& thread) {
  FT_CHECK(shape.y == 1 && shape.z == 1 && shape.x <= 1024 && grid.y <= 65535 && grid.z == 1);
  gridDim = grid;
  blockDim = shape;
  block.body = &thread;
  block.threads.resize(shape.x);
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) RunBlock();
  }
}

}  // namespace foretoken::testing

void __syncthreads() { foretoken::testing::Leave(foretoken::testing::ThreadState::kAtBlockBarrier); }
void __syncwarp() { foretoken::testing::Leave(foretoken::testing::ThreadState::kAtWarpBarrier); }
