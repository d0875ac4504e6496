// What can be said of the GPU's part of traces without a GPU.

#include "cuda/profile/profile.h"

#include <gmock/gmock.h>

#include "base/json.h"
#include "base/trace.h"
#include "cuda/profile/kernel_name.h"

namespace fathom::cuda {
namespace {

TEST(KernelName, is_the_function_with_its_template_arguments) {
  // void fathom::cuda::(anonymous namespace)::rows<__nv_bfloat16, 8, true>(fathom::cuda::Params)
  EXPECT_EQ(
      kernel_name("_ZN6fathom4cuda12_GLOBAL__N_14rowsI13__nv_bfloat16Li8ELb1EEEvNS0_6ParamsE"),
      "rows<bf16, 8, true>");
  // void fathom::cuda::product<(fathom::cuda::Mode)1>(float*)
  EXPECT_EQ(kernel_name("_ZN6fathom4cuda7productILNS0_4ModeE1EEEvPf"), "product<1>");
  // fathom::cuda::sort(int*)
  EXPECT_EQ(kernel_name("_ZN6fathom4cuda4sortEPi"), "sort");
}

TEST(KernelName, of_something_else_stays_as_it_is_and_is_never_long) {
  EXPECT_EQ(kernel_name("copy to host"), "copy to host");
  const std::string name = kernel_name(std::string(500, 'a').c_str());
  EXPECT_EQ(name.size(), 120u);
  EXPECT_TRUE(name.ends_with("a..."));
}

TEST(Profile, a_trace_without_cupti_has_the_host_and_says_what_is_missing) {
  const auto recorder = make_recorder({"libnowhere.so.1", "/nowhere/libcupti.so"});
  if (recorder == nullptr)
    GTEST_SKIP() << "built without CUPTI's headers; they come with CUDA's toolkit";
  trace::set_device_recorder(recorder.get());
  const Result<std::string> missing = trace::start({});
  { const trace::Span span("a", "work"); }
  const json::Value trace = json::parse(trace::stop()).value();
  trace::set_device_recorder(nullptr);
  ASSERT_TRUE(missing);
  EXPECT_EQ(*missing, "CUPTI cannot be opened, tried libnowhere.so.1, /nowhere/libcupti.so");
  EXPECT_EQ(trace.at("otherData").at("device_missing"), *missing);
  EXPECT_THAT(json::dump(trace.at("traceEvents")), testing::HasSubstr(R"("name":"work")"));
}

TEST(Profile, a_library_that_is_not_cupti_is_named_as_such) {
  const auto recorder = make_recorder({"libm.so.6"});
  if (recorder == nullptr)
    GTEST_SKIP() << "built without CUPTI's headers; they come with CUDA's toolkit";
  const Status status = recorder->start(10);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "CUPTI cannot be opened, tried libm.so.6 (too old)");
}

}  // namespace
}  // namespace fathom::cuda
