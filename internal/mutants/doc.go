// Command mutants shows that the tests can fail: it breaks the code in one place
// at a time, in a copy of the tree, and runs the test that must notice.
//
// A mutant is an exact replacement in one file, named after what it breaks, with
// the test that kills it (the list*.go files). One whose text is not found any
// more, which does not compile, or whose test fails without it, is an error that
// names it; so is one that survives. `make mutants` runs all, a word on the
// command line those whose name contains it, -quick a part that takes a minute or
// two. Start reading at main.go.
package main
