// Package ucptest holds the conformance cases of package ucp. They run over
// every transport, with both workers driven by the test's goroutine and with
// each driven by one of its own.
//
// A case is a function of a [Pair]; the tables are in the files named after
// their theme. matrix.txt lists which case of the conformance list is held by
// which of them, and why the others are not.
package ucptest
