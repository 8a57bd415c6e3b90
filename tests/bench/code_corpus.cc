// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/code_corpus.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/tokenizer.h"

namespace foretoken::bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileBytes = 200'000;

std::vector<fs::path> SourcesUnder(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, error), end;
       it != end && !error; it.increment(error)) {
    const std::string extension = it->path().extension();
    if (it->is_directory() && it->path().filename() == "build") it.disable_recursion_pending();
    if ((extension == ".py" || extension == ".h" || extension == ".cc" || extension == ".hpp") &&
        it->is_regular_file(error) && it->file_size(error) <= kMaxFileBytes) {
      paths.push_back(it->path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string WithoutSomeLines(const std::string& text, std::mt19937& random) {
  std::string changed;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    if (random() % 8 != 0) changed.append(text, begin, end - begin);
    begin = end;
  }
  return changed;
}

}  // namespace

absl::StatusOr<CodeCorpus> LoadCodeCorpus(int64_t num_tokens) {
  const fs::path source_folder = FORETOKEN_SOURCE_DIR;
  FT_ASSIGN_OR_RETURN(const tokenizer::Tokenizer tokenizer,
                      tokenizer::Tokenizer::Load(source_folder / "deploy" / "demo" / "target"));
  std::vector<fs::path> paths;
  std::vector<fs::path> folders = {source_folder, "/usr/include"};
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/usr/lib", error)) {
    if (entry.path().filename().string().starts_with("python3")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    const std::vector<fs::path> sources = SourcesUnder(folder);
    paths.insert(paths.end(), sources.begin(), sources.end());
  }
  std::mt19937 random(1);
  std::shuffle(paths.begin(), paths.end(), random);
  CodeCorpus corpus;
  int32_t num_rounds = 0;
  for (; corpus.num_tokens < num_tokens; ++num_rounds) {
    const int64_t num_tokens_before = corpus.num_tokens;
    for (const fs::path& path : paths) {
      if (corpus.num_tokens >= num_tokens) break;
      absl::StatusOr<std::string> text = base::ReadFile(path);
      if (!text.ok() || text->empty()) continue;
      if (num_rounds > 0) *text = WithoutSomeLines(*text, random);
      absl::StatusOr<std::vector<int32_t>> tokens = tokenizer.Encode(*text);
      if (!tokens.ok() || tokens->empty()) continue;
      corpus.num_tokens += static_cast<int64_t>(tokens->size());
      corpus.files.push_back(*std::move(tokens));
    }
    if (corpus.num_tokens == num_tokens_before) return absl::NotFoundError("no sources to measure on");
  }
  corpus.description = absl::StrCat(corpus.num_tokens, " tokens of ", corpus.files.size(), " of ", paths.size(),
                                    " source files, ", num_rounds - 1, " times repeated with changes");
  return corpus;
}

}  // namespace foretoken::bench
