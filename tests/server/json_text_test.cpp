#include "server/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice::server {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view body) {
  const auto result = parse_body(body);
  return result.ok() ? "no error" : result.status().message();
}

TEST(ParseBody, KeepsTheOrderOfKeysAndEveryKindOfValue) {
  const std::string text =
      R"({"z":[1,-2,3.5,true,false,null,"x",{}],"a":{"y":[],"b":{"c":18446744073709551615}}})";
  const auto result = parse_body(text);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->dump(), text);
}

TEST(ParseBody, TakesTheLastOfARepeatedKey) {
  const auto result = parse_body(R"({"a":{"x":1},"b":2,"a":3})");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->dump(), R"({"a":3,"b":2})");
}

TEST(ParseBody, SaysWhatIsWrong) {
  EXPECT_THAT(error_of(""), HasSubstr("JSON"));
  EXPECT_THAT(error_of("{\"a\": }"), HasSubstr("line 1, column 7"));
  EXPECT_THAT(error_of("{} x"), HasSubstr("parse error"));
  EXPECT_THAT(error_of("\"\xff\""), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of("\"\xc0\xaf\""), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of(R"("\ud800")"), HasSubstr("surrogate"));
  EXPECT_THAT(error_of(R"("\udc00x")"), HasSubstr("surrogate"));
  EXPECT_THAT(error_of("1e999"), HasSubstr("number overflow"));
  EXPECT_THAT(error_of("NaN"), HasSubstr("parse error"));
  EXPECT_THAT(error_of(std::string("{\"a\":\0}", 7)), HasSubstr("parse error"));
}

TEST(ParseBody, BoundsDepthWithoutRecursion) {
  const std::string just(64, '[');
  EXPECT_TRUE(parse_body(just + std::string(64, ']')).ok());
  EXPECT_THAT(error_of(std::string(1'000'000, '[')), HasSubstr("nested more than 64 deep"));
}

// Keys are kept in a list: without a limit, one object of a million keys would cost hours.
TEST(ParseBody, BoundsTheKeysOfAnObject) {
  std::string body = "{";
  for (int i = 0; i < 513; ++i) body += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  EXPECT_THAT(error_of(body + "}"), HasSubstr("more than 512 keys"));
}

TEST(ParseBody, ManySmallObjectsCostLittle) {
  std::string body = "[{}";
  for (int i = 0; i < 200'000; ++i) body += ",{}";
  const auto result = parse_body(body + "]");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->size(), 200'001u);
}

TEST(JsonString, EscapesAndReplaces) {
  EXPECT_EQ(json_string("a\"\\\n\x01é"), "\"a\\\"\\\\\\n\\u0001é\"");
  EXPECT_EQ(json_string("\xff!"), "\"\xEF\xBF\xBD!\"");
}

}  // namespace
}  // namespace sluice::server
