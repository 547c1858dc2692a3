#include "server/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes.h"

namespace sluice::server {
namespace {

using engine::Finish;
using testing::HasSubstr;

engine::Output output(int index, int32_t token, Finish finish = Finish::none) {
  engine::Output result;
  result.index = index;
  result.token = token;
  result.finish = finish;
  if (finish == Finish::stop) result.stop_token = token;
  return result;
}

class CompletionTest : public testing::Test {
 protected:
  FakeTokenizer tokenizer_{{"Hello", " world", "<|end|>"}};
  ParsedRequest request_;
};

TEST_F(CompletionTest, TextOfTokensWithoutTheStopToken) {
  Completion completion(&tokenizer_, request_);
  EXPECT_EQ(completion.feed(output(0, 256)).text, "Hello");
  EXPECT_EQ(completion.feed(output(1, 257)).text, " world");
  EXPECT_EQ(completion.feed(output(2, 'x', Finish::stop)).text, "");
  EXPECT_TRUE(completion.finished());
  EXPECT_EQ(completion.finish_reason(), "stop");
  EXPECT_EQ(completion.tokens(), 3);
}

TEST_F(CompletionTest, TheLastTokenOfALengthLimitIsShown) {
  Completion completion(&tokenizer_, request_);
  EXPECT_EQ(completion.feed(output(0, 256, Finish::length)).text, "Hello");
  EXPECT_EQ(completion.finish_reason(), "length");
}

TEST_F(CompletionTest, AStopStringOnTheLastTokenIsAStop) {
  request_.stop = {"lo"};
  Completion completion(&tokenizer_, request_);
  EXPECT_EQ(completion.feed(output(0, 256, Finish::length)).text, "Hel");
  EXPECT_EQ(completion.finish_reason(), "stop");
}

TEST_F(CompletionTest, HeldTextComesOutAtTheEnd) {
  request_.stop = {"lol"};
  Completion completion(&tokenizer_, request_);
  EXPECT_EQ(completion.feed(output(0, 256)).text, "Hel");
  EXPECT_EQ(completion.feed(output(1, 258, Finish::stop)).text, "lo");
  EXPECT_EQ(completion.finish_reason(), "stop");
}

TEST_F(CompletionTest, HalfACharacterAtTheEndIsReplaced) {
  Completion completion(&tokenizer_, request_);
  EXPECT_EQ(completion.feed(output(0, 0xc3)).text, "");
  EXPECT_EQ(completion.feed(output(1, 0xa9)).text, "é");
  EXPECT_EQ(completion.feed(output(2, 0xc3, Finish::length)).text, "\xEF\xBF\xBD");
}

TEST_F(CompletionTest, NothingAfterTheEnd) {
  request_.stop = {"Hello"};
  Completion completion(&tokenizer_, request_);
  completion.feed(output(0, 256));
  EXPECT_TRUE(completion.finished());
  EXPECT_TRUE(completion.ended_by_stop_string());
  EXPECT_EQ(completion.feed(output(1, 257)).text, "");
  EXPECT_EQ(completion.tokens(), 1);
}

TEST_F(CompletionTest, ARepeatedTokenIsGivenOnce) {
  Completion completion(&tokenizer_, request_);
  completion.feed(output(0, 256));
  EXPECT_EQ(completion.feed(output(0, 256)).text, "");
  EXPECT_EQ(completion.feed(output(1, 257)).text, " world");
  EXPECT_EQ(completion.tokens(), 2);
}

TEST_F(CompletionTest, AMissingTokenIsAnError) {
  Completion completion(&tokenizer_, request_);
  completion.feed(output(0, 256));
  completion.feed(output(2, 256));
  ASSERT_TRUE(completion.error());
  EXPECT_EQ(completion.error()->status, 500);
  EXPECT_THAT(completion.error()->message, HasSubstr("token 2 where 1 was next"));
}

TEST_F(CompletionTest, ErrorsOfTheEngine) {
  for (const auto& [error, status] :
       {std::pair(unavailable("rank 1 is lost"), 503), std::pair(internal_error("oops"), 500)}) {
    Completion completion(&tokenizer_, request_);
    engine::Output failed;
    failed.finish = Finish::error;
    failed.error = error;
    completion.feed(failed);
    ASSERT_TRUE(completion.error());
    EXPECT_EQ(completion.error()->status, status);
    EXPECT_EQ(completion.error()->message, error.message());
  }
}

TEST_F(CompletionTest, WithoutATokenizerThereAreIds) {
  Completion completion(nullptr, request_);
  const Completion::Delta delta = completion.feed(output(0, 7));
  EXPECT_EQ(delta.text, "");
  EXPECT_EQ(delta.ids, std::vector<int32_t>{7});
}

}  // namespace
}  // namespace sluice::server
