// SPDX-License-Identifier: Apache-2.0
// Reads a checkpoint's bytes for packing: it brings pages in, feeds a digest, counts bytes, and gives the pages back.
// One reader serves all ranks that share a model.
//
//   WeightReader reader({.progress = progress, .digest = &digest});
//   FT_ASSIGN_OR_RETURN(ModelWeights weights, LoadWeights(config, checkpoint, backend, reader));
//   reader.times()
//
// Threads: any, several at once. A range is fetched and released on one thread.
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

// Told of bytes of the checkpoint copied so far, and of all that the model reads. On any thread, one call at a time.
using LoadProgress = std::function<void(size_t num_bytes_done, size_t num_bytes)>;

// Seconds, summed over the threads that worked.
struct ReadTimes {
  double reading = 0;  // bringing pages in: from the disk, or from the page cache
  double packing = 0;
  double digest = 0;
  double releasing = 0;
  size_t num_bytes = 0;

  double total() const { return reading + packing + digest + releasing; }
};

struct WeightReaderOptions {
  size_t num_bytes = 0;  // that all ranks read together
  LoadProgress progress;
  WeightDigest* digest = nullptr;  // null: none is wanted
};

class WeightReader {
 public:
  explicit WeightReader(WeightReaderOptions options) : options_(std::move(options)) {}

  // Before the bytes are read.
  void Fetch(const void* begin, size_t num_bytes);

  struct Packed {
    const void* begin = nullptr;
    size_t num_bytes = 0;
    size_t num_own_bytes = 0;  // of them the rank's own; the others are other ranks'
    bool is_digested = true;   // by this call, and by no other rank's
  };
  // After they were packed.
  void Release(const Packed& packed);
  // Of bytes that were neither fetched nor released: vectors'.
  void Count(size_t num_bytes);

  ReadTimes times() const;

 private:
  using Clock = std::chrono::steady_clock;
  void CountLocked(size_t num_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WeightReaderOptions options_;
  mutable absl::Mutex mutex_;
  // When each thread last returned from this reader. From then to its next release the thread packs.
  std::map<std::thread::id, Clock::time_point> returned_ ABSL_GUARDED_BY(mutex_);
  ReadTimes times_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace foretoken::model
