// SPDX-License-Identifier: Apache-2.0
// Both services as processes: 32 streams at a time, whose proposer is killed and comes back. Not one token may differ
// from those of a run without speculation.
#include <signal.h>

#include "gtest/gtest.h"
#include "tests/integration/service_process.h"
#include "tests/integration/stream_load.h"

namespace foretoken {
namespace {

TEST(KillProposer, ChangesNoTokenAndSpeculationComesBack) {
  ServiceProcess proposer("foretoken_proposer", {});
  ServiceProcess verifier("foretoken_verifier", {"--proposer=ngram=static:" + proposer.address()});
  client::GenerationClient client = Connect(verifier);
  StreamLoad load(client, {.num_streams = 32});
  EXPECT_TRUE(load.WinsMore()) << "void: nothing accepted before the kill";
  proposer.process().Signal(SIGKILL);
  proposer.process().Wait();
  EXPECT_TRUE(WaitUntil([&] { return NumConnected(client) == 0; }));
  EXPECT_TRUE(load.GoesOn()) << "the streams did not go on without the proposer";
  // Trees that came before the kill are used up by now.
  proposer.Restart();
  EXPECT_TRUE(load.WinsMore()) << "void: nothing accepted after the return";
  EXPECT_EQ(NumConnected(client), 1);
  load.ExpectTheTokensOfNoSpeculation();
  EXPECT_EQ(verifier.Terminate(), 0);
}

}  // namespace
}  // namespace foretoken
