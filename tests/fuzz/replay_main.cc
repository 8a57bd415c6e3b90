// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on every file of the given folders, in the order of their names. A target ends the process when an
// input breaks a rule, so the last line then names the input. Exits 1 if a folder has no file.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);  // few targets have it

int main(int argc, char** argv) {
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    if (paths.empty()) return std::fprintf(stderr, "%s: expected inputs, got none\n", argv[i]), 1;
    for (const std::filesystem::path& path : paths) {
      std::fprintf(stderr, "%s\n", path.c_str());
      std::ifstream file(path, std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    }
  }
  return 0;
}
