// JSON from outside: every kind of bad text is an error that names where it came from, never an exception.
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using testing::HasSubstr;

std::string error(std::string_view text, JsonLimits limits = {}) {
  const auto parsed = parse_json(text, "config.json", limits);
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), Code::invalid_argument);
  return parsed.status().message();
}

TEST(Json, ParsesWhatIsValid) {
  const auto parsed = parse_json(R"({"a": [1, 2.5, "x"]})", "config.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ((*parsed)["a"][0], 1);
}

TEST(Json, SyntaxErrorsNameTheSourceAndThePlace) {
  EXPECT_THAT(error(R"({"a": )"), HasSubstr("config.json: not valid JSON: parse error at line 1"));
  EXPECT_THAT(error(""), HasSubstr("config.json: not valid JSON"));
  EXPECT_THAT(error("{\"a\": \"\xff\"}"), HasSubstr("config.json: not valid JSON"));
}

TEST(Json, ANumberBeyondDoubleIsAnErrorToo) {
  EXPECT_THAT(error(R"({"rope_theta": 1e400})"), HasSubstr("config.json: not valid JSON: number overflow"));
}

TEST(Json, DepthAndSizeAreBounded) {
  EXPECT_EQ(error(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_THAT(error(std::string(65, '[') + std::string(65, ']')),
              HasSubstr("nested 65 deep, the limit is 64"));
  EXPECT_THAT(error(std::string(1 << 20, '[')), HasSubstr("the limit is 64"));
  EXPECT_EQ(error(R"("[[[[")", {.depth = 1}), "");
  EXPECT_THAT(error("[1, 2]", {.bytes = 5}), HasSubstr("6 bytes of JSON, the limit is 5"));
}

}  // namespace
}  // namespace sluice
