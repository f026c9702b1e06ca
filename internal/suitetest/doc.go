// Package suitetest is what conformance suites share: the checked-in matrix of
// which implementation passes which case, a testing.TB that notes failures instead
// of failing, for cases that are meant to fail, and a network of a test's own.
package suitetest
