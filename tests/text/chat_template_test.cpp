// Where a checkpoint's template comes from.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_files.h"

namespace sluice::text {
namespace {

using nlohmann::ordered_json;

std::string render(const TemporaryFolder& folder, const ordered_json& context = ordered_json::object()) {
  const auto loaded = ChatTemplate::load(folder.path());
  if (!loaded.ok()) return "ERROR " + loaded.status().message();
  const auto rendered = (*loaded)->render(context);
  return rendered.ok() ? *rendered : "ERROR " + rendered.status().message();
}

TEST(ChatTemplate, FileBeforeConfig) {
  const TemporaryFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": "config", "bos_token": "<s>"})");
  EXPECT_EQ(render(folder), "config");
  folder.write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(render(folder), "file <s>");
}

TEST(ChatTemplate, ListOfNamedTemplates) {
  const TemporaryFolder folder;
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d{{ eos_token }}"}],
                   "eos_token": {"content": "</s>", "lstrip": false}, "bos_token": null})");
  EXPECT_EQ(render(folder), "d</s>");
  EXPECT_EQ(render(folder, {{"eos_token", "mine"}}), "dmine");
}

TEST(ChatTemplate, MissingOrWrong) {
  const TemporaryFolder folder;
  EXPECT_EQ(ChatTemplate::load(folder.path()).status().code(), Code::not_found);
  folder.write("tokenizer_config.json", "{}");
  EXPECT_EQ(ChatTemplate::load(folder.path()).status().code(), Code::not_found);
  folder.write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(render(folder), testing::HasSubstr("chat_template is 5; it must be a string or a list"));
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_THAT(render(folder), testing::HasSubstr("no entry {\"name\": \"default\"}"));
  folder.write("tokenizer_config.json", R"({"chat_template": "{% if %}"})");
  EXPECT_THAT(render(folder), testing::HasSubstr("tokenizer_config.json: chat template, line 1, column 7"));
  folder.write("tokenizer_config.json", "[]");
  EXPECT_THAT(render(folder), testing::HasSubstr("must be an object"));
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  const auto parsed = ChatTemplate::parse("{{ x | tojson }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*(*parsed)->render(ordered_json::parse(R"({"x": {"z": 1, "a": [1.0, 1e2, "é"]}})")),
            "{\"z\": 1, \"a\": [1.0, 100.0, \"é\"]}");
}

TEST(ChatTemplate, DemoModelsReference) {
  const auto model = demo_model();
  if (!model) GTEST_SKIP() << "no demo model: set SLUICE_SHARED";
  const auto loaded = ChatTemplate::load(*model);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto reference = ordered_json::parse(read_text(*model + "/reference.json"));
  size_t compared = 0;
  for (const auto& entry : reference.is_array() ? reference : reference["cases"]) {
    const auto prompt = (*loaded)->render({{"messages", entry["messages"]}, {"add_generation_prompt", true}});
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    EXPECT_EQ(*prompt, entry["prompt"].get<std::string>());
    ++compared;
  }
  EXPECT_GE(compared, 6u);
}

}  // namespace
}  // namespace sluice::text
