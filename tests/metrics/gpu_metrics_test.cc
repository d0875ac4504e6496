#include "metrics/gpu_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace fathom::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(GpuMetrics, a_scrape_has_what_each_gpu_tells_now) {
  Result<std::unique_ptr<Nvml>> nvml = Nvml::open(FATHOM_FAKE_NVML);
  ASSERT_TRUE(nvml) << nvml.error().message;
  Registry registry;
  const Registry::Collector collector = add_gpu_metrics(
      registry, std::move(*nvml), {"00000000:3B:00.0", "00000000:5E:00.0", "00000000:99:00.0"});
  const std::string first = registry.expose();
  EXPECT_THAT(first, HasSubstr("fathom:gpu_memory_used_bytes{gpu=\"0\"} 138000000000\n"
                               "fathom:gpu_memory_used_bytes{gpu=\"1\"} 1000000\n"));
  EXPECT_THAT(first, HasSubstr("fathom:gpu_memory_total_bytes{gpu=\"1\"} 150000000000\n"));
  EXPECT_THAT(first, HasSubstr("fathom:gpu_power_watts{gpu=\"0\"} 412.5\n"));
  EXPECT_THAT(first, HasSubstr("fathom:gpu_busy_ratio{gpu=\"0\"} 0.97\n"));
  EXPECT_THAT(first, Not(HasSubstr("gpu_temperature_celsius{gpu=\"1\"}")));
  EXPECT_THAT(first, Not(HasSubstr("gpu=\"2\"")));
  const auto degrees = [](const std::string& text) {
    const std::string name = "fathom:gpu_temperature_celsius{gpu=\"0\"} ";
    return std::atoi(text.c_str() + text.find(name) + name.size());
  };
  EXPECT_GT(degrees(first), 40);
  EXPECT_GT(degrees(registry.expose()), degrees(first));
}

TEST(Nvml, one_that_is_missing_or_does_not_start_says_so) {
  EXPECT_EQ(Nvml::open("/nowhere/libnvidia-ml.so.1").error().message,
            "NVML cannot be opened, tried /nowhere/libnvidia-ml.so.1");
  ASSERT_EQ(setenv("FATHOM_FAKE_NVML_FAILS", "1", 1), 0);
  EXPECT_EQ(Nvml::open(FATHOM_FAKE_NVML).error().message,
            "NVML does not start: the driver is not loaded");
  unsetenv("FATHOM_FAKE_NVML_FAILS");
}

}  // namespace
}  // namespace fathom::metrics
