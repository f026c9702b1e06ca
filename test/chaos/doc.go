// Package chaos is a test of whole programs. Several processes exchange every kind
// of operation, each with each, while some are killed, stopped, closed in order and
// replaced. Every process checks content, order and loss of what it receives, each
// value that it reads, the end of each request, and that it closes without a leak.
//
// The controller (control_test.go) is the test. It starts members (member_test.go),
// which are this binary started again, and exchanges JSON lines with them
// (line_test.go). A member has a link to each other member (link_test.go): message_test.go and memory_test.go
// start its operations, receive_test.go takes in what arrives.
//
//	go test ./test/chaos                                              # a spread of settings, a minute
//	go test ./test/chaos -run 'TestChaos/rc$' -chaos.time=10m         # one setting
//	go test ./test/chaos -run 'TestChaos/all-tiny$' -chaos.seed=4711  # the same choices again
//
// The seed decides what the members post and what the controller does to them, not
// how the processes interleave. GOUCX_TEST_LONG=1 runs every setting for minutes.
package chaos
