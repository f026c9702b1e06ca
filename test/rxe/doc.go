// Package rxe tests against verbs code that is not this project's: the kernel's Soft-RoCE and its tools, in the
// machine of test/rxe/vm. `make test-rxe` installs what is missing and runs all of it; -short selects a
// part of two minutes, `scripts/test rxe_short`.
//
// All tests share one machine, which the first of them boots (main_test.go). suite_test.go runs the test
// binaries of packages in it: the suites of verbs/verbstest, uct/ucttest and ucp/ucptest (package conformance).
// perftest_test.go runs ucx_perftest, tools_test.go programs of rdma-core between the two devices,
// interop_test.go programs of rdma-core and perftest against soft devices. wire_test.go captures
// packets of both for package wire and for Wireshark.
//
//	go test ./test/rxe                                   # everything
//	go test ./test/rxe -run TestTools -v
//	go test ./test/rxe -rxe.console /tmp/console         # keep the kernel's log
//	go run ./test/rxe/run ibv_devinfo                    # one program in a machine of its own
package rxe
