#include "answer/answer_size.h"

#include <gtest/gtest.h>

namespace fathom::answer {
namespace {

constexpr int64_t kMuchMemory = int64_t{1} << 40;

api::GenerationRequest request_of(int num_items, int n, size_t num_tokens) {
  api::GenerationRequest request;
  request.form.endpoint = api::Endpoint::kGenerate;
  for (int i = 0; i < num_items; ++i) {
    api::GenerationItem item;
    item.prompt.assign(num_tokens, 5);
    item.n = n;
    request.items.push_back(std::move(item));
  }
  return request;
}

TEST(AnswerSize, copies_of_prompts_behind_the_first_are_bounded) {
  const auto problem = [](const api::GenerationRequest& request) {
    return problem_of_size(request, kMuchMemory);
  };
  const int64_t most = kMaxCopiedTokens;
  EXPECT_FALSE(problem(request_of(1, 101, static_cast<size_t>(most / 100))));
  EXPECT_FALSE(problem(request_of(3, 1, static_cast<size_t>(most))));
  for (const int num_items : {1, 2}) {
    api::GenerationRequest request =
        request_of(num_items, 101, static_cast<size_t>(most / 100) + 1);
    ASSERT_TRUE(problem(request));
    EXPECT_EQ(problem(request)->param, "n");
    EXPECT_NE(problem(request)->message.find(std::to_string(num_items * (most + 100))),
              std::string::npos)
        << problem(request)->message;
    request.form.endpoint = api::Endpoint::kScore;
    EXPECT_EQ(problem(request)->param, "label_token_ids");
  }
}

TEST(AnswerSize, prompts_fit_into_what_all_answers_have) {
  for (const auto& request : {request_of(1, 3, 1000), request_of(3, 1, 1000)}) {
    EXPECT_EQ(num_held_bytes(request), 3000 * kBytesPerHeldToken);
    EXPECT_FALSE(problem_of_size(request, num_held_bytes(request)));
    EXPECT_TRUE(problem_of_size(request, num_held_bytes(request) - 1));
  }
}

TEST(AnswerSize, a_lease_grows_to_the_most_and_gives_all_back) {
  const auto in_work = std::make_shared<std::atomic<int64_t>>(0);
  {
    SizeLease first(60, 100, in_work);
    EXPECT_TRUE(first.is_granted());
    SizeLease second(30, 100, in_work);
    EXPECT_TRUE(second.grow(10));
    EXPECT_FALSE(second.grow(1));
    EXPECT_FALSE(second.is_granted());
    EXPECT_EQ(second.size(), 40);
    EXPECT_FALSE(SizeLease(1, 100, in_work).is_granted());
    EXPECT_EQ(*in_work, 100);
    EXPECT_TRUE(second.grow(0)) << "what was refused to others is nothing that this one lacks";
  }
  EXPECT_EQ(*in_work, 0);
}

}  // namespace
}  // namespace fathom::answer
