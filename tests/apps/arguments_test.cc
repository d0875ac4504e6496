// Command lines of other servers, of files and of the environment, as this program's own.

#include "apps/common/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "apps/common/command_line.h"
#include "apps/common/foreign_flags.h"
#include "apps/flags/serve_flags.h"
#include "base/startup_error.h"
#include "tests/scratch_directory.h"

namespace fathom::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

// A program with the flags of `serve`; nothing is parsed.
struct ServeProgram {
  ServeProgram() { add_serve_flags(*app.add_subcommand("serve"), flags); }

  PreparedArguments prepare(const Words& words, std::vector<const char*> environment = {}) {
    environment.push_back(nullptr);
    Words all = {"serve"};
    all.insert(all.end(), words.begin(), words.end());
    return prepare_arguments(app, all, environment.data());
  }

  // Without "serve".
  Words words(const Words& given, std::vector<const char*> environment = {}) {
    Words out = prepare(given, std::move(environment)).words;
    out.erase(out.begin());
    return out;
  }

  std::string refusal(const Words& given, std::vector<const char*> environment = {}) {
    try {
      prepare(given, std::move(environment));
    } catch (const CommandLineError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  CLI::App app{"A program", "fathom"};
  ServeFlags flags;
};

struct ForeignCase {
  Words given, ours;
  const char* note = "";
};

TEST(Arguments, takes_the_flags_of_other_servers_that_mean_the_same) {
  const ForeignCase cases[] = {
      // SGLang
      {{"--model", "DIR"}, {"--model-path=DIR"}},
      {{"--tp", "8"}, {"--tp-size=8"}},
      {{"--tp=8"}, {"--tp-size=8"}},
      {{"--ep", "8"}, {"--ep-size=8"}},
      {{"--dp", "2"}, {"--dp-size=2"}},
      {{"--mem_fraction_static", "0.8"}, {"--mem-fraction-static=0.8"}},
      {{"--max-prefill-tokens", "512"}, {"--chunked-prefill-size=512"}},
      {{"--kv-cache-dtype", "fp8"}, {"--kv-cache-dtype=fp8_e4m3"}},
      {{"--trust-remote-code"}, {}, "code in a checkpoint is never run"},
      {{"--enable-flashinfer-mla", "--port", "1"}, {"--port=1"}, "kernels"},
      {{"--attention-backend", "flashinfer", "--port=1"},
       {"--attention-backend=auto", "--port=1"},
       "kernels are this program's"},
      {{"--attention-backend", "generic"}, {"--attention-backend=generic"}},
      {{"--enable-torch-compile"}, {}, "kernels"},
      {{"--enable-mixed-chunk"}, {}, "steps always mix"},
      {{"--enable-metrics"}, {}, "/metrics"},
      {{"--grammar-backend", "xgrammar"}, {}, "of the program itself"},
      {{"--reasoning-parser", "deepseek-r1"}, {}, "--chat-format"},
      {{"--cuda-graph-max-bs-decode", "8"}, {"--cuda-graph-max-bs=8"}},
      {{"--enable-trace"}, {}, "--otlp-traces-endpoint"},
      {{"--decode-log-interval", "40"}, {}, "rates are in /metrics"},
      // vLLM
      {{"--tensor-parallel-size", "2"}, {"--tensor-parallel-size=2"}},
      {{"-tp", "2"}, {"--tp-size=2"}},
      {{"--max-model-len", "4096"}, {"--context-length=4096"}},
      {{"--max_model_len=4096"}, {"--context-length=4096"}},
      {{"--max-num-seqs", "32"}, {"--max-running-requests=32"}},
      {{"--max-num-batched-tokens", "512"}, {"--chunked-prefill-size=512"}},
      {{"--gpu-memory-utilization", "0.9"}, {"--mem-fraction-static=0.9"}, "is taken as"},
      {{"--enforce-eager"}, {"--disable-cuda-graph"}},
      {{"--enable-expert-parallel"}, {"--enable-ep-moe"}},
      {{"--enable-prefix-caching"}, {}, "prefix cache is on"},
      {{"--no-enable-prefix-caching"}, {"--disable-radix-cache"}},
      {{"--disable-log-requests"}, {"--no-log-requests"}},
      {{"--enable-auto-tool-choice"}, {}, "--chat-format"},
      {{"--tool-call-parser", "deepseek_v3"}, {}, "--chat-format"},
      {{"DIR", "--port", "8000"}, {"--model-path", "DIR", "--port=8000"}},
      {{"--port", "8000", "DIR"}, {"--port=8000", "--model-path", "DIR"}},
      {{"--insecure", "DIR", "other"}, {"--insecure", "--model-path", "DIR", "other"}},
      {{"--insecure", "other", "-m", "DIR"}, {"--insecure", "other", "-m", "DIR"}},
      {{"--insecure", "other", "--model", "DIR"}, {"--insecure", "other", "--model-path=DIR"}},
      // llama-server
      {{"-m", "DIR", "-c", "4096"}, {"-m", "DIR", "--context-length=4096"}},
      {{"-np", "4"}, {"--max-running-requests=4"}},
      {{"-t", "8"}, {"--cpu-threads=8"}},
      {{"--alias", "x"}, {"--served-model-name=x"}},
      {{"--ssl-key-file", "k", "--ssl-cert-file", "c"}, {"--ssl-keyfile=k", "--ssl-certfile=c"}},
      {{"--jinja"}, {}, "--chat-format"},
      {{"-fa", "on"}, {}, "kernels"},
      // Ours, whatever their values look like.
      {{"--api-key", "--tp"}, {"--api-key=--tp"}},
      {{"--cuda-graph-bs", "1", "2"}, {"--cuda-graph-bs=1", "2"}},
  };
  for (const ForeignCase& each : cases) {
    const PreparedArguments prepared = ServeProgram().prepare(each.given);
    Words words = prepared.words;
    words.erase(words.begin());
    EXPECT_EQ(words, each.ours) << each.given.front();
    if (*each.note == '\0') {
      EXPECT_THAT(prepared.notes, IsEmpty()) << each.given.front();
    } else {
      EXPECT_THAT(prepared.notes, ElementsAre(HasSubstr(each.note))) << each.given.front();
      EXPECT_THAT(prepared.notes.front(), HasSubstr(each.given.front()));
    }
  }
}

TEST(Arguments, names_what_there_is_instead_of_a_foreign_flag) {
  const struct {
    Words given;
    const char* part;
  } cases[] = {{{"--quantization", "fp8"}, "--quantization: is not needed"},
               {{"--pp-size", "2"}, "--tp-size"},
               {{"-ngl", "99"}, "--device cuda"},
               {{"-hf", "acme/demo"}, "hf download"},
               {{"--chat-template", "x.jinja"}, "--chat-format"},
               {{"--allowed-origins", "[]"}, "--cors-origin"},
               {{"--speculative-config", "{}"}, "--speculative-algorithm"},
               {{"--temp", "0"}, "elsewhere it is --temperature"}};
  for (const auto& each : cases)
    EXPECT_THAT(ServeProgram().refusal(each.given), HasSubstr(each.part)) << each.given.front();
}

TEST(Arguments, names_the_nearest_flag_of_a_misspelling) {
  const struct {
    const char *given, *nearest;
  } cases[] = {{"--max-runing-requests", "--max-running-requests"},
               {"--modelpath", "--model-path"},
               {"--prot", "--port"},
               {"--served-model-names", "--served-model-name"},
               {"--log_levels", "--log-level"}};
  for (const auto& each : cases) {
    const std::string why = ServeProgram().refusal({each.given, "1"});
    // Without dashes and underscores some are the same word and are named, too.
    EXPECT_EQ(why, std::string("unknown flag ") + each.given + "; the nearest is " + each.nearest);
  }
  EXPECT_EQ(ServeProgram().refusal({"--zzzzzzzz"}), "unknown flag --zzzzzzzz");
}

// The parser would take the next word for the value: a key "--host=0.0.0.0", and no host.
TEST(Arguments, refuses_an_empty_value_where_a_flag_needs_one) {
  const Words cases[] = {{"--api-key", "", "--host", "0.0.0.0"},
                         {"--api-key=", "--host=0.0.0.0"},
                         {"--served-model-name", "", "--port", "1"},
                         {"--port", ""},
                         {"-m", "", "--port", "1"}};
  for (const Words& each : cases) {
    const std::string flag = each[0].substr(0, each[0].find('='));
    EXPECT_EQ(ServeProgram().refusal(each), flag + " is empty, must have a value or be left out");
  }
}

TEST(Arguments, keep_an_empty_text_apart_from_the_flag_behind_it) {
  CLI::App app{"A program", "fathom"};
  CLI::App* const generate = app.add_subcommand("generate");
  generate->add_option("--prompt")->type_name("TEXT");
  generate->add_option("--seed")->type_name("N");
  EXPECT_THAT(prepare_arguments(app, {"generate", "--prompt", "", "--seed", "1"}, nullptr).words,
              ElementsAre("generate", "--prompt", "", "--seed=1"));
}

// A flag of theirs that became ours would never be reached in the table.
TEST(Arguments, has_no_foreign_name_that_is_a_flag_of_serve_and_only_aliases_that_exist) {
  ServeProgram program;
  CLI::App* const serve = program.app.get_subcommand("serve");
  std::string_view before;
  for (const ForeignFlag& flag : foreign_flags()) {
    EXPECT_LT(before, flag.name);
    before = flag.name;
    EXPECT_EQ(serve->get_option_no_throw(std::string(flag.name)), nullptr) << flag.name;
    const bool is_alias = flag.use == ForeignUse::kAlias || flag.use == ForeignUse::kAlmost;
    EXPECT_EQ(is_alias, !flag.text.empty()) << flag.name;
    EXPECT_EQ(flag.use == ForeignUse::kAlias, flag.note.empty()) << flag.name;
  }
}

TEST(Arguments, of_the_environment_are_taken_where_the_command_line_has_none) {
  ServeProgram program;
  EXPECT_THAT(program.words({"--port", "1"},
                            {"FATHOM_PORT=2", "FATHOM_HOST=::1", "FATHOM_INSECURE=1",
                             "FATHOM_LOG_REQUESTS=false", "FATHOM_THINKING=0", "FATHOM_DTYPE=",
                             "FATHOM_SERVED_MODEL_NAME=a,b", "FATHOM_CPU_ISA=avx2", "PORT=3"}),
              ElementsAre("--port=1", "--host=::1", "--insecure", "--served-model-name=a",
                          "--served-model-name=b", "--no-log-requests"));
  // Keys are read where they are used.
  EXPECT_THAT(program.words({}, {"FATHOM_API_KEY=sk-12345678"}), IsEmpty());
  // Other servers' names of flags are names of variables, too.
  EXPECT_THAT(program.words({}, {"FATHOM_MODEL=DIR", "FATHOM_TP=2"}),
              ElementsAre("--model-path=DIR", "--tp-size=2"));
  EXPECT_EQ(program.prepare({}, {"FATHOM_PORT=2"}).sources.at("--port"), "FATHOM_PORT");
  EXPECT_THAT(program.refusal({}, {"FATHOM_MAX_RUNING_REQUESTS=2"}),
              HasSubstr("the nearest is FATHOM_MAX_RUNNING_REQUESTS"));
  EXPECT_THAT(program.refusal({}, {"FATHOM_INSECURE=maybe"}), HasSubstr("must be true or false"));
}

class ConfigFileTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  std::string refusal(const std::string& text) {
    try {
      ServeProgram().prepare({"--config", write(text)});
    } catch (const StartupError& error) {
      return error.what();
    } catch (const CommandLineError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  ScratchDirectory directory_;
  std::string path_ = directory_ / "fathom.yaml";
};

TEST_F(ConfigFileTest, gives_what_neither_command_line_nor_environment_do) {
  const std::string path = write(
      "# a server\nmodel: /srv/model\nmax-model-len: 4096\nmax_running_requests: 8\nport: 3\n"
      "served-model-name: [a, b]\ninsecure: true\nlog-requests: no\nthinking: off\n"
      "trust-remote-code: true\nhost: 0.0.0.0\n");
  ServeProgram program;
  const PreparedArguments prepared =
      program.prepare({"--config", path, "--port", "1"}, {"FATHOM_HOST=::1"});
  EXPECT_THAT(
      prepared.words,
      ElementsAre("serve", "--config=" + path, "--port=1", "--host=::1", "--model-path=/srv/model",
                  "--context-length=4096", "--max-running-requests=8", "--served-model-name=a",
                  "--served-model-name=b", "--insecure", "--no-log-requests"));
  EXPECT_THAT(prepared.notes, ElementsAre(HasSubstr("code in a checkpoint is never run")));
  EXPECT_EQ(prepared.sources.at("--max-running-requests"), path + ":4");
}

TEST_F(ConfigFileTest, that_makes_no_sense_is_refused_with_its_line) {
  EXPECT_THAT(refusal("port: 1\nmax-runing-requests: 8\n"),
              HasSubstr(path_ + ":2: unknown flag --max-runing-requests; the nearest is "));
  EXPECT_THAT(refusal("port: {a: 1}\n"), HasSubstr(path_ + ":1: \"port\" must be a text"));
  EXPECT_THAT(refusal("port: 1\nport: 2\n"), HasSubstr(path_ + ":2: \"port\" is there twice"));
  EXPECT_THAT(refusal("- port\n"), HasSubstr("must be one mapping"));
  EXPECT_THAT(refusal("port: [1\n"), HasSubstr(path_ + ":"));
  EXPECT_THAT(refusal("insecure: maybe\n"), HasSubstr("insecure must be true or false"));
  EXPECT_THAT(refusal("config: other.yaml\n"), HasSubstr("unknown flag"));
  EXPECT_THAT(refusal("port: 1\nserved-model-name: \"\"\n"),
              HasSubstr(path_ + ":2: --served-model-name is empty, must have a value"));
  EXPECT_THAT(refusal("quantization: fp8\n"), HasSubstr("is not needed"));
  EXPECT_EQ(refusal("# nothing\n"), "nothing was refused");
}

}  // namespace
}  // namespace fathom::apps
