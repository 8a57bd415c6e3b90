// SPDX-License-Identifier: Apache-2.0
// Reads a checkpoint's bytes for packing: it loads pages, feeds a digest, counts bytes, and releases the pages. One
// reader serves all ranks that share a model.
//
//   WeightReader reader({.progress = progress, .digest = &digest});
//   FT_ASSIGN_OR_RETURN(ModelWeights weights, LoadWeights(config, checkpoint, backend, reader));
//   reader.times()
//
// Threads: any, several at once. One thread fetches and releases a range.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace foretoken::model {

class WeightDigest;

// Called with the number of bytes copied so far and the number of all bytes that the model reads.
// Threads: any, but one call at a time.
using LoadProgress = std::function<void(size_t num_bytes_done, size_t num_bytes)>;

// Seconds, summed over the threads.
struct ReadTimes {
  double reading = 0;  // loading pages: from the disk, or from the page cache
  double packing = 0;
  double digest = 0;
  double releasing = 0;
  size_t num_bytes = 0;

  double total() const { return reading + packing + digest + releasing; }
};

struct WeightReaderOptions {
  size_t num_bytes = 0;  // the bytes that all ranks read together
  LoadProgress progress;
  WeightDigest* digest = nullptr;  // null: no digest is requested
};

class WeightReader {
 public:
  explicit WeightReader(WeightReaderOptions options) : options_(std::move(options)) {}

  // Call it before the bytes are read.
  void Fetch(const void* begin, size_t num_bytes);

  struct Packed {
    const void* begin = nullptr;
    size_t num_bytes = 0;
    size_t num_own_bytes = 0;  // the rank's own bytes among them; the rest belongs to other ranks
    bool is_digested = true;   // this call, and no other rank's, adds them to the digest
  };
  // Call it after the bytes were packed.
  void Release(const Packed& packed);
  // Counts a vector's bytes, which are neither fetched nor released.
  void Count(size_t num_bytes);

  ReadTimes times() const;

 private:
  using Clock = std::chrono::steady_clock;
  void CountLocked(size_t num_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WeightReaderOptions options_;
  mutable absl::Mutex mutex_;
  // The time at which each thread last returned from this reader. From then to its next release the thread packs.
  std::map<std::thread::id, Clock::time_point> returned_ ABSL_GUARDED_BY(mutex_);
  ReadTimes times_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::model
