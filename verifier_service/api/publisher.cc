// SPDX-License-Identifier: Apache-2.0
#include "verifier_service/api/publisher.h"

#include <utility>

namespace foretoken::verifier {

Publisher::Publisher() : thread_([this] { Run(); }) {}

Publisher::~Publisher() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Publisher::Subscribe(Ticket ticket, OutputSink sink) {
  absl::MutexLock lock(&sinks_mutex_);
  sinks_.insert_or_assign(ticket, std::move(sink));
}

void Publisher::Unsubscribe(Ticket ticket) {
  OutputSink sink;  // destroyed without the lock, because it may own the last reference to its call
  absl::MutexLock lock(&sinks_mutex_);
  const auto it = sinks_.find(ticket);
  if (it == sinks_.end()) return;
  sink = std::move(it->second);
  sinks_.erase(it);
}

void Publisher::Publish(std::vector<SampleOutput> outputs) {
  if (outputs.empty()) return;
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &Publisher::HasRoom));
  batches_.push_back(std::move(outputs));
}

void Publisher::Deliver(SampleOutput output) {
  OutputSink sink;
  {
    absl::MutexLock lock(&sinks_mutex_);
    const auto it = sinks_.find(output.ticket);
    if (it != sinks_.end()) sink = it->second;
  }
  if (sink) sink(std::move(output));
}

void Publisher::Run() {
  for (;;) {
    std::vector<std::vector<SampleOutput>> batches;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Publisher::Ready));
      if (stopping_) return;
      batches.swap(batches_);
    }
    for (std::vector<SampleOutput>& batch : batches) {
      for (SampleOutput& output : batch) Deliver(std::move(output));
    }
  }
}

}  // namespace foretoken::verifier
