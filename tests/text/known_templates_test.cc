// Templates against those that were published: indented anew they are the same, edited anywhere they are not.

#include "text/known_templates.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/whole_file.h"
#include "tests/shared_files.h"
#include "tests/source_tree.h"

namespace fathom::text {
namespace {

std::string demo_template() {
  const auto config = json::parse(
      read_whole_file(source_path("models/demo/tokenizer_config.json"), 1 << 20).value());
  return (*config)["chat_template"].get<std::string>();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::optional<UnpublishedPart> demo_part(const std::string& source) {
  return unpublished_part(ChatFormat::kV31, source);
}

TEST(KnownTemplates, have_the_published_ones) {
  const std::string folder = "reference-data/chat-templates/";
  const std::pair<const char*, ChatFormat> kFiles[] = {
      {"deepseek-v3.jinja", ChatFormat::kV3},
      {"deepseek-v3-tools.jinja", ChatFormat::kV3Tools},
      {"deepseek-r1.jinja", ChatFormat::kR1},
      {"deepseek-r1-tools.jinja", ChatFormat::kR1Tools},
      {"deepseek-v31.jinja", ChatFormat::kV31}};
  for (const auto& [file, format] : kFiles) {
    if (!is_shared(folder + file)) GTEST_SKIP() << not_shared(folder + file);
    const std::string source = read_whole_file(shared_path(folder + file), 1 << 20).value();
    EXPECT_FALSE(unpublished_part(format, source)) << file;
    // One more word anywhere in what is printed is seen.
    const size_t last_literal = source.rfind("'<｜");
    ASSERT_NE(last_literal, std::string::npos);
    std::string edited = source;
    edited.insert(last_literal + 1, "Acme ");
    const auto part = unpublished_part(format, edited);
    ASSERT_TRUE(part) << file;
    EXPECT_NE(part->text.find("Acme"), std::string::npos) << part->text;
  }
}

TEST(KnownTemplates, have_the_demo_models) { EXPECT_FALSE(demo_part(demo_template())); }

TEST(KnownTemplates, do_not_mind_how_a_template_is_indented) {
  std::string indented;
  for (const char c : demo_template()) {
    indented += c;
    if (c == '\n') indented += "    ";
  }
  EXPECT_FALSE(demo_part(indented));
  EXPECT_FALSE(demo_part(replaced(demo_template(), "{%- for message in messages -%}",
                                  "{# turns #}\n{%  for message in  messages %}\n")));
}

TEST(KnownTemplates, mind_every_edit) {
  const std::string whole = demo_template();
  const auto with_system =
      demo_part(replaced(whole, "namespace(system=''", "namespace(system='You are Acme.'"));
  ASSERT_TRUE(with_system);
  EXPECT_EQ(with_system->line, 3);
  EXPECT_NE(with_system->text.find("You are Acme."), std::string::npos) << with_system->text;
  EXPECT_TRUE(demo_part(replaced(whole, "You have access to", "You may use")));
  EXPECT_TRUE(demo_part(replaced(whole, "the following tools:\\n", "the  following tools:\\n")))
      << "white space within a literal is printed";
  const auto with_more = demo_part(whole + "{{ 'more' }}");
  ASSERT_TRUE(with_more);
  EXPECT_EQ(with_more->text, "{{ 'more' }}");
  const auto with_less = demo_part(whole.substr(0, whole.rfind("{%")));
  ASSERT_TRUE(with_less);
  EXPECT_EQ(with_less->text, "");
}

TEST(KnownTemplates, show_a_part_that_is_long_or_broken_in_one_short_line) {
  const auto part = demo_part("{{ '" + std::string(300, 'x') + "\n");
  ASSERT_TRUE(part);
  EXPECT_LE(part->text.size(), 110U);
  EXPECT_EQ(part->text.find('\n'), std::string::npos);
  for (const char* broken : {"{", "{{", "{%-", "{{ '\\", "{#", "{% '"}) {
    EXPECT_TRUE(demo_part(broken)) << broken;
  }
}

TEST(KnownTemplates, know_all_formats_but_those_of_kimi_and_v32) {
  for (const ChatFormatTraits& format : chat_formats()) {
    const bool is_known = format.format != ChatFormat::kKimiK2 &&
                          format.format != ChatFormat::kMoonlight &&
                          format.format != ChatFormat::kV32;  // which has none
    EXPECT_EQ(has_published_templates(format.format), is_known) << format.name;
  }
  EXPECT_FALSE(unpublished_part(ChatFormat::kKimiK2, "anything"));
}

}  // namespace
}  // namespace fathom::text
