// Errors of the template's author: where and what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_files.h"
#include "text/chat_template.h"

namespace sluice::text {
namespace {

using nlohmann::ordered_json;

std::string error_of(const std::string& source) {
  const auto parsed = ChatTemplate::parse(source);
  return parsed.ok() ? "" : parsed.status().message();
}

std::string render_error(const std::string& source, const ordered_json& context = ordered_json::object()) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return "does not parse: " + parsed.status().message();
  const auto rendered = (*parsed)->render(context);
  return rendered.ok() ? "" : rendered.status().message();
}

TEST(JinjaSyntax, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of("ab\n  {{ 1 + }}"), "chat template, line 2, column 10: unexpected '}}'");
  EXPECT_EQ(error_of("{% if x %}"),
            "chat template, line 1, column 11: the template ends before '{% endif %}'");
  EXPECT_EQ(error_of("é\r\n{% nope %}"), "chat template, line 2, column 4: unknown tag 'nope'");
  EXPECT_EQ(error_of("\n\n{{ 'a }}"), "chat template, line 3, column 4: a string without its closing quote");
  EXPECT_EQ(error_of("{# a"), "chat template, line 1, column 1: a comment without '#}'");
  EXPECT_EQ(error_of("{{ a $ }}"), "chat template, line 1, column 6: unexpected character '$'");
  EXPECT_EQ(error_of("{{ (1] }}"), "chat template, line 1, column 6: unexpected ']', expected ')'");
  EXPECT_EQ(error_of("{{ 99999999999999999999 }}"),
            "chat template, line 1, column 4: '99999999999999999999' is not an integer of 64 bits");
  EXPECT_THAT(error_of("{% include 'x' %}"), testing::HasSubstr("a chat template has none"));
  EXPECT_THAT(error_of("{% for a in b %}{% endif %}"), testing::HasSubstr("unknown tag 'endif'"));
  EXPECT_THAT(error_of("{% raw %}x"), testing::HasSubstr("without {% endraw %}"));
}

TEST(JinjaSyntax, RenderErrorsNameTheLine) {
  EXPECT_EQ(render_error("a\n{{ x.y }}"), "chat template, line 2: 'x' is undefined");
  EXPECT_EQ(render_error("{{ m.a.b }}", {{"m", ordered_json::object()}}),
            "chat template, line 1: 'dict object' has no attribute 'a'");
  EXPECT_EQ(render_error("\n{{ 'a' + 1 }}"),
            "chat template, line 2: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(render_error("{{ x|nope }}"), "chat template, line 1: No filter named 'nope'.");
  EXPECT_EQ(render_error("{{ [] is nope }}"), "chat template, line 1: No test named 'nope'.");
  EXPECT_EQ(render_error("{{ d.update({}) }}", {{"d", ordered_json::object()}}),
            "chat template, line 1: access to attribute 'update' of 'dict' object is unsafe.");
  EXPECT_EQ(render_error("{{ ''.__class__() }}"),
            "chat template, line 1: access to attribute '__class__' of 'str' object is unsafe.");
}

TEST(JinjaSyntax, RaisedTextComesOutAsItIs) {
  EXPECT_EQ(render_error("\n\n{{ raise_exception('Roles must alternate: ' ~ 1) }}"),
            "Roles must alternate: 1");
}

TEST(JinjaSyntax, ContextMustBeAnObject) {
  EXPECT_EQ(render_error("x", ordered_json::array()), "a chat template's context must be an object");
}

// strings with bytes that are no UTF-8 come out repaired.
TEST(JinjaSyntax, InvalidUtf8InTheContextIsRepaired) {
  const auto parsed = ChatTemplate::parse("{{ s|length }}{{ s }}\xFF");
  ASSERT_TRUE(parsed.ok());
  const auto rendered = (*parsed)->render({{"s", "a\xFF\xE4\xBD"}});
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(*rendered, "3a\uFFFD\uFFFD\uFFFD");
}

}  // namespace
}  // namespace sluice::text
