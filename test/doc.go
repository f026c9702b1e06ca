// Package test holds the whole-program tests: several real processes over the
// public API, some of them hostile, and the commands as they are built. Nothing imports it.
//
// The test binary started again with roleEnv set is a second process in one of
// the roles; it talks with the test by lines on pipes. Start reading at
// main_test.go. GOUCX_TEST_LONG=1 makes the runs that are bounded by time long.
package test
