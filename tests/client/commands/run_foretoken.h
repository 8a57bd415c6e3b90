// SPDX-License-Identifier: Apache-2.0
// Runs the `foretoken` binary as a user does.
//
//   FakeGenerationService service;
//   EXPECT_EQ(RunAgainst(service, "generate", "--max_tokens=5 abc 2>/dev/null").out, "abcab\n");
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/fakes/fake_generation_service.h"

namespace foretoken::client {

struct Outcome {
  int exit_code = -1;
  std::string out;  // standard output; with 2>&1 in the command, standard error too
};

// Runs `foretoken ARGUMENTS` in a shell.
inline Outcome RunShell(const std::string& arguments) {
  std::FILE* pipe = popen(absl::StrCat(FORETOKEN_BINARY, " ", arguments).c_str(), "r");
  Outcome outcome;
  char buffer[4096];
  while (const size_t length = std::fread(buffer, 1, sizeof(buffer), pipe)) outcome.out.append(buffer, length);
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

inline Outcome RunAgainst(const testing::FakeGenerationService& service, const std::string& command,
                          const std::string& arguments) {
  return RunShell(absl::StrCat(command, " --target=", service.target(), " ", arguments));
}

}  // namespace foretoken::client
