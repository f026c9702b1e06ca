// Package report prints benchmark results: as the table of UCX 1.13's ucx_perftest, as its CSV, or
// as JSON. The first two match UCX's tool column for column, so that scripts written for it keep
// working.
//
// Start reading at Form.
package report
