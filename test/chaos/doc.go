// Package chaos is a test of whole programs. Several processes exchange every kind
// of operation, each with each, while some are killed, stopped, closed in order and
// replaced. Each process checks the content, order and loss of what it receives, each
// value that it reads, the end of each request, and that it closes without a leak.
//
// The controller (control_test.go) is the test. It starts members (member_test.go),
// which are this binary started again, and exchanges JSON lines with them
// (line_test.go). A member has a link to each other member (link_test.go):
// message_test.go and memory_test.go start its operations, receive_test.go takes in
// what arrives. report_test.go reports anomalies and compares the use of memory.
// fault_test.go holds the test to what it must find.
//
//	go test ./test/chaos                                              # a spread of settings, a minute
//	go test ./test/chaos -run 'TestChaos/^rc$' -chaos.time=10m        # one setting
//	go test ./test/chaos -run 'TestChaos/^all-tiny$' -chaos.seed=4711 # the same choices again
//
// The seed decides what the members post and what the controller does to them, not
// how the processes interleave. GOUCX_TEST_LONG=1 runs each setting for minutes, see
// -chaos.long. CONTRIBUTING.md describes how to read a report.
package chaos
