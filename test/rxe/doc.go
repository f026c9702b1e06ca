// Package rxe tests against verbs code that is not this project's: the kernel's Soft-RoCE and its tools, in the
// machine of test/rxe/vm. `make test-rxe` installs what is missing and runs all of it; with -short it is
// the part that `make test` runs.
//
// All tests share one machine, which the first of them boots (machine_test.go). suite_test.go runs the test binaries of
// packages in it, tools_test.go programs of rdma-core
// between the two devices. wire_test.go captures their packets for package wire and for Wireshark.
//
//	go test ./test/rxe                                   # everything
//	go test ./test/rxe -run TestTools -v
//	go test ./test/rxe -rxe.console /tmp/console         # keep the kernel's log
//	go run ./test/rxe/run ibv_devinfo                    # one program in a machine of its own
package rxe
