// SPDX-License-Identifier: Apache-2.0
#include "proposer_service/proposal_stream.h"

#include "proposer_service/proposal_service.h"

namespace foretoken::proposer {

ProposalStream::ProposalStream(ProposalService& service, const SessionTable::Environment& environment)
    : service_(service), table_(environment) {}

ProposalStream::~ProposalStream() = default;

void ProposalStream::Start() {
  absl::MutexLock lock(&mutex_);
  ReadOn();
}

void ProposalStream::End(const grpc::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return;
  end_ = status;
  WriteOrFinish();
}

void ProposalStream::OnReadDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  reading_ = false;
  if (!ok) {
    // The verifier will say nothing more, or is gone. It gets what is owed, and then the end.
    if (!end_.has_value()) end_ = grpc::Status::OK;
    WriteOrFinish();
    return;
  }
  if (end_.has_value()) return;
  table_.Apply(request_);
  WriteOrFinish();
  ReadOn();
}

void ProposalStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok && !end_.has_value()) end_ = grpc::Status::CANCELLED;
  WriteOrFinish();
  ReadOn();
}

void ProposalStream::OnCancel() { End(grpc::Status::CANCELLED); }

void ProposalStream::OnDone() {
  service_.Forget(this);
  delete this;
}

void ProposalStream::WriteOrFinish() {
  if (writing_ || finished_) return;
  if (end_.has_value() && !(end_->ok() && table_.HasNews())) {
    finished_ = true;
    Finish(*end_);
  } else if (table_.HasNews()) {
    table_.TakeNews(response_);
    writing_ = true;
    StartWrite(&response_);
  }
}

void ProposalStream::ReadOn() {
  if (reading_ || end_.has_value() || table_.num_notices() > kMaxNotices) return;
  reading_ = true;
  StartRead(&request_);
}

}  // namespace foretoken::proposer
