// Command ucx_plot draws the results of `ucx_perftest --json` as SVG: latency or bandwidth over the
// message size, and percentiles. docs/perftest.md describes it; -h lists its options.
//
// It is a module of its own, so that programs that use goucx do not depend on gonum/plot. Start
// reading at run in main.go.
package main
