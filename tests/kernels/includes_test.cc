// SPDX-License-Identifier: Apache-2.0
// The includes of kernels/: nothing of ours above it, no Abseil and no gRPC, because nvcc and the programs for a GPU
// see kernels alone. If no file includes such a header, none includes one indirectly. If this test fails, the build
// with CUDA breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace foretoken::kernels {
namespace {

// Returns a source's includes, except those of kernels/, the C++ library, the system, Highway, CUDA and NCCL.
std::vector<std::string> ForeignIncludes(std::istream& source) {
  static const std::regex include(R"(\s*#\s*include\s*[<"]([^>"]+)[>"].*)");
  static const std::regex known(R"((kernels|hwy|sys)/.+|[a-z_]+(\.h)?)");
  std::vector<std::string> foreign;
  std::smatch match;
  for (std::string line; std::getline(source, line);) {
    if (std::regex_match(line, match, include) && !std::regex_match(match[1].str(), known)) foreign.push_back(match[1]);
  }
  return foreign;
}

TEST(Includes, OfKernelsAreOfTheGroundFloorAlone) {
  int num_cuda_sources = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(FORETOKEN_SOURCE_DIR "/kernels")) {
    if (!entry.is_regular_file()) continue;
    std::ifstream source(entry.path());
    EXPECT_THAT(ForeignIncludes(source), ::testing::IsEmpty()) << entry.path();
    if (entry.path().extension() == ".cu") ++num_cuda_sources;
  }
  EXPECT_GT(num_cuda_sources, 0);
}

TEST(Includes, ThatAreForeignAreFound) {
  std::istringstream source(
      "#include \"absl/strings/string_view.h\"\n"
      "#include <cstdint>\n"
      "#include <sys/mman.h>\n"
      "# include <grpcpp/grpcpp.h>  // why\n"
      "#include \"kernels/ops.h\"\n"
      "#include \"common/base/status_macros.h\"\n"
      "#include \"hwy/highway.h\"\n");
  EXPECT_THAT(ForeignIncludes(source),
              ::testing::ElementsAre("absl/strings/string_view.h", "grpcpp/grpcpp.h", "common/base/status_macros.h"));
}

}  // namespace
}  // namespace foretoken::kernels
