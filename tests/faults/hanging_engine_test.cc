// SPDX-License-Identifier: Apache-2.0
// A verifier whose engine hangs, as it does in a device that never answers. If this test fails, such a verifier looks
// healthy, its clients wait for ever, or it is not used again after the engine goes on.
#include <grpcpp/grpcpp.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "gtest/gtest.h"
#include "tests/faults/quiet_levels.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/error_details.h"
#include "tests/testing/health.h"

namespace foretoken {
namespace {

using testing::CheckHealth;
using testing::Health;

// The id of a process's thread with this name.
std::optional<pid_t> FindThread(pid_t process, const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator(absl::StrCat("/proc/", process, "/task"))) {
    std::ifstream comm(task.path() / "comm");
    std::string found;
    if (std::getline(comm, found) && found == name) return std::atoi(task.path().filename().c_str());
  }
  return std::nullopt;
}

// Stops one thread of another process, as a debugger does, until the end of its life. The other threads run on.
//
// Threads: one and the same.
class StoppedThread {
 public:
  explicit StoppedThread(pid_t thread) : thread_(thread) {
    if (ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr) != 0) return;
    is_stopped_ =
        ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) == 0 && waitpid(thread_, nullptr, __WALL) == thread_;
  }
  StoppedThread(const StoppedThread&) = delete;
  ~StoppedThread() { ptrace(PTRACE_DETACH, thread_, nullptr, nullptr); }

  // False: the system permits no tracing.
  bool is_stopped() const { return is_stopped_; }

 private:
  const pid_t thread_;
  bool is_stopped_ = false;
};

// Its steps are long, so the engine is most likely stopped in a forward pass, and not while it holds a lock.
v1::GenerateRequest ManySamples() {
  v1::GenerateRequest request = RepetitiveRequest(0);
  request.mutable_sampling()->set_n(24);
  request.mutable_stopping()->set_max_tokens(800);
  return request;
}

TEST(HangingEngine, IsReportedEndsItsCallsAndServesAgain) {
  ServiceProcess proposer("foretoken_proposer", {});
  ServiceProcess verifier("foretoken_verifier",
                          {"--proposer=ngram=static:" + proposer.address(), "--engine_stall_timeout=1s"});
  client::GenerationClient client = Connect(verifier);
  const auto channel = grpc::CreateChannel(verifier.address(), grpc::InsecureChannelCredentials());
  const auto stub = v1::GenerationService::NewStub(channel);
  const auto becomes = [&](Health health) { return WaitUntil([&] { return CheckHealth(channel) == health; }); };

  StreamLoad load(client, {.num_streams = 2});
  ASSERT_TRUE(load.AcceptsMore());
  const QuietLevels levels({&verifier, &proposer});
  grpc::ClientContext context;
  const auto running = stub->Generate(&context, ManySamples());
  v1::GenerateResponse response;
  ASSERT_TRUE(running->Read(&response));
  {
    const std::optional<pid_t> thread = FindThread(verifier.process().pid(), "engine");
    ASSERT_TRUE(thread.has_value());
    const StoppedThread engine(*thread);
    if (!engine.is_stopped()) GTEST_SKIP() << "this user may not stop a thread of another process";
    EXPECT_TRUE(becomes(Health::kNotServing));
    while (running->Read(&response)) continue;
    const grpc::Status status = running->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(testing::ReasonOf(status), "ENGINE_STALLED");
    load.Finish();
    EXPECT_EQ(load.errors().size(), 2) << "one for each running call";
    for (const std::string& error : load.errors()) EXPECT_TRUE(absl::StartsWith(error, "UNAVAILABLE")) << error;
    grpc::ClientContext later_context;
    const auto later = stub->Generate(&later_context, RepetitiveRequest(0));
    EXPECT_FALSE(later->Read(&response));
    EXPECT_EQ(testing::ReasonOf(later->Finish()), "ENGINE_STALLED") << "a call that comes meanwhile";
  }
  EXPECT_TRUE(becomes(Health::kServing));
  StreamLoad next(client, {.num_streams = 2});
  EXPECT_TRUE(next.AcceptsMore()) << "after the engine went on";
  next.ExpectTheTokensOfNoSpeculation();
  levels.ExpectBack();
}

}  // namespace
}  // namespace foretoken
