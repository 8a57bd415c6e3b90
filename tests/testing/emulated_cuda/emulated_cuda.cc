// SPDX-License-Identifier: Apache-2.0
// A thread of a block is a fiber; a barrier goes back to the scheduler, which resumes those that waited for it once all
// of them do. Streams, graphs and memory are in emulated_streams.cc.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "tests/testing/emulated_cuda/copy_groups.h"
#include "tests/testing/emulated_cuda/fiber.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace foretoken::testing {
namespace {

constexpr size_t kWarpThreads = 32;
constexpr size_t kMaxThreads = 1024;  // of a block
constexpr size_t kSharedAlignment = 128;

enum class ThreadState { kReady, kAtWarpBarrier, kAtBlockBarrier, kDone };

struct EmulatedThread {
  std::unique_ptr<Fiber> fiber;  // runs its part of one block after another
  ThreadState state = ThreadState::kReady;
  // What it waits at its warp's barrier for; null: the others alone.
  WarpOperation operation = nullptr;
  void* operand = nullptr;
  CopyGroups copies;
};

// The block that runs now.
struct EmulatedBlock {
  std::span<EmulatedThread> threads;
  EmulatedThread* current = nullptr;
  const std::function<void()>* body = nullptr;
  std::unique_ptr<void, decltype(&std::free)> dynamic_shared{nullptr, std::free};
};
EmulatedBlock block;

void Leave(ThreadState state) {
  block.current->state = state;
  block.current->fiber->Leave();
}

void RunBodies() {
  for (;;) {
    (*block.body)();
    Leave(ThreadState::kDone);
  }
}

void Prepare(EmulatedThread& thread) {
  if (!thread.fiber) thread.fiber = std::make_unique<Fiber>(RunBodies);
  thread.state = ThreadState::kReady;
  thread.copies = {};
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

// Does for a warp what its threads met for.
void RunWarpOperation(std::span<EmulatedThread> warp) {
  const WarpOperation operation = warp[0].operation;
  std::vector<void*> operands;
  for (EmulatedThread& thread : warp) {
    const bool threads_meet_with_the_same_operation = std::exchange(thread.operation, nullptr) == operation;
    FT_CHECK(threads_meet_with_the_same_operation);
    operands.push_back(thread.operand);
  }
  if (operation == nullptr) return;
  FT_CHECK(warp.size() == kWarpThreads);
  operation(operands);
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
    block.current->fiber->Resume();
  }
}

// Ends where it says it ends, so that an address sanitizer sees what goes beyond.
void PrepareDynamicShared(size_t num_bytes) {
  if (num_bytes == 0) return;
  const size_t rounded = (num_bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  block.dynamic_shared.reset(std::aligned_alloc(kSharedAlignment, rounded));
  std::memset(block.dynamic_shared.get(), 0xff, rounded);
}

void RunBlock(const cudaLaunchConfig_t& launch) {
  PrepareDynamicShared(launch.dynamicSmemBytes);
  for (EmulatedThread& thread : block.threads) Prepare(thread);
  for (;;) {
    RunToBarriers();
    if (AllAre(block.threads, ThreadState::kDone)) return;
    bool released = Release(block.threads, ThreadState::kAtBlockBarrier);
    for (size_t i = 0; i < block.threads.size(); i += kWarpThreads) {
      const size_t count = std::min(kWarpThreads, block.threads.size() - i);
      const std::span<EmulatedThread> warp = block.threads.subspan(i, count);
      if (!Release(warp, ThreadState::kAtWarpBarrier)) continue;
      released = true;
      RunWarpOperation(warp);
    }
    const bool every_thread_reaches_the_barrier = released;
    FT_CHECK(every_thread_reaches_the_barrier);
  }
}

}  // namespace

void RunGrid(const cudaLaunchConfig_t& launch, const std::function<void()>& thread) {
  const dim3 &grid = launch.gridDim, &shape = launch.blockDim;
  FT_CHECK(shape.y == 1 && shape.z == 1 && shape.x <= kMaxThreads && grid.y <= 65535 && grid.z == 1);
  FT_CHECK(launch.dynamicSmemBytes <= kMaxDynamicSharedBytes);
  gridDim = grid;
  blockDim = shape;
  block.body = &thread;
  // They stay for good, and so do their stacks.
  static std::vector<EmulatedThread>& threads = *new std::vector<EmulatedThread>(kMaxThreads);
  block.threads = std::span(threads).first(shape.x);
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) RunBlock(launch);
  }
}

void* DynamicSharedMemory() { return block.dynamic_shared.get(); }

void MeetWarp(WarpOperation operation, void* operand) {
  block.current->operation = operation;
  block.current->operand = operand;
  Leave(ThreadState::kAtWarpBarrier);
}

CopyGroups& CopiesOfThread() { return block.current->copies; }

}  // namespace foretoken::testing

void __syncthreads() { foretoken::testing::Leave(foretoken::testing::ThreadState::kAtBlockBarrier); }
void __syncwarp() { foretoken::testing::MeetWarp(nullptr, nullptr); }
