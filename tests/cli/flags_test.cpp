// The options that commands share, unknown names, and the environment.
#include "cli/flags.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "cli/environment.h"
#include "cli/front_flags.h"
#include "cli/suggest.h"
#include "support/temporary_directory.h"

namespace sluice::cli {
namespace {

class FlagsTest : public ::testing::Test {
 protected:
  // The error of parsing or checking `arguments`; empty when they are right.
  std::string refusal(std::vector<std::string> arguments, int rank = 0) {
    flags_ = EngineFlags();
    CLI::App app;
    add_engine_flags(app, flags_);
    arguments.insert(arguments.begin(), model_.path());
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      app.parse(arguments);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    settings_ = to_rank_settings(flags_, rank);
    return settings_.ok() ? "" : settings_.status().message();
  }

  test::TemporaryDirectory model_;
  EngineFlags flags_;
  Result<engine::RankSettings> settings_ = internal_error("nothing parsed");
};

TEST_F(FlagsTest, TurnIntoSettings) {
  EXPECT_EQ(refusal({"--dtype",
                     "float32",
                     "--data-parallel-size",
                     "4",
                     "--fabric",
                     "tcp",
                     "--deterministic",
                     "--max-model-len",
                     "100",
                     "--max-num-seqs",
                     "7",
                     "--max-num-batched-tokens",
                     "33",
                     "--block-size",
                     "8",
                     "--kv-blocks",
                     "99",
                     "--threads",
                     "3",
                     "--step-deadline-ms",
                     "250"},
                    2),
            "");
  EXPECT_EQ(settings_->model_directory, model_.path());
  EXPECT_EQ(settings_->rank, 2);
  EXPECT_EQ(settings_->ranks, 4);
  EXPECT_EQ(settings_->fabric, "tcp");
  EXPECT_EQ(settings_->dtype, DType::float32);
  EXPECT_TRUE(settings_->deterministic);
  EXPECT_EQ(settings_->threads, 3);
  EXPECT_EQ(settings_->kv_blocks, 99);
  EXPECT_EQ(settings_->engine.max_model_len, 100);
  EXPECT_EQ(settings_->engine.max_num_seqs, 7);
  EXPECT_EQ(settings_->engine.max_num_batched_tokens, 33);
  EXPECT_EQ(settings_->engine.block_size, 8);
  EXPECT_EQ(settings_->engine.step_deadline, milliseconds(250));
}

TEST_F(FlagsTest, GoThroughAChildsArgumentsUnchanged) {
  ASSERT_EQ(refusal({"--dtype", "bfloat16", "--data-parallel-size", "2", "--fabric", "tcp", "--deterministic",
                     "--max-num-seqs", "5", "--kv-blocks", "12"}),
            "");
  const std::vector<std::string> first = to_arguments(flags_);
  EngineFlags parsed;
  CLI::App app;
  add_engine_flags(app, parsed);
  std::vector<std::string> reversed(first.rbegin(), first.rend());
  app.parse(reversed);
  EXPECT_EQ(to_arguments(parsed), first);
  EXPECT_EQ(parsed.max_num_seqs, 5);
  EXPECT_EQ(parsed.fabric, "tcp");
  EXPECT_TRUE(parsed.deterministic);
}

TEST_F(FlagsTest, LocalIsTheFabricOfOneHost) {
  EXPECT_EQ(refusal({"--dtype", "float32"}), "");
  EXPECT_EQ(settings_->fabric, "local");
}

TEST_F(FlagsTest, RefuseWithOptionValueAndRange) {
  EXPECT_EQ(refusal({"--max-num-seqs", "0"}), "--max-num-seqs: '0' is not a whole number from 1 to 65536");
  EXPECT_EQ(refusal({"--max-num-seqs", "many"}),
            "--max-num-seqs: 'many' is not a whole number from 1 to 65536");
  EXPECT_EQ(refusal({"--threads", "1.5"}), "--threads: '1.5' is not a whole number from 0 to 1024");
  EXPECT_EQ(refusal({"--threads", "99999999999999999999"}),
            "--threads: '99999999999999999999' is not a whole number from 0 to 1024");
  EXPECT_EQ(refusal({"--data-parallel-size", "-1"}),
            "--data-parallel-size: '-1' is not a whole number from 1 to 4096");
  EXPECT_EQ(refusal({"--max-model-len", "1"}),
            "--max-model-len: '1' is not 0 or at least 2: a prompt and its output");
  EXPECT_EQ(refusal({"--dtype", "float16"}), "--dtype: 'float16' is not one of auto, bfloat16, float32");
  EXPECT_EQ(refusal({"--dtype", "float32", "--fabric", "ib"}),
            "--fabric: 'ib' is not one of local, tcp, efa, efa-direct");
  EXPECT_EQ(refusal({"--device", "tpu"}), "--device: 'tpu' is not cpu, the only device of this build");
  EXPECT_EQ(refusal({"--dtype", "float32", "--data-parallel-size", "2"}, 2),
            "rank 2 is not from 0 to 1 (--data-parallel-size 2)");
}

TEST_F(FlagsTest, AMissingModelIsNamed) {
  EngineFlags flags;
  flags.model = "/nowhere/at/all";
  EXPECT_EQ(to_rank_settings(flags, 0).status().message(),
            "MODEL: '/nowhere/at/all' is not a directory; it must be a checkpoint's");
}

TEST_F(FlagsTest, OtherProgramsWaysNameSluicesOwn) {
  EXPECT_EQ(refusal({"--dtype", "float32", "--tensor-parallel-size", "1", "--enable-expert-parallel"}), "");
  EXPECT_EQ(refusal({"--tensor-parallel-size", "8"}),
            "--tensor-parallel-size: '8' is not supported: Sluice keeps tensors whole and spreads experts "
            "over ranks; "
            "use --data-parallel-size");
  EXPECT_EQ(refusal({"--all2all-backend", "deepep_v2"}),
            "--all2all-backend: 'deepep_v2' is not supported: Sluice has one exchange of its own; choose "
            "what carries "
            "it with --fabric (local, tcp, efa, efa-direct)");
}

class FrontFlagsTest : public ::testing::Test {
 protected:
  server::FrontOptions parse(std::vector<std::string> arguments) {
    server::FrontOptions options;
    CLI::App app;
    add_front_flags(app, options);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
    return options;
  }
};

TEST_F(FrontFlagsTest, GoToAChildUnchangedAndKeysNotAsArguments) {
  const server::FrontOptions given =
      parse({"--host", "::1", "--port", "81", "--served-model-name", "m", "--api-key", "one", "--api-key",
             "two,three", "--max-body-bytes", "1000", "--drain-timeout", "7"});
  EXPECT_EQ(given.api_keys, (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(to_environment(given), std::vector<std::string>{"SLUICE_API_KEY=one,two,three"});
  const std::vector<std::string> arguments = to_arguments(given);
  ::setenv("SLUICE_API_KEY", "one,two,three", 1);
  const server::FrontOptions received = parse(arguments);
  ::unsetenv("SLUICE_API_KEY");
  EXPECT_EQ(to_arguments(received), arguments);
  EXPECT_EQ(received.api_keys, given.api_keys);
  EXPECT_EQ(received.port, 81);
  EXPECT_EQ(received.drain_timeout_seconds, 7);
  EXPECT_EQ(parse(arguments).api_keys.size(), 0u);
}

TEST_F(FrontFlagsTest, AnEmptyKeyIsRefused) {
  EXPECT_THROW(parse({"--api-key", ""}), CLI::ValidationError);
  EXPECT_THROW(parse({"--api-key", "a,,b"}), CLI::ValidationError);
}

TEST(Suggest, NamesTheNearestWithinReason) {
  const std::vector<std::string> known{"--max-num-seqs", "--max-model-len", "--fabric", "check", "serve"};
  EXPECT_EQ(suggestion("--max-num-seq", known), " (did you mean --max-num-seqs?)");
  EXPECT_EQ(suggestion("--frabic", known), " (did you mean --fabric?)");
  EXPECT_EQ(suggestion("--max-n", known), " (did you mean --max-num-seqs?)");
  EXPECT_EQ(suggestion("serv", known), " (did you mean serve?)");
  EXPECT_EQ(suggestion("--temperature", known), "");
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
}

TEST(Environment, UnknownVariablesAreRefused) {
  const auto apply = [](std::vector<std::string> entries) {
    std::vector<char*> environment;
    for (std::string& entry : entries) environment.push_back(entry.data());
    environment.push_back(nullptr);
    return apply_environment(environment.data()).message();
  };
  EXPECT_EQ(apply({"HOME=/root", "SLUICE_SHARED=/x", "NOT_SLUICE_X=1"}), "");
  EXPECT_EQ(apply({"SLUICE_LOG_LEVEL=warning"}), "");
  EXPECT_EQ(apply({"SLUICE_LOGLEVEL=debug"}),
            "unknown environment variable SLUICE_LOGLEVEL (did you mean SLUICE_LOG_LEVEL?); unset it");
  EXPECT_EQ(apply({"SLUICE_FABRIC_TCP_TRUE"}),
            "unknown environment variable SLUICE_FABRIC_TCP_TRUE; unset it");
  EXPECT_EQ(apply({"SLUICE_LOG_LEVEL=loud"}),
            "SLUICE_LOG_LEVEL: 'loud' is not one of debug, info, warning, error");
  EXPECT_EQ(apply({"SLUICE_LOG_LEVEL=info"}), "");
}

}  // namespace
}  // namespace sluice::cli
