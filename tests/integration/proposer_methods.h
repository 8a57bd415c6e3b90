// SPDX-License-Identifier: Apache-2.0
// The proposers of this repository, for tests that hold for each of them.
#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/integration/connect.h"
#include "tests/testing/paths.h"

namespace foretoken {

struct ProposerMethod {
  std::string name;
  std::vector<std::string> flags;  // in addition to --method
};

inline std::vector<std::string> FlagsOf(const ProposerMethod& method, std::vector<std::string> more = {}) {
  more.push_back("--method=" + method.name);
  more.insert(more.end(), method.flags.begin(), method.flags.end());
  return more;
}

// The verifier's flag for a proposer process.
inline std::string SpecOf(const ProposerMethod& method, const ServiceProcess& proposer) {
  return "--proposer=" + method.name + "=static:" + proposer.address();
}

inline auto EveryMethod() {
  return ::testing::Values(
      ProposerMethod{.name = "ngram"}, ProposerMethod{.name = "suffix"},
      ProposerMethod{.name = "draft", .flags = {"--model=" + testing::SourcePath("deploy/demo/draft"), "--threads=1"}},
      ProposerMethod{.name = "eagle3",
                     .flags = {"--model=" + testing::SourcePath("deploy/demo/eagle3"),
                               "--target=" + testing::SourcePath("deploy/demo/target"), "--threads=1"}});
}

inline std::string NameOf(const ::testing::TestParamInfo<ProposerMethod>& info) { return info.param.name; }

inline void PrintTo(const ProposerMethod& method, std::ostream* out) { *out << method.name; }

}  // namespace foretoken
