# The text format of /metrics only: the exposer and the push gateway are other libraries.
find_package(prometheus-cpp REQUIRED)
target_link_libraries(fathom_metrics PRIVATE prometheus-cpp::core)
