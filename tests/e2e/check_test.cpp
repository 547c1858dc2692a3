// `sluice check` over models, types, ranks and fabrics: what the README tells a user to run.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "process.h"

namespace sluice::e2e {
namespace {

// The demo and the small oracles are in the repository; the larger one only beside it.
std::string directory_of(const std::string& name) {
  if (name == "demo") return demo_model();
  const std::string kept = SLUICE_SOURCE_DIR "/tests/data/oracle/" + name;
  if (std::filesystem::exists(kept)) return kept;
  const std::string shared = shared_folder();
  return shared.empty() ? "" : shared + "/oracle/" + name;
}

Finished check(const std::string& directory, const std::string& dtype, int ranks, const std::string& fabric,
               std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {sluice_program(),
                                        "check",
                                        directory,
                                        "--reference",
                                        directory + "/reference.json",
                                        "--dtype",
                                        dtype,
                                        "--data-parallel-size",
                                        std::to_string(ranks),
                                        "--fabric",
                                        fabric};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments, seconds(300));
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

class CheckTest : public testing::TestWithParam<std::string> {};

TEST_P(CheckTest, PassesInBothTypesOnAnyRanksOverAnyFabric) {
  const std::string directory = directory_of(GetParam());
  if (directory.empty()) GTEST_SKIP() << GetParam() << " is not here: it lies in ../shared/oracle";
  for (const char* dtype : {"float32", "bfloat16"}) {
    for (const int ranks : {1, 2, 4}) {
      for (const char* fabric : {"local", "tcp"}) {
        SCOPED_TRACE(testing::Message() << dtype << ", " << ranks << " ranks, " << fabric);
        const Finished finished = check(directory, dtype, ranks, fabric);
        EXPECT_EQ(finished.status, 0) << finished.output;
        EXPECT_EQ(last_line(finished.output), "CHECK PASS") << finished.output;
      }
    }
  }
}

TEST_P(CheckTest, DeterministicLogitsAreBitEqualOnAnyRanks) {
  const std::string directory = directory_of(GetParam());
  if (directory.empty()) GTEST_SKIP() << GetParam() << " is not here: it lies in ../shared/oracle";
  for (const char* dtype : {"float32", "bfloat16"}) {
    std::set<std::string> hashes;
    for (const int ranks : {1, 2, 4}) {
      for (const char* fabric : {"local", "tcp"}) {
        SCOPED_TRACE(testing::Message() << dtype << ", " << ranks << " ranks, " << fabric);
        const Finished finished = check(directory, dtype, ranks, fabric, {"--deterministic", "--json"});
        ASSERT_EQ(finished.status, 0) << finished.output;
        const size_t begin = finished.output.find('{');
        ASSERT_NE(begin, std::string::npos) << finished.output;
        const auto report = nlohmann::json::parse(finished.output.substr(begin), nullptr, false);
        ASSERT_TRUE(report.is_object()) << finished.output;
        std::string all;
        for (const auto& item : report["cases"]) all += item["logits_hash"].get<std::string>() + " ";
        EXPECT_GE(report["cases"].size(), 3u);
        hashes.insert(all);
      }
    }
    EXPECT_EQ(hashes.size(), 1u) << dtype << ": logits differ between numbers of ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CheckTest,
                         testing::Values("demo", "qwen3-moe-a", "qwen3-moe-a-fp8", "qwen3-moe-b"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A check that cannot fail is no check: a reference with other logits must be refused.
TEST(CheckCommand, FailsOnAWrongReference) {
  const std::string directory = directory_of("qwen3-moe-a-fp8");
  if (directory.empty()) GTEST_SKIP() << "qwen3-moe-a-fp8 is not here";
  const std::string other = directory_of("qwen3-moe-a");
  const Finished finished = run(
      {sluice_program(), "check", directory, "--reference", other + "/reference.json", "--dtype", "float32"},
      seconds(120));
  EXPECT_EQ(finished.status, 1) << finished.output;
  EXPECT_EQ(last_line(finished.output).rfind("CHECK FAIL: ", 0), 0u) << finished.output;
}

TEST(CheckCommand, RefusesMoreRanksThanExperts) {
  const std::string directory = directory_of("qwen3-moe-a-fp8");
  if (directory.empty()) GTEST_SKIP() << "qwen3-moe-a-fp8 is not here";
  const Finished finished = check(directory, "float32", 9, "local");
  EXPECT_NE(finished.status, 0);
  EXPECT_NE(finished.output.find("9"), std::string::npos) << finished.output;
  EXPECT_NE(finished.output.find("8 experts"), std::string::npos) << finished.output;
}

}  // namespace
}  // namespace sluice::e2e
