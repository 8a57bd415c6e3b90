// SPDX-License-Identifier: Apache-2.0
// Makes a target's program its own compile process, as the verifier's program is (verifier_service/grammar/
// compile_process.h).
#include <cstdlib>
#include <cstring>

#include "verifier_service/grammar/compile_process.h"

// Called before the search begins, and before the first input of a corpus.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const bool serves = *argc == 2 && std::strcmp((*argv)[1], foretoken::verifier::kServeGrammarsArgument) == 0;
  if (serves) std::_Exit(foretoken::verifier::ServeGrammars());
  return 0;
}
