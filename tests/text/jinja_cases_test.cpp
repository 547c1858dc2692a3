// Templates and what Jinja2, set up as transformers does it, renders (tests/data/text/generate/README.md).
#include <gtest/gtest.h>

#include "test_files.h"
#include "text/chat_template.h"

namespace sluice::text {
namespace {

using nlohmann::ordered_json;

// Where the reference has the text of raise_exception, ours must be the same.
void compare(const std::string& source, const ordered_json& context, const ordered_json& expected,
             const std::string& name) {
  const auto parsed = ChatTemplate::parse(source);
  std::string got;
  bool ok = false;
  if (parsed.ok()) {
    const auto rendered = (*parsed)->render(context);
    ok = rendered.ok();
    got = ok ? *rendered : rendered.status().message();
  } else {
    got = parsed.status().message();
  }
  if (expected.contains("want")) {
    EXPECT_TRUE(ok) << name << "\n" << got;
    EXPECT_EQ(got, expected["want"].get<std::string>()) << name;
  } else {
    EXPECT_FALSE(ok) << name << "\n" << got;
    if (expected["error"].is_string()) {
      EXPECT_EQ(got, expected["error"].get<std::string>()) << name;
    }
  }
}

void compare_lines(const std::string& file, size_t least) {
  const auto lines = read_lines(data_path(file));
  ASSERT_GT(lines.size(), least);
  const ordered_json& context = lines[0]["context"];
  for (size_t i = 1; i < lines.size(); ++i) {
    const auto source = lines[i]["template"].get<std::string>();
    compare(source, context, lines[i], source);
  }
}

TEST(JinjaCases, Expressions) { compare_lines("expressions.jsonl", 1300); }
TEST(JinjaCases, WhiteSpace) { compare_lines("whitespace.jsonl", 390); }

TEST(JinjaCases, TemplatesOverConversations) {
  const auto lines = read_lines(data_path("templates.jsonl"));
  ASSERT_GT(lines.size(), 200u);
  for (const auto& line : lines) {
    const std::string source = read_text(data_path("templates/" + line["template"].get<std::string>()));
    ASSERT_FALSE(source.empty());
    compare(source, line["context"], line, line["name"].get<std::string>());
  }
}

}  // namespace
}  // namespace sluice::text
