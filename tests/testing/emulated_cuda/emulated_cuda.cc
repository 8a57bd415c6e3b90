// SPDX-License-Identifier: Apache-2.0
// A thread of a block is a fiber. A barrier returns to the scheduler. The scheduler resumes the waiting threads in a
// random order once all of them wait. Streams, graphs and memory are in emulated_streams.cc.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "tests/testing/emulated_cuda/copy_groups.h"
#include "tests/testing/emulated_cuda/fiber.h"
#include "tests/testing/emulated_cuda/random_order.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace foretoken::testing {
namespace {

constexpr size_t kWarpThreads = 32;
constexpr size_t kMaxThreads = 1024;  // of a block
constexpr size_t kSharedAlignment = 1024;

enum class ThreadState { kReady, kAtWarpBarrier, kAtBlockBarrier, kDone };

struct EmulatedThread {
  std::unique_ptr<Fiber> fiber;  // runs this thread of block after block
  ThreadState state = ThreadState::kReady;
  // The operation for which it waits at its warp's barrier; null: a plain barrier.
  WarpOperation operation = nullptr;
  void* operand = nullptr;
  CopyGroups copies;
};

// The running block.
struct EmulatedBlock {
  std::span<EmulatedThread> threads;
  EmulatedThread* current = nullptr;
  const std::function<void()>* body = nullptr;
  std::minstd_rand random;
  std::unique_ptr<void, decltype(&std::free)> dynamic_shared{nullptr, std::free};
};
EmulatedBlock block;
std::atomic<bool> device_has_failed = false;

std::mutex allowed_mutex;
std::map<const void*, size_t> allowed_shared_bytes;  // by kernel

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

void Release(std::span<EmulatedThread> threads) {
  for (EmulatedThread& thread : threads) thread.state = ThreadState::kReady;
}

// Runs the operation for which a warp's threads met.
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

// Runs each of the warp's threads to its next barrier, in any order.
void RunToBarriers(size_t first_thread, size_t num_threads) {
  const RandomOrder order(num_threads, block.random);
  for (size_t i = 0; i < num_threads; ++i) {
    const size_t thread = first_thread + order[i];
    threadIdx = dim3(static_cast<unsigned>(thread), 0, 0);
    block.current = &block.threads[thread];
    block.current->fiber->Resume();
  }
}

// Allocates exactly this size, so that an address sanitizer detects accesses beyond it.
void PrepareDynamicShared(size_t num_bytes) {
  if (num_bytes == 0) return;
  const size_t rounded = (num_bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  block.dynamic_shared.reset(std::aligned_alloc(kSharedAlignment, rounded));
  std::memset(block.dynamic_shared.get(), 0xff, rounded);
}

// Runs all threads to the next barrier of the block, or to their end. Warps take turns at random, and one warp often
// passes several of its own barriers at once, because nothing keeps warps in step.
void RunWarpsToBarrier() {
  constexpr unsigned kMeanTurns = 4;
  const size_t num_threads = block.threads.size();
  std::vector<size_t> ready;  // the first threads of warps that can continue
  for (size_t i = 0; i < num_threads; i += kWarpThreads) ready.push_back(i);
  size_t turn = 0;
  while (!ready.empty()) {
    if (turn >= ready.size() || block.random() % kMeanTurns == 0) turn = block.random() % ready.size();
    const size_t count = std::min(kWarpThreads, num_threads - ready[turn]);
    const std::span<EmulatedThread> warp = block.threads.subspan(ready[turn], count);
    RunToBarriers(ready[turn], count);
    if (AllAre(warp, ThreadState::kAtWarpBarrier)) {
      RunWarpOperation(warp);
      Release(warp);
    } else {
      ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(turn));
    }
  }
}

void RunBlock(const cudaLaunchConfig_t& launch) {
  PrepareDynamicShared(launch.dynamicSmemBytes);
  for (EmulatedThread& thread : block.threads) Prepare(thread);
  for (;;) {
    RunWarpsToBarrier();
    if (device_has_failed || AllAre(block.threads, ThreadState::kDone)) return;
    const bool every_thread_reaches_the_barrier = AllAre(block.threads, ThreadState::kAtBlockBarrier);
    FT_CHECK(every_thread_reaches_the_barrier);
    Release(block.threads);
  }
}

}  // namespace

void AllowDynamicSharedMemory(const void* kernel, size_t num_bytes) {
  const std::lock_guard lock(allowed_mutex);
  allowed_shared_bytes[kernel] = num_bytes;
}

size_t AllowedDynamicSharedMemory(const void* kernel) {
  const std::lock_guard lock(allowed_mutex);
  const auto allowed = allowed_shared_bytes.find(kernel);
  return allowed == allowed_shared_bytes.end() ? 0 : allowed->second;
}

bool DeviceHasFailed() { return device_has_failed; }

void RunGrid(const cudaLaunchConfig_t& launch, const std::function<void()>& thread) {
  const dim3 &grid = launch.gridDim, &shape = launch.blockDim;
  FT_CHECK(shape.y == 1 && shape.z == 1 && shape.x <= kMaxThreads && grid.y <= 65535 && grid.z == 1);
  FT_CHECK(launch.dynamicSmemBytes <= kMaxDynamicSharedBytes);
  gridDim = grid;
  blockDim = shape;
  block.body = &thread;
  // The threads and their stacks are never freed.
  static std::vector<EmulatedThread>& threads = *new std::vector<EmulatedThread>(kMaxThreads);
  block.threads = std::span(threads).first(shape.x);
  const size_t num_blocks = size_t{grid.x} * grid.y;
  block.random.seed(static_cast<unsigned>(num_blocks + shape.x));  // equal launches run in equal order
  const RandomOrder order(num_blocks, block.random);
  for (size_t i = 0; i < num_blocks && !device_has_failed; ++i) {
    blockIdx = dim3(static_cast<unsigned>(order[i] % grid.x), static_cast<unsigned>(order[i] / grid.x), 0);
    RunBlock(launch);
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
void __trap() {
  foretoken::testing::device_has_failed = true;
  foretoken::testing::Leave(foretoken::testing::ThreadState::kDone);
  std::abort();  // nothing resumes it
}
