// SPDX-License-Identifier: Apache-2.0
// Programs that are replaced by a later version while requests run. If this test fails, an upgrade ends streams,
// changes tokens, or must replace all programs at the same time.
//
// The old programs are those in the folder FORETOKEN_OLD_PROGRAMS, where `./dev upgrade COMMIT` has built an older
// commit. Without it they are this build's.
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/integration/stream_load.h"
#include "tests/testing/fakes/newer_peer.h"
#include "tests/testing/paths.h"

namespace foretoken {
namespace {

using testing::NewerPeer;

// The service config that docs/operating.md gives to clients.
std::string DocumentedServiceConfig() {
  std::stringstream page;
  page << std::ifstream(testing::SourcePath("docs/operating.md")).rdbuf();
  const std::string text = page.str();
  const size_t begin = text.find("{\"methodConfig\"");
  return text.substr(begin, text.find("\n```", begin) - begin);
}

client::GenerationClient ConnectToAll(const std::vector<std::string>& addresses) {
  return client::GenerationClient::Connect(
             {.target = "ipv4:" + absl::StrJoin(addresses, ","), .service_config = DocumentedServiceConfig()})
      .value();
}

std::string Old(const std::string& service) {
  const char* folder = std::getenv("FORETOKEN_OLD_PROGRAMS");
  return folder == nullptr ? service : absl::StrCat(folder, "/", service);
}

std::unique_ptr<ServiceProcess> Start(const std::string& service, std::vector<std::string> flags) {
  return std::make_unique<ServiceProcess>(service, std::move(flags));
}

// Each of the three connections: client to verifier, verifier to proposer, and back.
TEST(Versions, FieldsOfALaterVersionChangeNothing) {
  ServiceProcess old_proposer(Old("foretoken_proposer"), {});
  ServiceProcess old_suffix(Old("foretoken_proposer"), {"--method=suffix"});
  NewerPeer newer_proposer(old_proposer.address()), newer_suffix(old_suffix.address());
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + newer_proposer.address() +
                                                 ";suffix=static:" + newer_suffix.address()});
  NewerPeer newer_client(verifier.address());
  client::GenerationClient client = ConnectToAll({newer_client.address()});
  StreamLoad load(client, {.num_streams = 4});
  EXPECT_TRUE(load.AcceptsMore());
  load.ExpectTheTokensOfNoSpeculation();
  EXPECT_GT(newer_client.num_messages(), 10);
  EXPECT_GT(newer_proposer.num_messages(), 10);
  EXPECT_EQ(verifier.Metric("foretoken_proposer_bad_trees_total"), 0);
  EXPECT_EQ(verifier.Metric("foretoken_proposer_breaks_total"), 0);
}

// As Kubernetes does it: the new pod first, then SIGTERM to an old one. The new programs are of a later version: a
// relay stands before each.
TEST(RollingUpgrade, OfVerifiersAndProposersDropsNoStream) {
  const auto old_ngram = Start(Old("foretoken_proposer"), {}), new_ngram = Start("foretoken_proposer", {});
  NewerPeer newer_ngram(new_ngram->address());
  const std::vector<std::string> flags = {
      absl::StrCat("--proposer=ngram=static:", old_ngram->address(), ",", newer_ngram.address()), "--drain_grace=60s"};
  const auto first = Start(Old("foretoken_verifier"), flags), second = Start("foretoken_verifier", flags);
  NewerPeer newer_second(second->address());
  client::GenerationClient client = ConnectToAll({first->address(), newer_second.address()});
  ASSERT_TRUE(WaitUntil([&] { return NumConnected(client) == 2; }));
  StreamLoad load(client, {.num_streams = 6});
  ASSERT_TRUE(load.AcceptsMore());
  EXPECT_EQ(second->Metric("foretoken_generated_tokens_total"), 0) << "the client takes the first that answers";
  EXPECT_EQ(first->Terminate(), 0);
  EXPECT_TRUE(load.AcceptsMore()) << "from the verifier that is left";
  EXPECT_EQ(old_ngram->Terminate(), 0);
  EXPECT_TRUE(load.AcceptsMore()) << "from the proposer that is left";
  load.ExpectTheTokensOfNoSpeculation();  // and no error
  EXPECT_GT(second->Metric("foretoken_generated_tokens_total"), 0);
  EXPECT_GT(newer_second.num_messages(), 10);
  EXPECT_GT(newer_ngram.num_messages(), 10);
}

}  // namespace
}  // namespace foretoken
