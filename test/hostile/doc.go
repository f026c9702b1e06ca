// Package hostile is a test of whole programs among strangers. A victim, which is this
// binary started again, exchanges messages with honest peers while other processes attack
// it: forged and mutated datagrams, floods of connection requests, sockets that are opened
// and not used, descriptors that are made blocking, names that are taken before.
//
// victim_test.go is the victim and the honest peer; datagrams_test.go builds and sends the
// datagrams from the documents of docs/wire. A failure prints the seed.
//
//	go test ./test/hostile                             # the short form, 20 s
//	go test ./test/hostile -run Mutated -hostile.seed=4711  # the same datagrams again
//
// GOUCX_TEST_LONG=1 runs each attack for longer.
package hostile
