// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fakes/newer_peer.h"

#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server_builder.h"
#include "kernels/check.h"

namespace foretoken::testing {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A number that no message of ours has.
constexpr int kNewField = 1000;

void AddFields(Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  google::protobuf::UnknownFieldSet& fields = *reflection.MutableUnknownFields(&message);
  fields.AddVarint(kNewField, 7);
  fields.AddLengthDelimited(kNewField + 1, "of a later version");
  std::vector<const FieldDescriptor*> known;
  reflection.ListFields(message, &known);
  for (const FieldDescriptor* field : known) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      AddFields(*reflection.MutableMessage(&message, field));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      AddFields(*reflection.MutableRepeatedMessage(&message, field, i));
    }
  }
}

// `bytes` as a later version would send it.
grpc::ByteBuffer Newer(const grpc::ByteBuffer& bytes, const Descriptor& type) {
  std::vector<grpc::Slice> slices;
  FT_CHECK(bytes.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  const std::unique_ptr<Message> message(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type)->New());
  FT_CHECK(message->ParseFromString(text));
  AddFields(*message);
  const grpc::Slice slice(message->SerializeAsString());
  return {&slice, 1};
}

// One call through the relay. Each direction reads a message, writes it to the other side, and reads the next one. The
// object lives until both sides are done.
class Call : public grpc::ServerGenericBidiReactor {
 public:
  Call(grpc::GenericCallbackServerContext& context, grpc::GenericStub& stub, std::atomic<int64_t>& num_messages)
      : method_(*google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
            absl::StrReplaceAll(context.method().substr(1), {{"/", "."}}))),
        num_messages_(num_messages),
        client_(*this) {
    for (const auto& [key, value] : context.client_metadata()) {
      if (key.starts_with("grpc-") || key.starts_with(":") || key == "user-agent") continue;
      client_.context.AddMetadata({key.data(), key.size()}, {value.data(), value.size()});
    }
    client_.context.set_deadline(context.deadline());
    stub.PrepareBidiStreamingCall(&client_.context, context.method(), {}, &client_);
    client_.AddHold();  // until the last read, because the other side starts writes
    client_.StartRead(&response_);
    client_.StartCall();
    StartRead(&request_);
  }

 private:
  struct Client : grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
    explicit Client(Call& call) : call(call) {}
    void OnReadDone(bool ok) override {
      if (ok) {
        call.Answer();
        return;
      }
      absl::MutexLock lock(&call.mutex_);
      call.has_read_all_ = true;
      RemoveHold();
    }
    void OnWriteDone(bool ok) override {
      if (ok) call.StartRead(&call.request_);
    }
    void OnDone(const grpc::Status& status) override { call.End(status); }
    Call& call;
    grpc::ClientContext context;
  };

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (has_read_all_) return;
    if (!ok) {
      client_.StartWritesDone();
      return;
    }
    newer_request_ = Newer(request_, *method_.input_type());
    ++num_messages_;
    client_.StartWrite(&newer_request_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) client_.StartRead(&response_);
  }
  void OnCancel() override { client_.context.TryCancel(); }
  void OnDone() override { Leave(); }

  void Answer() {
    newer_response_ = Newer(response_, *method_.output_type());
    ++num_messages_;
    StartWrite(&newer_response_);
  }
  void End(const grpc::Status& status) {
    Finish(status);
    Leave();
  }
  void Leave() {
    if (++num_left_ == 2) delete this;
  }

  const google::protobuf::MethodDescriptor& method_;
  std::atomic<int64_t>& num_messages_;
  std::atomic<int> num_left_{0};
  absl::Mutex mutex_;
  bool has_read_all_ ABSL_GUARDED_BY(mutex_) = false;  // the real server has ended the call
  grpc::ByteBuffer request_, newer_request_, response_, newer_response_;
  Client client_;
};

}  // namespace

NewerPeer::NewerPeer(const std::string& target)
    : stub_(grpc::CreateChannel(target, grpc::InsecureChannelCredentials())) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(this);
  server_ = builder.BuildAndStart();
  address_ = absl::StrCat("127.0.0.1:", port);
}

NewerPeer::~NewerPeer() { server_->Shutdown(std::chrono::system_clock::now()); }

grpc::ServerGenericBidiReactor* NewerPeer::CreateReactor(grpc::GenericCallbackServerContext* context) {
  return new Call(*context, stub_, num_messages_);
}

}  // namespace foretoken::testing
