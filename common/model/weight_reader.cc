// SPDX-License-Identifier: Apache-2.0
#include "common/model/weight_reader.h"

#include <utility>

#include "common/model/weight_digest.h"
#include "common/weights/checkpoint.h"
#include "kernels/check.h"

namespace foretoken::model {
namespace {

double Seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void WeightReader::Fetch(const void* begin, size_t num_bytes) {
  const Clock::time_point start = Clock::now();
  weights::FetchPages(begin, num_bytes);
  const Clock::time_point end = Clock::now();
  absl::MutexLock lock(&mutex_);
  times_.reading += Seconds(end - start);
  returned_[std::this_thread::get_id()] = end;
}

void WeightReader::Release(const Packed& packed) {
  const Clock::time_point start = Clock::now();
  if (options_.digest != nullptr && packed.is_digested) options_.digest->AddRows(packed.begin, packed.num_bytes);
  const Clock::time_point digested = Clock::now();
  weights::ReleasePages(packed.begin, packed.num_bytes);
  const Clock::time_point end = Clock::now();
  absl::MutexLock lock(&mutex_);
  Clock::time_point& returned = returned_[std::this_thread::get_id()];
  FT_CHECK(returned != Clock::time_point());  // this thread has fetched it
  times_.packing += Seconds(start - std::exchange(returned, end));
  times_.digest += Seconds(digested - start);
  times_.releasing += Seconds(end - digested);
  CountLocked(packed.num_own_bytes);
}

void WeightReader::Count(size_t num_bytes) {
  absl::MutexLock lock(&mutex_);
  CountLocked(num_bytes);
}

void WeightReader::CountLocked(size_t num_bytes) {
  times_.num_bytes += num_bytes;
  if (options_.progress) options_.progress(times_.num_bytes, options_.num_bytes);
}

ReadTimes WeightReader::times() const {
  absl::MutexLock lock(&mutex_);
  return times_;
}

}  // namespace foretoken::model
