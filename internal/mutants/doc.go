// Command mutants checks that the tests can fail. It breaks the code in one place at a time, in a
// copy of the tree, and runs the test that must detect it.
//
// A mutant is an exact replacement in one file, named after what it breaks, with the test that
// kills it (the list*.go files). An error names each mutant that survives, does not compile, whose
// text is not found, or whose test fails without it. `make mutants` runs all. A word on the
// command line selects those whose name contains it. Its own test only requires that each can be
// applied. Start reading at main.go.
package main
