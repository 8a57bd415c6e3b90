// SPDX-License-Identifier: Apache-2.0
// One stream to a proposer. If this test fails, a proposer's messages pass for smaller than they are.
#include "verifier_service/proposers/replica_stream.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace foretoken::verifier {
namespace {

// Sends one answer of these bytes on every stream.
class RawProposer : public grpc::CallbackGenericService {
 public:
  explicit RawProposer(const std::string& bytes) : answer_(MakeBuffer(bytes)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~RawProposer() override { server_->Shutdown(absl::ToChronoTime(absl::Now())); }
  const std::string& address() const { return address_; }

 private:
  struct Stream : grpc::ServerGenericBidiReactor {
    explicit Stream(const grpc::ByteBuffer& answer) { StartWrite(&answer); }
    void OnCancel() override { Finish(grpc::Status::CANCELLED); }
    void OnDone() override { delete this; }
  };
  static grpc::ByteBuffer MakeBuffer(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    return grpc::ByteBuffer(&slice, 1);
  }
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* /*context*/) override {
    return new Stream(answer_);
  }

  const grpc::ByteBuffer answer_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

// Of a field that comes many times the last one counts. The pace limits what the verifier has read.
TEST(ReplicaStream, TellsHowManyBytesAnAnswerHad) {
  v1::ProposeResponse credit;
  credit.set_feature_credit_bytes(1);
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += credit.SerializeAsString();
  RawProposer proposer(bytes);
  absl::Notification answered, ended;
  size_t num_bytes = 0;
  std::shared_ptr<ReplicaStream> last_share;
  const auto channel = grpc::CreateChannel(proposer.address(), grpc::InsecureChannelCredentials());
  const std::shared_ptr<ReplicaStream> stream =
      ReplicaStream::Start(channel, "aa",
                           {.on_answer =
                                [&](const v1::ProposeResponse&, size_t answer_bytes) {
                                  num_bytes = answer_bytes;
                                  answered.Notify();
                                  return absl::ZeroDuration();
                                },
                            .on_written = [] {},
                            .on_closing = [] {},
                            .on_end =
                                [&](const grpc::Status&, std::shared_ptr<ReplicaStream> self) {
                                  last_share = std::move(self);
                                  ended.Notify();
                                }});
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(num_bytes, bytes.size());
  stream->Cancel();
  ended.WaitForNotification();
}

}  // namespace
}  // namespace foretoken::verifier
